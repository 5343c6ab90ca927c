// Timelines: a panel for each run, on one scale of time. A panel draws the rows that are in sight, and of spans that share a
// pixel one.
const ROW = 18, LABELS = 112, AXIS = 24, KEYS = 0.15, PAPER = 720;

// The spans of a lane as arrays; times in seconds from the first span of the run.
function spans_of(lane) {
  const numbers = lane.spans, count = numbers.length / 4;
  const made = { rank: lane.rank, lane: lane.lane, begins: new Float64Array(count), ends: new Float64Array(count),
    latest: new Float64Array(count), names: new Int32Array(count), iterations: new Int32Array(count) };
  let begin = 0, iteration = 0, latest = -Infinity;
  for (let i = 0, at = 0; i < count; ++i, at += 4) {
    begin += numbers[at];
    iteration += numbers[at + 3];
    made.begins[i] = begin / 1e9;
    made.ends[i] = (begin + numbers[at + 1]) / 1e9;
    latest = Math.max(latest, made.ends[i]);
    made.latest[i] = latest;
    made.names[i] = numbers[at + 2];
    made.iterations[i] = iteration;
  }
  return made;
}
function intervals_of(numbers) {
  const made = { begins: new Float64Array(numbers.length / 2), ends: new Float64Array(numbers.length / 2) };
  for (let i = 0, begin = 0; 2 * i < numbers.length; ++i) {
    begin += numbers[2 * i];
    made.begins[i] = begin / 1e9;
    made.ends[i] = (begin + numbers[2 * i + 1]) / 1e9;
  }
  return made;
}
// The first index whose value is above `value`; values ascend.
function first_above(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

// The part of time that all panels show.
class View {
  constructor(end) { this.whole = Math.max(end, 1e-9); this.begin = 0; this.end = this.whole; this.panels = []; this.asked = false; }
  set(begin, end) {
    const length = Math.min(Math.max(end - begin, 2e-8), this.whole * 1.02);
    this.begin = Math.min(Math.max(begin, -0.01 * this.whole), this.whole * 1.01 - length);
    this.end = this.begin + length;
    this.draw();
  }
  zoom(factor, at = (this.begin + this.end) / 2) { this.set(at - (at - this.begin) * factor, at + (this.end - at) * factor); }
  pan(part) { const by = part * (this.end - this.begin); this.set(this.begin + by, this.end + by); }
  all() { this.set(-0.005 * this.whole, 1.005 * this.whole); }
  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.panels.forEach((panel) => panel.draw()); });
  }
}

class Panel {
  constructor(run, view) {
    this.run = run;
    this.view = view;
    this.shift = 0;  // of this run's time, so that iterations begin together
    this.lanes = run.trace.lanes.map(spans_of);
    this.activities = run.trace.names.map((name) => name[1]);
    this.exposed = new Map(run.trace.by_rank.map((rank) => [rank.rank, intervals_of(rank.exposed)]));
    this.end = Math.max(...this.lanes.map((lane) => lane.latest[lane.latest.length - 1]));
    this.row = 0;
    this.chosen = -1;
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-label":
      `Timeline of ${run.name}: ${count_of(run.trace.summary.ranks, "rank")}. Arrows move, plus and minus zoom, n and p go from span to span, 0 shows all.` });
    this.spacer = element("div");
    this.frame = element("div", { class: "view" }, this.canvas, this.spacer);
    this.said = element("div", { class: "said", "aria-live": "polite" });
    this.element = element("div", { class: "panel" }, element("h3", { text: run.name }),
      element("div", { class: "note", text: [run.trace.title, run.trace.network].filter(Boolean).join(" · ") }), this.frame, this.said);
    this.listen();
  }
  listen() {
    const canvas = this.canvas;
    this.frame.addEventListener("scroll", () => this.view.draw());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const by = event.deltaY || event.deltaX;
      this.view.zoom(Math.exp(Math.max(-1, Math.min(1, by * 0.003))), this.time_at(event.offsetX) + this.shift);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, begin: this.view.begin, end: this.view.end };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointercancel", () => { held = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) { this.point(event); return; }
      hint.hide();
      const by = (held.x - event.clientX) / this.field * (held.end - held.begin);
      this.view.set(held.begin + by, held.end + by);
    });
    canvas.addEventListener("pointerleave", hint.hide);
    canvas.addEventListener("dblclick", (event) => this.view.zoom(0.4, this.time_at(event.offsetX) + this.shift));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: () => this.view.pan(-KEYS), ArrowRight: () => this.view.pan(KEYS),
      "+": () => this.view.zoom(0.6), "=": () => this.view.zoom(0.6), "-": () => this.view.zoom(1 / 0.6),
      0: () => this.view.all(), Home: () => this.view.all(),
      ArrowUp: () => this.go_to_row(this.row - 1), ArrowDown: () => this.go_to_row(this.row + 1),
      n: () => this.go_to_span(1), p: () => this.go_to_span(-1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  go_to_row(row) {
    this.row = Math.max(0, Math.min(row, this.lanes.length - 1));
    this.chosen = -1;
    const top = this.row * ROW;
    if (top < this.frame.scrollTop) this.frame.scrollTop = top;
    if (top + ROW > this.frame.scrollTop + this.rows_height) this.frame.scrollTop = top + ROW - this.rows_height;
    this.said.textContent = this.label(this.lanes[this.row]);
    this.view.draw();
  }
  go_to_span(by) {
    const lane = this.lanes[this.row];
    if (lane.begins.length === 0) return;
    const next = this.chosen < 0 ? first_above(lane.latest, this.view.begin - this.shift) : this.chosen + by;
    this.chosen = Math.max(0, Math.min(next, lane.begins.length - 1));
    const begin = lane.begins[this.chosen] + this.shift, end = lane.ends[this.chosen] + this.shift;
    if (begin < this.view.begin || end > this.view.end) {
      const half = Math.max((this.view.end - this.view.begin) / 2, end - begin);
      this.view.set((begin + end) / 2 - half, (begin + end) / 2 + half);
    }
    this.said.textContent = this.describe(lane, this.chosen).replaceAll("\n", ", ");
    this.view.draw();
  }
  label(lane) { return `${this.run.trace.summary.ranks > 1 ? `${lane.rank} ` : ""}${lane.lane}`; }
  describe(lane, index) {
    const [name, activity] = this.run.trace.names[lane.names[index]];
    const iteration = lane.iterations[index];
    const exposed = activity === "communication" ? this.exposed_within(lane.rank, lane.begins[index], lane.ends[index]) : null;
    return `${name}\nrank ${lane.rank}, ${lane.lane}${iteration >= 0 ? `, iteration ${iteration}` : ""}\n` +
      `${activity}, ${seconds(lane.ends[index] - lane.begins[index])} from ${seconds(lane.begins[index])}` +
      (exposed === null ? "" : `\nexposed: ${seconds(exposed)}`);
  }
  exposed_within(rank, begin, end) {
    const parts = this.exposed.get(rank);
    let sum = 0;
    for (let i = first_above(parts.ends, begin); i < parts.begins.length && parts.begins[i] < end; ++i)
      sum += Math.min(end, parts.ends[i]) - Math.max(begin, parts.begins[i]);
    return sum;
  }
  time_at(x) { return this.view.begin - this.shift + (x - LABELS) / this.field * (this.view.end - this.view.begin); }
  point(event) {
    const row = Math.floor((event.offsetY + this.frame.scrollTop) / ROW);
    const lane = this.lanes[row];
    if (!lane || event.offsetX < LABELS || event.offsetY > this.rows_height) { hint.hide(); return; }
    const time = this.time_at(event.offsetX), near = 1.5 / this.field * (this.view.end - this.view.begin);
    let found = -1;
    for (let i = first_above(lane.latest, time - near); i < lane.begins.length && lane.begins[i] <= time + near; ++i)
      if (lane.ends[i] >= time - near) found = i;
    if (found < 0) hint.hide(); else hint.show(this.describe(lane, found), event.clientX, event.clientY);
  }
  resize() {
    // On paper the style makes it as wide as there is place.
    const width = is_printing() ? PAPER : this.frame.clientWidth, rows = Math.min(this.lanes.length, this.most_rows);
    this.rows_height = rows * ROW;
    const height = this.rows_height + AXIS, ratio = is_printing() ? 2 : devicePixelRatio || 1;
    this.frame.style.height = `${height + 2}px`;
    this.spacer.style.height = `${(this.lanes.length - rows) * ROW}px`;
    this.field = Math.max(50, width - LABELS - 8);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.width = width;
    this.height = height;
    this.ratio = ratio;
  }
  paint() {
    if (!this.colours) {
      this.colours = {};
      for (const name of ["paper", "raised", "ink", "muted", "rule", "exposed", "accent", "on-colour", "forward", "backward", "update", "codec", "communication", "wait", "other"])
        this.colours[name] = colour(name);
    }
    return this.colours;
  }
  in_sight() {
    const box = this.frame.getBoundingClientRect();
    return is_printing() || (box.bottom > 0 && box.top < innerHeight);
  }
  draw() {
    if (!this.in_sight()) { this.stale = true; return; }
    this.stale = false;
    if (!this.width) this.resize();
    const brush = this.canvas.getContext("2d"), colours = this.paint();
    brush.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    brush.fillStyle = colours.paper;
    brush.fillRect(0, 0, this.width, this.height);
    const top = this.frame.scrollTop, first = Math.floor(top / ROW);
    const last = Math.min(this.lanes.length, Math.ceil((top + this.rows_height) / ROW));
    brush.font = '11px system-ui, "DejaVu Sans", sans-serif';
    brush.textBaseline = "middle";
    for (let row = first; row < last; ++row) this.draw_row(brush, row, row * ROW - top, colours);
    this.draw_axis(brush, colours);
  }
  draw_row(brush, row, y, colours) {
    const lane = this.lanes[row], scale = this.field / (this.view.end - this.view.begin);
    const from = this.view.begin - this.shift, to = this.view.end - this.shift;
    if (row > 0 && this.lanes[row - 1].rank !== lane.rank) {
      brush.fillStyle = colours.rule;
      brush.fillRect(0, y, this.width, 1);
    }
    brush.fillStyle = row === this.row && document.activeElement === this.canvas ? colours.accent : colours.ink;
    brush.fillText(this.label(lane), 6, y + ROW / 2 + 1, LABELS - 10);
    // Whole pixels are filled quicker than parts of them, and neighbours of one colour as one.
    const right = LABELS + this.field, pixel = 1 / this.ratio;
    let filled = "", begin_of_box = 0, end_of_box = 0, box = "", last_short = -1;
    const fill_box = () => {
      if (box !== filled) brush.fillStyle = colours[filled = box];
      if (end_of_box > begin_of_box) brush.fillRect(begin_of_box, y + 2, end_of_box - begin_of_box, ROW - 4);
      box = "";
    };
    for (let i = first_above(lane.latest, from); i < lane.begins.length && lane.begins[i] < to; ++i) {
      const begin = LABELS + (lane.begins[i] - from) * scale, length = (lane.ends[i] - lane.begins[i]) * scale;
      const x = this.whole_pixels(Math.max(LABELS, begin));
      const end = Math.min(right, Math.max(this.whole_pixels(begin + length) - (length > 8 ? pixel : 0), x + pixel));
      if (end <= x || (length < 1 && x === last_short)) continue;
      if (length < 1) last_short = x;
      const activity = this.activities[lane.names[i]];
      if (activity === box && x <= end_of_box) {
        end_of_box = Math.max(end_of_box, end);
      } else {
        if (box) fill_box();
        [box, begin_of_box, end_of_box] = [activity, x, end];
      }
      if (end - x > 34) {
        fill_box();
        const name = this.run.trace.names[lane.names[i]][0];
        brush.fillStyle = activity === "wait" ? colours.ink : activity === "forward" || activity === "backward" || activity === "other" ? colours["on-colour"] : "#111418";
        brush.fillText(name.length * 6 > end - x - 6 ? `${name.slice(0, Math.floor((end - x - 12) / 6))}…` : name, x + 3, y + ROW / 2 + 1, end - x - 4);
        filled = "";
      }
      if (row === this.row && i === this.chosen) {
        if (box) fill_box();
        brush.strokeStyle = colours.ink;
        brush.lineWidth = 2;
        brush.strokeRect(x, y + 2, Math.max(end - x, 2), ROW - 4);
      }
    }
    if (box) fill_box();
    if (lane.lane === "compute") this.draw_exposed(brush, lane.rank, y, from, to, scale, colours);
  }
  whole_pixels(x) { return Math.round(x * this.ratio) / this.ratio; }
  draw_exposed(brush, rank, y, from, to, scale, colours) {
    const parts = this.exposed.get(rank);
    brush.fillStyle = colours.exposed;
    const right = LABELS + this.field;
    let begin_of_box = 0, end_of_box = 0;
    const fill_box = () => { if (end_of_box > begin_of_box) brush.fillRect(begin_of_box, y + ROW - 5, end_of_box - begin_of_box, 4); };
    for (let i = first_above(parts.ends, from); i < parts.begins.length && parts.begins[i] < to; ++i) {
      const x = this.whole_pixels(LABELS + Math.max(0, (parts.begins[i] - from) * scale));
      const end = Math.min(right, this.whole_pixels(LABELS + (parts.ends[i] - from) * scale));
      if (end <= x) continue;  // many that are shorter than a pixel would look like one that is long
      if (x > end_of_box) { fill_box(); begin_of_box = x; }
      end_of_box = end;
    }
    fill_box();
  }
  draw_axis(brush, colours) {
    const length = this.view.end - this.view.begin, scale = this.field / length, y = this.rows_height;
    brush.fillStyle = colours.paper;
    brush.fillRect(0, y, this.width, AXIS);
    brush.fillStyle = colours.rule;
    brush.fillRect(0, y, this.width, 1);
    const rough = length / Math.max(2, this.field / 80), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const unit = SECONDS.find((one) => tick >= one[0] * 0.9) ?? SECONDS[3];
    for (let i = Math.ceil(this.view.begin / tick - 1e-9); i * tick <= this.view.end; ++i) {
      const x = LABELS + (i * tick - this.view.begin) * scale;
      brush.fillStyle = colours.muted;
      brush.fillRect(x, y, 1, 5);
      brush.textAlign = "center";
      const label = `${Number((i * tick / unit[0]).toPrecision(12))} ${unit[1]}`;
      brush.fillText(label, Math.min(x, this.width - brush.measureText(label).width / 2 - 2), y + 14);
      brush.textAlign = "start";
    }
  }
}

// Where an iteration begins in a run: the first span of it on a lane compute.
function begin_of(panel, iteration) {
  let begin = Infinity;
  for (const lane of panel.lanes) {
    if (lane.lane !== "compute") continue;
    for (let i = 0; i < lane.begins.length; ++i)
      if (lane.iterations[i] === iteration) { begin = Math.min(begin, lane.begins[i]); break; }
  }
  return begin;
}

function timelines(runs) {
  const view = new View(0);
  view.panels = runs.map((run) => new Panel(run, view));
  view.whole = Math.max(...view.panels.map((panel) => panel.end));
  for (const panel of view.panels) panel.most_rows = runs.length === 1 ? 30 : runs.length === 2 ? 16 : 12;
  const iterations = [...new Set(view.panels.flatMap((panel) => panel.lanes.flatMap((lane) => [...new Set(lane.iterations)])))].filter((one) => one >= 0).sort((a, b) => a - b);
  const align = () => {
    const iteration = Number(choice.value), begins = view.panels.map((panel) => begin_of(panel, iteration));
    const known = begins.filter(Number.isFinite);
    if (choice.value === "" || known.length === 0) { view.panels.forEach((panel) => { panel.shift = 0; }); view.all(); return; }
    const latest = Math.max(...known);
    view.panels.forEach((panel, index) => { panel.shift = Number.isFinite(begins[index]) ? latest - begins[index] : 0; });
    const longest = Math.max(...runs.map((run) => run.trace.summary.iteration_seconds), 1e-8);
    view.set(latest - 0.02 * longest, latest + 1.6 * longest);
  };
  const choice = element("select", { onchange: align, id: "iteration" }, element("option", { value: "", text: "all" }),
    ...iterations.slice(0, 2000).map((one) => element("option", { value: one, text: String(one) })));
  const button = (label, text, act) => element("button", { type: "button", "aria-label": label, title: label, text, onclick: act });
  const made = element("div", {},
    element("div", { class: "tools", role: "toolbar", "aria-label": "Timelines" },
      button("Zoom in", "+", () => view.zoom(0.6)), button("Zoom out", "−", () => view.zoom(1 / 0.6)),
      button("Earlier", "←", () => view.pan(-0.25)), button("Later", "→", () => view.pan(0.25)),
      button("Show all", "All", () => { choice.value = ""; align(); }), element("label", {}, "Iteration", choice)),
    legend(["forward", "backward", "update", "codec", "communication", "wait", "other"]
      .filter((one) => runs.some((run) => run.trace.names.some((name) => name[1] === one)))
      .map((one) => ["", one, `var(--${one})`]).concat([["of-exposed", "exposed communication: below the lane compute"]])),
    element("p", { class: "note keys", text: "Ctrl or Shift with the wheel zooms, dragging moves, a double click zooms in. With the keyboard: Tab to a timeline, then arrows, + and −, n and p from span to span, 0 for all." }),
    ...view.panels.map((panel) => panel.element));
  const refresh = () => { view.panels.forEach((panel) => { panel.colours = null; panel.resize(); }); view.draw(); };
  new ResizeObserver(refresh).observe(made);
  const sight = new IntersectionObserver(() => { if (view.panels.some((panel) => panel.stale)) view.draw(); });
  view.panels.forEach((panel) => sight.observe(panel.frame));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  for (const event of ["beforeprint", "afterprint"])
    addEventListener(event, () => { view.panels.forEach((panel) => { panel.colours = null; panel.resize(); panel.draw(); }); });
  made.view = view;
  if (iterations.length > 1) { choice.value = String(iterations[iterations.length >> 1]); made.start = align; } else made.start = () => view.all();
  return made;
}
