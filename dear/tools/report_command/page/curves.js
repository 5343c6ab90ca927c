// Curves, by dygraphs where the page has it. Their numbers are in a table below each, for keyboards, readers and printers.
const drawn = [];

// `series`: [{name, points: [[x, y], ...]}]; `upwards` writes y.
function curve({ title, across, series, upwards, logarithmic = false, note = "" }) {
  const all = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const by_x = series.map((one) => new Map(one.points));
  const rows = all.map((x) => [x, ...by_x.map((points) => points.get(x) ?? null)]);
  const every = Math.ceil(rows.length / LONGEST_TABLE);
  const shown = rows.filter((_, index) => index % every === 0);
  const columns = [{ name: "x", label: across, write: digits }, ...series.map((one, index) => ({ name: `y${index}`, label: one.name, write: upwards }))];
  const numbers = element("details", {}, element("summary", { text: every > 1 ? `Each ${every}th of ${rows.length} values` : "Values" }),
    table(columns, shown.map((row) => Object.fromEntries(row.map((value, index) => [index === 0 ? "x" : `y${index - 1}`, value]))), { caption: title }));
  const plot = element("div", { class: "plot", role: "img", "aria-label": `${title}; the values are in the table below` });
  const read = element("div", { class: "said" });
  const made = element("figure", { class: "curve" }, element("h3", { text: title }), note ? element("p", { class: "note", text: note }) : null,
    legend(series.map((one, index) => ["", one.name, `var(--series-${index % 6})`])), plot, read, numbers);
  if (typeof Dygraph === "undefined" || rows.length === 0) { plot.remove(); read.remove(); numbers.open = true; return made; }
  const look = () => ({ colors: series.map((_, index) => series_colour(index)), gridLineColor: colour("rule"), axisLineColor: colour("muted") });
  drawn.push({ plot, look, draw: () => new Dygraph(plot, rows, {
    ...look(),
    labels: ["x", ...series.map((_, index) => `y${index}`)], xlabel: across, legend: "never",
    strokeWidth: 1.6, drawPoints: rows.length <= 60, pointSize: 2.5, connectSeparatedPoints: true, logscale: logarithmic,
    axisLabelFontSize: 12, digitsAfterDecimal: 4,
    axes: { y: { axisLabelFormatter: (value) => upwards(value), axisLabelWidth: 68 }, x: { axisLabelFormatter: (value) => String(Number(value.toPrecision(6))) } },
    highlightCallback: (_, x, points) => { read.textContent = `${across} ${digits(x)}: ${points.map((point) => `${series[Number(point.name.slice(1))].name} ${upwards(point.yval)}`).join(", ")}`; },
    unhighlightCallback: () => { read.textContent = ""; },
  }), graph: null });
  return made;
}

function draw_curves() {
  for (const one of drawn) {
    if (one.graph) one.graph.destroy();
    one.graph = one.draw();
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_curves);

// Chromium prints a canvas of dygraphs empty that was made or resized for paper, so only the colours change.
for (const event of ["beforeprint", "afterprint"])
  addEventListener(event, () => { for (const { graph, look } of drawn) if (graph) graph.updateOptions(look()); });
