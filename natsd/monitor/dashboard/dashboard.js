// The dashboard: asks /summaryz once a second while the page is visible, and draws the answer.
//
// - It only reads. Names that clients chose reach the page by `textContent` and attributes alone.
// - While the server does not answer, the last state stays on the page, marked as old.

import { CHARTS, Charts, History } from "./charts.js";
import { Table, TABLES } from "./tables.js";
import { bytes, clock, element, setText, span, whole } from "./texts.js";

const EVERY_MS = 1000;
const RETRY_MS = 2000;
const PATIENCE_MS = 10000;
const THEMES = ["auto", "light", "dark"];
const PAST_ROWS = 20;

const find = (id) => document.getElementById(id);
const history = new History();
const charts = new Charts(find("charts"));
const columns = [element("div", { class: "column" }), element("div", { class: "column" })];
const tables = TABLES.map((table) => new Table(table, table.wide ? find("tables") : columns[table.column]));
find("tables").append(...columns);

let summary = null;
let isPaused = false;
let timer = 0;

async function ask() {
  const url = new URL(`./summaryz?after=${history.last}`, document.baseURI);
  url.username = url.password = ""; // fetch refuses the login of a page's URL; the browser sends it all the same
  const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  return answer.json();
}

async function update() {
  clearTimeout(timer);
  if (isPaused || document.hidden) return;
  let pause = EVERY_MS;
  try {
    let answer = await ask();
    if (summary && answer.server.id !== summary.server.id) {
      history.clear();
      answer = await ask();
    }
    if (isPaused) return;
    summary = answer;
    history.add(answer.history);
    draw();
    tell("live", "Live");
  } catch (error) {
    pause = RETRY_MS;
    if (!isPaused) tell("lost", "Connection lost");
    find("state").title = String(error);
  }
  clearTimeout(timer);
  timer = setTimeout(update, pause);
}

function tell(state, text) {
  const node = find("state");
  node.dataset.state = state;
  document.body.classList.toggle("old", state === "lost");
  setText(node, text);
}

function draw() {
  const { server, jetstream, cluster } = summary;
  setText(find("name"), server.name);
  document.title = `${server.name} · natsd`;
  setText(find("facts"), [
    `natsd ${server.version}, NATS ${server.nats_version}`, `${server.host}:${server.port}`, `up ${span(server.uptime_s)}`,
    `${server.cores} ${server.cores === 1 ? "core" : "cores"}`,
    cluster && `cluster ${cluster.name} of ${whole(cluster.servers)}`,
    server.tls_required && "TLS", server.auth_required && "login required",
    jetstream ? `JetStream: ${whole(jetstream.messages)} messages, ${bytes(jetstream.storage + jetstream.memory)}` : "JetStream off",
  ].filter(Boolean).join(" · "));
  drawProblems(summary.problems);
  drawCharts();
  for (const table of tables) {
    const { id } = table.table;
    table.card.hidden = (!jetstream && ["streams", "consumers"].includes(id)) || (!cluster && id === "routes");
    table.show(summary[table.table.id], server.now);
  }
}

function drawProblems(problems) {
  const list = find("problems");
  list.hidden = !problems.length;
  if (list.dataset.shown === problems.join("\n")) return;
  list.dataset.shown = problems.join("\n");
  list.replaceChildren(...problems.map((each) => element("li", {}, each)));
}

function drawCharts() {
  const seconds = Number(find("span").value);
  const columns = history.latest(seconds);
  charts.draw(columns, Math.round(seconds / history.intervalS), history.intervalS, summary);
  if (find("past").closest("details").open) drawPast(columns);
}

/** Write the samples as a table, in at most PAST_ROWS rows, the newest first. */
function drawPast(columns) {
  const series = CHARTS.flatMap((chart) => chart.series.map((each) => [chart.title, ...each]));
  const head = element("tr");
  head.append(element("th", { scope: "col" }, "Time"));
  for (const [title, , label] of series) head.append(element("th", { scope: "col", class: "number" }, `${title} ${label}`.trim()));
  const count = (columns.time ?? []).length, step = Math.max(Math.ceil(count / PAST_ROWS), 1);
  const rows = [];
  for (let at = count - 1; at >= 0; at -= step) {
    const row = element("tr");
    row.append(element("th", { scope: "row" }, clock(columns.time[at])));
    for (const [, field, , written] of series) row.append(element("td", { class: "number" }, written(columns[field][at])));
    rows.push(row);
  }
  const top = element("thead"), body = element("tbody");
  top.append(head);
  body.append(...rows);
  find("past").replaceChildren(top, body);
}

function pause() {
  isPaused = !isPaused;
  find("pause").setAttribute("aria-pressed", String(isPaused));
  setText(find("pause"), isPaused ? "Resume" : "Pause");
  if (isPaused) tell("paused", "Paused");
  else update();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(find("theme"), `Theme: ${theme}`);
  try { localStorage.setItem("theme", theme); } catch { /* the browser keeps nothing */ }
}

function keptTheme() {
  try { return THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto"; } catch { return "auto"; }
}

find("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
find("pause").addEventListener("click", pause);
find("span").addEventListener("change", () => summary && drawCharts());
find("filter").addEventListener("input", (event) => { for (const table of tables) table.search(event.target.value.trim()); });
find("past").closest("details").addEventListener("toggle", () => summary && drawCharts());
document.addEventListener("visibilitychange", update);
document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape" && event.target === find("filter")) {
    find("filter").value = "";
    find("filter").dispatchEvent(new Event("input"));
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); find("filter").focus(); }
  if (event.key === "p") pause();
});

setTheme(keptTheme());
update();
