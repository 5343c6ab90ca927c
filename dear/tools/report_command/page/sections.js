// Sections of the page. Each returns its content, or null where no file has anything for it.

// Results of one run that may hold several: [{name, result}].
function results_of(run) {
  const json = run.results;
  if (json === undefined) return [];
  const list = Array.isArray(json) ? json : Array.isArray(json.runs) && json.runs.every(is_object) ? json.runs : null;
  if (!list || list.length === 1) return [{ name: run.name, result: list ? list[0] : json }];
  const parts = (one) => [one.policy ?? one.algorithm ?? one.backend ?? one.overlap ?? one.planner, one.model, one.cluster, one.ranks, one.compression, one.operation, one.bytes];
  const differing = parts(list[0]).map((_, index) => new Set(list.map((one) => parts(one)[index])).size > 1);
  return list.map((one, index) => ({ result: one, name: `${run.name}: ${parts(one).filter((part, i) => differing[i] && part !== undefined && part !== null).join(", ") || index + 1}` }));
}
function metrics_mean(lines, name) {
  let sum = 0, steps = 0;
  for (const line of lines) { const of = line.steps ?? 1; sum += line[name] * of; steps += of; }
  return steps > 0 ? sum / steps : NaN;
}
function iteration_of(result) {
  const value = result.iteration_seconds;
  return typeof value === "number" ? value : is_object(value) && typeof value.median === "number" ? value.median : NaN;
}

// What is compared: [{name, groups: {title: {field: number}}}].
function columns_of(runs) {
  const columns = [];
  for (const run of runs) {
    const groups = {};
    if (run.trace) {
      const { slowest_waits, ...numbers } = run.trace.summary;
      const ranks = run.trace.by_rank;
      const mean = (field) => ranks.reduce((sum, rank) => sum + rank[field], 0) / ranks.length;
      groups["Trace: medians over iterations"] = numbers;
      groups["Trace: means, whose parts add up"] = Object.fromEntries(
        ["iteration_seconds", "computation_seconds", "hidden_seconds", "exposed_seconds", "idle_seconds"].map((field) => [field, mean(field)]));
      groups["Spans by name, an iteration of a rank"] = Object.fromEntries(run.trace.by_name.map((one) => [one.name, one.seconds]));
    }
    if (run.metrics) {
      const lines = run.metrics.flat();
      groups["Metrics: means over steps"] = Object.fromEntries(["seconds", "exposed_seconds", "communication_seconds", "overlap", "bytes", "bandwidth"].map((name) => [name, metrics_mean(lines, name)]).filter(([, value]) => Number.isFinite(value)));
    }
    const results = results_of(run);
    const numbers = (result) => Object.fromEntries(Object.entries(flat(result)).filter(([, value]) => typeof value === "number"));
    if (results.length === 1) groups.Results = numbers(results[0].result);
    if (Object.keys(groups).length > 0) columns.push({ name: run.name, groups });
    if (results.length > 1) for (const one of results) columns.push({ name: one.name, groups: { Results: numbers(one.result) } });
  }
  return columns;
}

function overview(runs) {
  const rows = [];
  for (const run of runs) {
    if (run.trace) {
      const sum = run.trace.summary;
      rows.push({ run: run.name, from: run.trace.of_profiler ? "trace of torch.profiler" : run.trace.network ? "trace, network modelled" : "trace", ranks: sum.ranks, iteration_seconds: sum.iteration_seconds,
        communication_seconds: sum.communication_seconds, exposed: sum.exposed_communication_seconds, hidden: sum.hidden_fraction });
    }
    for (const { name, result } of results_of(run)) {
      if (!Number.isFinite(iteration_of(result))) continue;
      rows.push({ run: name, from: `results, ${result.modelled?.length ? `modelled: ${result.modelled.join(" and ")}` : "measured"}`, ranks: result.ranks ?? result.workers,
        iteration_seconds: iteration_of(result), exposed: result.exposed_communication_seconds });
    }
    if (run.metrics) {
      const lines = run.metrics.flat();
      rows.push({ run: run.name, from: "metrics", ranks: lines[0].ranks, iteration_seconds: metrics_mean(lines, "seconds"), communication_seconds: metrics_mean(lines, "communication_seconds"),
        exposed: metrics_mean(lines, "exposed_seconds"), hidden: metrics_mean(lines, "overlap") });
    }
  }
  if (rows.length === 0) return null;
  return [element("p", { class: "note", text: "Times of one iteration. Exposed communication: a rank computes nothing because it waits for the network." }),
    table([{ name: "run" }, { name: "from" }, { name: "ranks" }, { name: "iteration_seconds", label: "iteration" }, { name: "communication_seconds", label: "communication" },
      { name: "exposed", label: "exposed", write: seconds }, { name: "hidden", label: "hidden", write: percent }], rows.slice(0, LONGEST_TABLE))];
}

function comparison(runs) {
  const columns = columns_of(runs);
  if (columns.length < 2) return null;
  const pick = (chosen, label) => element("select", { "aria-label": label }, ...columns.map((column, index) => element("option", { value: index, text: column.name, ...(index === chosen ? { selected: "" } : {}) })));
  const first = pick(0, "First run"), second = pick(1, "Second run"), place = element("div");
  const fill = () => {
    const [a, b] = [columns[first.value], columns[second.value]];
    const rows = [];
    for (const title of Object.keys(a.groups).filter((one) => one in b.groups)) {
      const [of_a, of_b] = [a.groups[title], b.groups[title]];
      let names = Object.keys(of_a).filter((name) => name in of_b && (of_a[name] !== 0 || of_b[name] !== 0));
      const by_name = title.startsWith("Spans");
      const differs = (name) => Math.abs((of_b[name] ?? 0) - (of_a[name] ?? 0)) > 0.005 * Math.max(of_a[name] ?? 0, of_b[name] ?? 0);
      if (by_name) names = [...new Set([...Object.keys(of_a), ...Object.keys(of_b)])].sort((x, y) => Math.abs((of_b[y] ?? 0) - (of_a[y] ?? 0)) - Math.abs((of_b[x] ?? 0) - (of_a[x] ?? 0))).filter(differs).slice(0, 15);
      if (names.length === 0) continue;
      rows.push(element("tr", { class: "group" }, element("th", { colspan: "5", scope: "rowgroup", text: by_name ? `${title}: the largest differences` : title })));
      for (const name of names) {
        const kind = by_name ? "x_seconds" : name, x = of_a[name], y = of_b[name];
        const difference = (y ?? 0) - (x ?? 0), ratio = x && difference ? difference / Math.abs(x) : NaN;
        const judged = difference === 0 || Math.abs(ratio) < 0.005 || !/seconds/.test(kind) || /^(hidden|computation)_seconds/.test(name) ? "" : difference > 0 ? "worse" : "better";
        rows.push(element("tr", { "data-row": `${title}/${name}` }, element("th", { scope: "row", class: "text", text: by_name ? name : words_of(name) }), cell(x ?? null, { name: kind }), cell(y ?? null, { name: kind }),
          cell(difference, { name: kind, text: (difference > 0 ? "+" : "") + (/fraction|overlap/.test(kind) ? `${(100 * difference).toFixed(1)} points` : writer_of(kind)(difference)), kind: judged }),
          Number.isFinite(ratio) && !/fraction|overlap/.test(kind) ? element("td", { class: judged, text: Math.abs(ratio) < 0.0005 ? "" : `${ratio > 0 ? "+" : ""}${Math.abs(ratio) < 10 ? (100 * ratio).toFixed(1) : digits(100 * ratio)} %` }) : element("td")));
      }
    }
    place.replaceChildren(rows.length === 0 ? element("p", { text: "These two have no number in common: one is a trace, the other results." }) :
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Comparison" }, element("table", {}, element("thead", {}, element("tr", {}, ...["", a.name, b.name, "difference", ""].map((text, index) => element("th", { scope: "col", text, class: index === 0 ? "text" : "" })))), element("tbody", {}, ...rows))));
  };
  first.addEventListener("change", fill);
  second.addEventListener("change", fill);
  fill();
  return [element("div", { class: "tools" }, element("label", {}, "Compare", first), element("label", {}, "with", second)), place];
}

const PARTS = [["computation", "computation, nothing travels"], ["hidden", "computation, communication hidden under it"], ["exposed", "exposed communication"], ["idle", "idle"]];
function by_rank(runs) {
  const traced = runs.filter((run) => run.trace);
  if (traced.length === 0) return null;
  const most = Math.max(...traced.flatMap((run) => run.trace.by_rank.map((rank) => rank.iteration_seconds)));
  const made = [element("p", { class: "note", text: "Means of an iteration; the parts add up to it. Of more than three iterations the first and the last are left out. Idle: no computation, no communication, no wait." }), legend(PARTS.map(([kind, label]) => [`of-${kind}`, label]))];
  for (const run of traced) {
    const ranks = run.trace.by_rank;
    made.push(element("h3", { text: run.name }), bars(ranks.map((rank) => ({ name: `rank ${rank.rank}`, value: seconds(rank.iteration_seconds), parts: PARTS.map(([kind, label]) => [kind, label, rank[`${kind}_seconds`]]) })), seconds, { most }),
      element("details", {}, element("summary", { text: `Numbers of ${run.name}` }), table(["rank", "iterations", "iteration_seconds", "computation_seconds", "hidden_seconds", "exposed_seconds", "idle_seconds", "communication_seconds"].map((name) => ({ name })),
        ranks.map(({ exposed, ...numbers }) => numbers), { caption: `Where the time of ${run.name} goes` })));
  }
  return made;
}

function by_collective(runs) {
  const traced = runs.filter((run) => run.trace?.by_collective.length > 0);
  if (traced.length === 0) return null;
  const made = [element("p", { class: "note", text: "Means of an iteration of a rank. Where several collectives are on the wire at once, exposed time counts for each." }), legend([["of-hidden", "hidden under computation"], ["of-exposed", "exposed"]])];
  for (const run of traced) {
    const rows = run.trace.by_collective;
    made.push(element("h3", { text: run.name }), bars(rows.map((one) => ({ name: one.name, value: one.seconds > 0 ? `${seconds(one.seconds)}, ${percent(1 - one.exposed_seconds / one.seconds)}\u00a0hidden` : "0 s",
      parts: [["hidden", "hidden", one.seconds - one.exposed_seconds], ["exposed", "exposed", one.exposed_seconds]] })), seconds),
      element("details", {}, element("summary", { text: `Numbers of ${run.name}` }), table([{ name: "name", label: "collective" }, { name: "bucket" }, { name: "seconds", label: "time" }, { name: "exposed_seconds" }], rows, { caption: `Collectives of ${run.name}` })));
  }
  return made;
}

function stragglers(runs) {
  const traced = runs.filter((run) => run.trace && run.trace.summary.ranks > 1);
  if (traced.length === 0) return null;
  return traced.map((run) => {
    const slow = run.trace.stragglers, of = new Map(run.trace.by_rank.map((rank) => [rank.rank, rank]));
    const names = new Set(slow.map((one) => one.rank));
    const others = run.trace.by_rank.filter((rank) => !names.has(rank.rank)).map((rank) => rank.exposed_seconds);
    return element("div", {}, element("h3", { text: run.name }), slow.length === 0 ? element("p", { text: "No rank computes a tenth longer than the median of ranks." }) :
      element("p", { text: `${count_of(slow.length, "rank")} ${slow.length === 1 ? "computes" : "compute"} at least a tenth longer than the median of ranks. The others are exposed for ${seconds(others.length ? median(others) : 0)} in an iteration, the slowest for ${seconds(of.get(slow[0].rank).exposed_seconds)}.` }),
      slow.length === 0 ? null : table([{ name: "rank" }, { name: "slowdown", label: "computes, of the median", write: (value) => `${value.toFixed(2)} ×` }, { name: "computing", write: seconds }, { name: "exposed_seconds" }],
        slow.map((one) => ({ ...one, computing: of.get(one.rank).computation_seconds + of.get(one.rank).hidden_seconds, exposed_seconds: of.get(one.rank).exposed_seconds })), { caption: `Stragglers of ${run.name}` }));
  });
}

function longest(runs) {
  const traced = runs.filter((run) => run.trace);
  if (traced.length === 0) return null;
  const made = [element("p", { class: "note", text: "Seconds of spans of one name, in an iteration of a rank. Spans that run at once count each." })];
  for (const run of traced) {
    const columns = [{ name: "name" }, { name: "activity" }, { name: "count", label: "spans" }, { name: "seconds", label: "time" }];
    const rows = run.trace.by_name;
    made.push(element("h3", { text: run.name }), table(columns, rows.slice(0, 10), { caption: `The longest of ${run.name}` }));
    if (rows.length > 10) made.push(element("details", {}, element("summary", { text: `All ${rows.length}` }), table(columns, rows, { caption: `Spans of ${run.name}` })));
    if (run.trace.summary.slowest_waits.length > 0) made.push(table([{ name: "name", label: "what was waited for" }, { name: "seconds", label: "exposed" }], run.trace.summary.slowest_waits, { caption: `The slowest waits of ${run.name}` }));
  }
  return made;
}

// Curves of what several runs may have: `points_of(run, result)` in order of steps.
function steps(runs) {
  const curves = [];
  const add = (title, upwards, series, note) => { if (series.some((one) => one.points.length > 1)) curves.push(curve({ title, across: "step", upwards, note, series: series.filter((one) => one.points.length > 1) })); };
  const results = runs.flatMap(results_of);
  const list_of = (field, change = (value) => value) => results.filter(({ result }) => Array.isArray(result[field]) && result[field].every((one) => typeof one === "number"))
    .map(({ name, result }) => ({ name, points: result[field].map((value, index) => [index, change(value)]) }));
  const metrics_of = (field) => runs.filter((run) => run.metrics).flatMap((run) => run.metrics.map((lines) => ({
    name: run.metrics.length > 1 ? `${run.name}, rank ${lines[0].rank}` : run.name, points: lines.filter((line) => typeof line[field] === "number").map((line) => [line.iteration, line[field]]) }))).slice(0, 12);
  const both = (one, other) => { const known = new Set(one.map((series) => series.name)); return [...one, ...other.map((series) => (known.has(series.name) ? { ...series, name: `${series.name} (metrics)` } : series))]; };
  add("Loss", digits, list_of("losses"), "Mean over ranks.");
  add("Seconds of a step", seconds, both(list_of("step_seconds"), metrics_of("seconds")));
  add("Steps per second", (value) => `${digits(value)}/s`, both(list_of("step_seconds", (value) => (value > 0 ? 1 / value : null)), metrics_of("seconds").map((one) => ({ ...one, points: one.points.map(([x, y]) => [x, y > 0 ? 1 / y : null]) }))));
  add("Exposed communication of a step", seconds, metrics_of("exposed_seconds"));
  add("Communication that was hidden", percent, metrics_of("overlap"));
  add("Memory in use", bytes, metrics_of("resident_bytes"));
  return curves.length === 0 ? null : [element("p", { class: "note keys", text: "Dragging across a curve zooms, a double click shows all." }), element("div", { class: "curves" }, ...curves)];
}

function tuning(runs) {
  const tuned = runs.flatMap(results_of).map(({ name, result }) => ({ name, found: Array.isArray(result.trials) ? result : result.tuning })).filter(({ found }) => Array.isArray(found?.trials) && found.trials.length > 0);
  if (tuned.length === 0) return null;
  const time_of = (trial) => (typeof trial.seconds === "number" ? trial.seconds : iteration_of(trial));
  const made = tuned.flatMap(({ name, found }) => {
    const rows = found.trials.map((trial, index) => ({ trial: index + 1, ...flat(trial) }));
    const least = found.trials.reduce((best, trial, index) => (time_of(trial) < time_of(found.trials[best]) ? index : best), 0);
    const said = is_object(found.choice) ? flat(found.choice) : { choice: found.choice };
    const columns = [...new Set(rows.flatMap(Object.keys))].map((column) => ({ name: column, write: column === "trial" ? String : undefined }));
    return [element("h3", { text: name }), element("p", { text: `Chosen: ${Object.entries(said).filter(([, value]) => value !== undefined && value !== null).map(([key, value]) => `${key === "choice" ? "" : `${words_of(key)} `}${typeof value === "number" ? writer_of(key)(value) : value}`).join(", ")}. The fastest trial is bold.` }),
      element("div", { class: "curves" }, curve({ title: "Seconds of an iteration, by trial", across: "trial", upwards: seconds, series: [{ name, points: found.trials.map((trial, index) => [index + 1, time_of(trial)]) }] })),
      table(columns, rows, { caption: `Trials of ${name}`, best: least })];
  });
  return made;
}

function files(runs) {
  const made = [];
  for (const run of runs.filter((one) => one.results !== undefined)) {
    const list = results_of(run), timed = list.filter(({ result }) => typeof result.compute_seconds === "number" && typeof result.exposed_communication_seconds === "number");
    made.push(element("h3", { text: run.name }));
    if (timed.length > 0 && timed.length <= 200) {
      made.push(legend([["of-computation", "computation"], ["of-exposed", "exposed communication"], ...(timed.some(({ result }) => result.bound_seconds) ? [["", "bound of the policy (mark)", "var(--ink)"]] : [])]),
        bars(timed.map(({ name, result }) => ({ name: list.length > 1 ? name.slice(run.name.length + 2) : result.policy ?? name, value: seconds(Number.isFinite(iteration_of(result)) ? iteration_of(result) : result.compute_seconds + result.exposed_communication_seconds), mark: result.bound_seconds,
          parts: [["computation", "computation", result.compute_seconds], ["exposed", "exposed communication", result.exposed_communication_seconds]] })), seconds));
    }
    const busy = list.filter(({ result }) => typeof result.busbw_bytes_per_second === "number");
    if (busy.length > 1) {
      const series = new Map();
      for (const { result } of busy) {
        const name = [result.backend, result.operation].filter(Boolean).join(", ");
        series.set(name, [...(series.get(name) ?? []), [Math.log2(result.bytes), result.busbw_bytes_per_second]]);
      }
      made.push(curve({ title: "Bus bandwidth by size", across: "log2 of bytes", upwards: (value) => `${bytes(value)}/s`, logarithmic: true, series: [...series].map(([name, points]) => ({ name, points: points.sort((a, b) => a[0] - b[0]) })) }));
    }
    made.push(table_of_results(run.results));
  }
  return made.length === 0 ? null : made;
}
