// The charts of the last minutes: small SVG drawings over the samples of /summaryz.
//
// - Every chart is a slider over time: the pointer or the arrow keys choose a moment, and all charts
//   tell their values at that moment.
// - Samples are columns of equal length, oldest first (see `History`).

import { bytes, clock, element, setText, short, span, whole } from "./texts.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 100;
const SLOTS_MIN = 30;  // a young history is drawn as wide as this many samples

const rate = (value) => short(value) + "/s";
const byteRate = (value) => bytes(value) + "/s";
const share = (value) => (value ?? 0).toFixed(value < 10 ? 1 : 0) + "%";
const milliseconds = (value) => (value ?? 0).toFixed(1) + " ms";

/** One row a chart: title, whether it is large, and its series: field, label, how it is written. */
export const CHARTS = [
  { title: "Messages", large: true, series: [["in_msgs", "in", rate], ["out_msgs", "out", rate]] },
  { title: "Traffic", large: true, series: [["in_bytes", "in", byteRate], ["out_bytes", "out", byteRate]] },
  { title: "Connections", series: [["connections", "", whole]], also: ["subscriptions", "subscriptions"] },
  { title: "CPU, of one core", series: [["cpu", "", share]], least: 10 },
  { title: "Memory", series: [["mem", "", bytes]] },
  { title: "Stored on disk", series: [["storage", "", bytes]], limit: "max_storage" },
  { title: "Event loop lag", series: [["lag_ms", "", milliseconds]], least: 5 },
  { title: "Slow consumers", series: [["slow_consumers", "", whole]], least: 1, total: "slow_consumers" },
];

export class History {
  constructor() { this.clear(); }

  clear() { this.last = 0; this.kept = 300; this.intervalS = 2; this.columns = {}; }

  /** Append the samples of an answer. */
  add(answer) {
    this.kept = answer.samples_max;
    this.intervalS = answer.interval_s;
    this.last = answer.last;
    for (const [field, values] of Object.entries(answer)) {
      if (!Array.isArray(values)) continue;
      this.columns[field] = (this.columns[field] ?? []).concat(values).slice(-this.kept);
    }
  }

  /** Return the columns of the last seconds. */
  latest(seconds) {
    const count = Math.round(seconds / this.intervalS);
    return Object.fromEntries(Object.entries(this.columns).map(([field, values]) => [field, values.slice(-count)]));
  }
}

/** All charts, with the moment that they show: an index into the samples; null: the latest. */
export class Charts {
  constructor(parent) {
    this.moment = null;
    this.columns = {};
    this.slots = 300;
    this.cards = CHARTS.map((chart) => new Chart(chart, this));
    for (const card of this.cards) parent.append(card.card);
  }

  draw(columns, slots, intervalS, summary) {
    this.intervalS = intervalS;
    this.columns = columns;
    this.summary = summary;
    const count = (columns.time ?? []).length;
    this.slots = Math.min(slots, Math.max(count, SLOTS_MIN));
    if (this.moment !== null) this.moment = Math.min(this.moment, count - 1);
    for (const card of this.cards) card.draw();
  }

  choose(moment) {
    const count = (this.columns.time ?? []).length;
    this.moment = moment === null || !count ? null : Math.max(0, Math.min(count - 1, moment));
    for (const card of this.cards) card.tell();
  }
}

class Chart {
  constructor(chart, all) {
    this.chart = chart;
    this.all = all;
    this.card = element("div", { class: "card chart" + (chart.large ? " large" : "") });
    this.card.append(element("h2", {}, chart.title));
    this.figures = chart.series.map(([field, label], index) => {
      const figure = element("p", { class: `figure line${index}` });
      if (label) figure.append(element("span", { class: "key" }, label));
      figure.append(element("span", { class: "value" }, "–"));
      return figure;
    });
    const row = element("div", { class: "figures" });
    row.append(...this.figures);
    this.note = element("p", { class: "note" });
    this.plot = element("div", {
      class: "plot", role: "slider", tabindex: "0", "aria-label": chart.title + ", moment shown",
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no samples yet",
    });
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const y of [25, 50, 75]) this.svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    this.lines = chart.series.map((_, index) => {
      const area = shape("path", { class: `area line${index}` });
      const line = shape("path", { class: `stroke line${index}` });
      this.svg.append(area, line);
      return { area, line };
    });
    this.cursor = shape("line", { class: "cursor", y1: 0, y2: HEIGHT });
    this.svg.append(this.cursor);
    this.scale = element("span", { class: "scale" });
    this.plot.append(this.svg, this.scale);
    this.begin = element("span");
    this.axis = element("p", { class: "axis", "aria-hidden": "true" });
    this.axis.append(this.begin, element("span", {}, "now"));
    this.card.append(row, this.note, this.plot);
    if (chart.large) this.card.append(this.axis);
    this.listen();
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      const slot = Math.round(((event.clientX - box.left) / box.width) * (this.all.slots - 1));
      this.all.choose(slot - (this.all.slots - this.count()));
    });
    this.plot.addEventListener("pointerleave", () => this.all.choose(null));
    this.plot.addEventListener("blur", () => this.all.choose(null));
    this.plot.addEventListener("keydown", (event) => {
      const last = this.count() - 1, at = this.all.moment ?? last;
      const to = {
        ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
        PageDown: at - 15, PageUp: at + 15, Home: 0, End: last, Escape: null,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.all.choose(to);
    });
  }

  count() { return (this.all.columns.time ?? []).length; }

  draw() {
    const { slots, columns } = this.all;
    const every = this.chart.series.map(([field]) => columns[field] ?? []);
    const most = Math.max(this.chart.least ?? 0, ...every.flat().map((value) => value ?? 0));
    const top = ceiling(most, this.chart.series[0][2] === bytes || this.chart.series[0][2] === byteRate) || 1;
    every.forEach((values, index) => {
      const points = values.map((value, at) => {
        const x = ((slots - values.length + at) / (slots - 1)) * WIDTH;
        return [x.toFixed(1), (HEIGHT - ((value ?? 0) / top) * (HEIGHT - 4)).toFixed(1)];
      });
      const path = points.map(([x, y], at) => `${at ? "L" : "M"}${x} ${y}`).join("");
      this.lines[index].line.setAttribute("d", path);
      this.lines[index].area.setAttribute("d", points.length ? `${path}V${HEIGHT}H${points[0][0]}Z` : "");
    });
    setText(this.scale, this.chart.series[0][2](top));
    setText(this.begin, `${span((slots - 1) * this.all.intervalS)} ago`);
    this.tell();
  }

  /** Write the values of the chosen moment. */
  tell() {
    const { columns, moment, slots, summary } = this.all;
    const count = this.count(), at = moment ?? count - 1;
    const told = this.chart.series.map(([field, label, written], index) => {
      const values = columns[field] ?? [];
      let value = written(values[at]);
      if (this.chart.total && moment === null) value = whole(summary?.totals[this.chart.total]);
      setText(this.figures[index].lastChild, count ? value : "–");
      return `${label} ${value}`.trim();
    });
    setText(this.note, count ? this.noteText(at) : "");
    this.plot.setAttribute("aria-valuemax", String(Math.max(count - 1, 0)));
    this.plot.setAttribute("aria-valuenow", String(Math.max(at, 0)));
    this.plot.setAttribute("aria-valuetext", count ? `${clock(columns.time[at])}: ${told.join(", ")}` : "no samples yet");
    const isShown = moment !== null && count > 0;
    this.cursor.classList.toggle("shown", isShown);
    if (isShown) {
      const x = String(((slots - count + at) / (slots - 1)) * WIDTH);
      this.cursor.setAttribute("x1", x);
      this.cursor.setAttribute("x2", x);
    }
  }

  noteText(at) {
    const { columns, moment, summary } = this.all;
    if (moment !== null) return `at ${clock(columns.time[at])}`;
    if (this.chart.also) return `${whole(columns[this.chart.also[0]][at])} ${this.chart.also[1]}`;
    if (this.chart.limit) {
      const most = summary?.jetstream?.[this.chart.limit];
      return summary?.jetstream ? (most > 0 ? `of ${bytes(most)}` : "") : "JetStream is off";
    }
    if (this.chart.total) return "since the start";
    const [field, , written] = this.chart.series.at(-1);
    const peaks = this.chart.series.map(([each]) => Math.max(...columns[each]));
    return "peak " + (this.chart.large ? this.chart.series.map(([, label, how], index) => `${label} ${how(peaks[index])}`).join(" · ") : written(Math.max(...columns[field])));
  }
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Return a round number that is not less: 1, 2 or 5 times a power of ten, or a power of two. */
function ceiling(value, isBytes) {
  if (value <= 0) return 0;
  if (isBytes) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.9999);
}
