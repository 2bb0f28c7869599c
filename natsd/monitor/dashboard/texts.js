// How numbers, times and names are written. Everything here returns plain text: it is put on the
// page by `textContent` only.

const DECIMAL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SUFFIXES = ["", "k", "M", "G", "T", "P"];

/** Return a number in at most five characters or so: 950, 12.3k, 4.56M. */
export function short(value, base = 1000, suffixes = SUFFIXES) {
  if (value === null || value === undefined) return "–";
  let size = Math.abs(value), step = 0;
  while (size >= base * 0.9995 && step < suffixes.length - 1) { size /= base; step += 1; }
  if (step === 0) return DECIMAL.format(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return (value < 0 ? "-" : "") + size.toFixed(digits) + suffixes[step];
}

/** Return a number of bytes: 512 B, 1.50 KiB, 20.0 MiB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  return short(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]) + (Math.abs(value) < 1023.5 ? " B" : "");
}

/** Return a whole number with all its digits: 1,234,567. */
export function whole(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

/** Return a span of seconds by its two largest units: 3d 4h, 12m 5s. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  let left = Math.max(Math.floor(seconds), 0);
  const parts = [];
  for (const [name, size] of units) {
    if (left >= size || (name === "s" && !parts.length)) {
      parts.push(Math.floor(left / size) + name);
      left %= size;
    } else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Return how long ago a time was, by the clock of the server. */
export function ago(time, now) {
  if (!time) return "–";
  return span((Date.parse(now) - Date.parse(time)) / 1000);
}

/** Return the time of day of Unix seconds. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function percent(share) {
  return share > 0 ? (share * 100).toFixed(share < 0.1 ? 1 : 0) + "%" : "–";
}

/** Return a new element; its text can hold no markup. */
export function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

/** Change an element's text only if it differs, so that a selection survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
