// Tables and bars. A cell of a number keeps the number of the file in data-value.
function cell(value, { tag = "td", name = "", text = undefined, kind = "" } = {}) {
  if (typeof value === "number") {
    const shown = text ?? writer_of(name)(value);
    return element(tag, { text: shown, "data-value": String(value), title: String(value), class: kind });
  }
  const words = value === null || value === undefined ? "–" : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  return element(tag, { text: text ?? words, class: value === null || value === undefined ? kind : `text ${kind}` });
}

// `columns`: [{name, label, write}]; `rows`: objects by name.
function table(columns, rows, { caption = "", best = -1 } = {}) {
  const of_text = (column) => rows.every((row) => typeof row[column.name] !== "number");
  const head = element("tr", {}, ...columns.map((column) =>
    element("th", { scope: "col", text: column.label ?? words_of(column.name), class: of_text(column) ? "text" : "" })));
  const body = rows.map((row, index) => element("tr", { class: index === best ? "best" : "" }, ...columns.map((column) => {
    const value = row[column.name];
    return cell(value, { name: column.name, text: column.write && typeof value === "number" ? column.write(value) : undefined });
  })));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "Table" },
    element("table", {}, caption ? element("caption", { text: caption }) : null, element("thead", {}, head), element("tbody", {}, ...body)));
}

function legend(entries) {
  return element("ul", { class: "legend" }, ...entries.map(([kind, label, background]) =>
    element("li", {}, element("span", { class: `swatch ${kind}`, style: background ? `background: ${background}` : "" }), label)));
}

// `rows`: [{name, parts: [[kind, label, value]], value, mark}], all on one scale.
function bars(rows, write, { most = undefined } = {}) {
  const whole = (row) => row.parts.reduce((sum, part) => sum + part[2], 0);
  const end = most ?? Math.max(...rows.map((row) => Math.max(whole(row), row.mark ?? 0)), 1e-300);
  const made = element("div", { class: `bars${rows.length > 24 ? " crowded" : ""}` });
  if (rows.length > 24) made.tabIndex = 0;
  for (const row of rows) {
    const text = `${row.name}\n${row.parts.map(([, label, value]) => `${label}: ${write(value)}`).join("\n")}`;
    const bar = element("div", { class: "bar", role: "img", "aria-label": text.replaceAll("\n", ", "),
      onpointermove: (event) => hint.show(text, event.clientX, event.clientY), onpointerleave: hint.hide },
      ...row.parts.filter((part) => part[2] > 0).map(([kind, , value]) =>
        element("i", { class: `of-${kind}`, style: `width: ${Math.min(100, 100 * value / end)}%` })));
    if (row.mark) bar.append(element("span", { class: "mark", style: `left: ${Math.min(100, 100 * row.mark / end)}%` }));
    made.append(element("div", { class: "name", text: row.name }), bar, element("div", { class: "value", text: row.value }));
  }
  return made;
}

// Numbers and texts of an object, those of objects in it by "outer.inner".
function flat(object, before = "") {
  const result = {};
  for (const [name, value] of Object.entries(object)) {
    if (is_object(value)) Object.assign(result, flat(value, `${before}${name}.`));
    else if (!Array.isArray(value)) result[before + name] = value;
    else if (value.length > 0 && value.length <= 4 && value.every((one) => typeof one === "string")) result[before + name] = value.join(", ");
  }
  return result;
}

// Lists of objects in an object, by their way.
function lists_in(object, before = "") {
  const result = [];
  for (const [name, value] of Object.entries(object)) {
    if (is_object(value)) result.push(...lists_in(value, `${before}${name}.`));
    else if (Array.isArray(value) && value.length > 0 && value.every(is_object)) result.push([before + name, value]);
  }
  return result;
}

const LONGEST_TABLE = 500;
function table_of_list(list, caption) {
  const rows = list.map((one) => flat(one));
  const names = [...new Set(rows.flatMap(Object.keys))].filter((name) => name !== "dear_version" && name !== "modelled");
  const shown = rows.slice(0, LONGEST_TABLE);
  const made = element("div", {}, table(names.map((name) => ({ name })), shown, { caption }));
  if (rows.length > shown.length) made.append(element("p", { class: "note", text: `The first ${shown.length} of ${rows.length} rows.` }));
  list.forEach((one, index) => {
    for (const [way, inner] of lists_in(one)) {
      const label = one.policy ?? one.model ?? one.name ?? one.algorithm ?? `row ${index + 1}`;
      if (index < 40) made.append(element("details", {}, element("summary", { text: `${words_of(way)} of ${label} (${inner.length})` }), table_of_list(inner, "")));
    }
  });
  return made;
}

// Any JSON results.
function table_of_results(json) {
  if (Array.isArray(json)) return table_of_list(json, "");
  const scalars = Object.entries(flat(json)).filter(([name]) => name !== "dear_version" && name !== "modelled");
  const made = element("div", {}, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" }, element("table", {},
    ...scalars.map(([name, value]) => element("tr", {}, element("th", { scope: "row", class: "text", text: words_of(name) }), cell(value, { name }))))));
  for (const [way, list] of lists_in(json)) made.append(element("h3", { text: words_of(way) }), table_of_list(list, ""));
  return made;
}
