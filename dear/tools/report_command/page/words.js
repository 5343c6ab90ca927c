// Elements, and numbers as people read them. All text of files goes through textContent.
function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Three digits, as `dear` prints them.
function digits(value) {
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 1000 ? Math.ceil(Math.log10(size)) : 3)));
}

function scaled(value, units, base) {
  let unit = units.findIndex((one) => Math.abs(value) >= one[0]);
  if (unit < 0) unit = units.length - 1;
  return `${digits(value / units[unit][0])}\u00a0${units[unit][1]}`;
}
const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "bytes"]];
function seconds(value) { return Math.abs(value) < 5e-13 ? "0 s" : scaled(value, SECONDS); }
function bytes(value) { return value === 0 ? "0 bytes" : scaled(value, BYTES); }
function percent(value) { return `${(100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0)}\u00a0%`; }

// How a number of this name is written: names of fields end in their units.
function writer_of(name) {
  if (/bytes_per_second|bandwidth/.test(name)) return (value) => `${bytes(value)}/s`;
  if (/seconds(_|\.|$)/.test(name)) return seconds;
  if (/bytes(_|\.|$)/.test(name)) return bytes;
  if (/fraction$|^overlap$|share$/.test(name)) return percent;
  return digits;
}
function words_of(name) { return name.replace(/^(.*)_seconds(\.|$)/, "$1$2").replaceAll("_", " ").replaceAll(".", ", ") || name; }

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length === 0 ? NaN : sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
function count_of(number, word) { return `${number} ${word}${number === 1 ? "" : "s"}`; }
function is_object(value) { return typeof value === "object" && value !== null && !Array.isArray(value); }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }
function series_colour(index) { return colour(`series-${index % 6}`); }

// Browsers say so before the style is that of paper; the timelines and curves that are then drawn are to be light.
function is_printing() { return document.documentElement.classList.contains("printing"); }
for (const event of ["beforeprint", "afterprint"])
  addEventListener(event, () => { document.documentElement.classList.toggle("printing", event === "beforeprint"); });

const hint = {
  show(text, x, y) {
    const box = document.getElementById("hint");
    box.textContent = text;
    box.hidden = false;
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${y + 18 + box.offsetHeight > innerHeight ? Math.max(4, y - box.offsetHeight - 10) : y + 18}px`;
  },
  hide() { document.getElementById("hint").hidden = true; },
};
