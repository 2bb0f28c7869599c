// The tables: sortable, filtered, and updated in place, so that focus and selection stay.

import { ago, bytes, element, percent, setText, short, span, whole } from "./texts.js";

const ROWS_SHOWN = 10;

const rate = (value) => (value === null || value === undefined ? "–" : value === 0 ? "0" : short(value));
const byteRate = (value) => (value === null || value === undefined ? "–" : value === 0 ? "0" : bytes(value));
const sum = (...values) => values.reduce((total, value) => total + (value ?? 0), 0);
const joined = (...texts) => texts.filter(Boolean).join(" · ");
const age = (time, now) => (time ? Date.parse(now) - Date.parse(time) : null);
const named = (row) => row.name || `cid ${row.cid}`;
const address = (row) => (row.ip.includes(":") ? `[${row.ip}]:${row.port}` : `${row.ip}:${row.port}`);

/**
 * The tables. `key` says which row is which from one answer to the next. A column has a title, the
 * value it is sorted by, the text of a cell, and perhaps `under` (a second line), `full` (a share
 * that is drawn as a bar) and `mark` (`warn` or `bad`). Columns without `text` hold texts. A table
 * that is not `wide` stands in a column of the page: 0 or 1.
 */
export const TABLES = [
  {
    id: "connections", title: "Connections", wide: true, all: ["./connz?subs=1", "all at /connz"],
    key: (row) => row.cid, sort: 1,
    columns: [
      { title: "Connection", value: named, under: (row) => joined(address(row), row.lang && `${row.lang} ${row.version}`, row.user && `user ${row.user}`, row.tls && "TLS") },
      { title: "Out msg/s", value: (row) => row.out_msgs_rate, text: (row) => rate(row.out_msgs_rate) },
      { title: "In msg/s", value: (row) => row.in_msgs_rate, text: (row) => rate(row.in_msgs_rate) },
      { title: "Out B/s", value: (row) => row.out_bytes_rate, text: (row) => byteRate(row.out_bytes_rate) },
      { title: "In B/s", value: (row) => row.in_bytes_rate, text: (row) => byteRate(row.in_bytes_rate) },
      { title: "Pending", value: (row) => row.pending_bytes, text: (row) => byteRate(row.pending_bytes), mark: (row) => row.pending_bytes > 1048576 && "warn" },
      { title: "Subs", value: (row) => row.subscriptions, text: (row) => whole(row.subscriptions) },
      { title: "RTT", value: (row) => row.rtt_ms, text: (row) => (row.rtt_ms ? `${row.rtt_ms.toFixed(2)} ms` : "–") },
      { title: "Idle", value: (row) => row.idle_s, text: (row) => span(row.idle_s) },
      { title: "Since", value: (row, now) => age(row.start, now), text: (row, now) => ago(row.start, now) },
      { title: "Account", value: (row) => row.account },
    ],
  },
  {
    id: "routes", title: "Routes", wide: true, all: ["./routez?subs=1", "all at /routez"],
    key: (row) => row.rid, sort: 1, empty: "There is no route to another server of the cluster.",
    columns: [
      { title: "Server", value: (row) => row.remote_name || row.remote_id, under: (row) => joined(`rid ${row.rid}`, address(row), row.did_solicit ? "dialed from here" : "dialed from there", row.account && `account ${row.account}`, row.tls && "TLS") },
      { title: "Out msg/s", value: (row) => row.out_msgs_rate, text: (row) => rate(row.out_msgs_rate) },
      { title: "In msg/s", value: (row) => row.in_msgs_rate, text: (row) => rate(row.in_msgs_rate) },
      { title: "Out B/s", value: (row) => row.out_bytes_rate, text: (row) => byteRate(row.out_bytes_rate) },
      { title: "In B/s", value: (row) => row.in_bytes_rate, text: (row) => byteRate(row.in_bytes_rate) },
      { title: "Pending", value: (row) => row.pending_bytes, text: (row) => byteRate(row.pending_bytes), mark: (row) => row.pending_bytes > 1048576 && "warn" },
      { title: "Subs", value: (row) => row.subscriptions, text: (row) => whole(row.subscriptions) },
      { title: "RTT", value: (row) => row.rtt_ms, text: (row) => (row.rtt_ms ? `${row.rtt_ms.toFixed(2)} ms` : "–") },
      { title: "Since", value: (row, now) => age(row.start, now), text: (row, now) => ago(row.start, now) },
      { title: "Compression", value: (row) => row.compression },
    ],
  },
  {
    id: "streams", title: "Streams", wide: true, all: ["./jsz?streams=1", "all at /jsz"],
    key: (row) => `${row.account}\n${row.name}`, sort: 1,
    columns: [
      { title: "Stream", value: (row) => row.name, under: (row) => joined(row.account !== "$G" && row.account, row.description, row.subjects.join(" ") + (row.subjects_more ? ` +${row.subjects_more}` : "")) },
      { title: "Msg/s", value: (row) => row.msgs_rate, text: (row) => rate(row.msgs_rate) },
      { title: "Messages", value: (row) => row.messages, text: (row) => short(row.messages) },
      { title: "Size", value: (row) => row.bytes, text: (row) => bytes(row.bytes) },
      { title: "Full", value: (row) => row.full, text: (row) => percent(row.full), full: (row) => row.full, mark: (row) => row.discard === "new" && (row.full > 0.95 ? "bad" : row.full > 0.8 && "warn") },
      { title: "Consumers", value: (row) => row.consumers, text: (row) => whole(row.consumers) },
      { title: "Subjects", value: (row) => row.num_subjects, text: (row) => short(row.num_subjects) },
      { title: "Newest", value: (row, now) => age(row.last_ts, now), text: (row, now) => ago(row.last_ts, now) },
      { title: "Oldest", value: (row, now) => age(row.first_ts, now), text: (row, now) => ago(row.first_ts, now) },
      { title: "Storage", value: (row) => row.storage },
    ],
  },
  {
    id: "consumers", title: "Consumers", column: 0, all: ["./jsz?consumers=1", "all at /jsz"],
    key: (row) => `${row.account}\n${row.stream}\n${row.name}`, sort: 1,
    columns: [
      { title: "Consumer", value: (row) => row.name, under: (row) => joined(`of ${row.stream}`, row.account !== "$G" && row.account, row.description, row.push ? (row.push_bound ? "push" : "push, nobody listens") : "pull") },
      { title: "Lag", value: (row) => row.num_pending, text: (row) => short(row.num_pending), mark: (row) => row.num_pending > 0 && !row.msgs_rate && "warn" },
      { title: "Unacked", value: (row) => row.num_ack_pending, text: (row) => short(row.num_ack_pending), mark: (row) => row.max_ack_pending > 0 && row.num_ack_pending >= row.max_ack_pending && "bad" },
      { title: "Redelivered", value: (row) => row.num_redelivered, text: (row) => short(row.num_redelivered), mark: (row) => row.num_redelivered > 0 && "warn" },
      { title: "Waiting", value: (row) => row.num_waiting, text: (row) => whole(row.num_waiting) },
      { title: "Msg/s", value: (row) => row.msgs_rate, text: (row) => rate(row.msgs_rate) },
      { title: "Last", value: (row, now) => age(row.last_delivered, now), text: (row, now) => ago(row.last_delivered, now) },
    ],
  },
  {
    id: "subjects", title: "Subjects", column: 1, all: ["./subsz?subs=1", "all at /subsz"],
    key: (row) => `${row.account}\n${row.stream}\n${row.subject}`, sort: 1,
    columns: [
      { title: "Subject", value: (row) => row.subject, under: (row) => joined(row.account !== "$G" && row.account, row.stream ? `into stream ${row.stream}` : row.queue_subscriptions ? `${whole(row.queue_subscriptions)} in queue groups` : "") },
      { title: "Msg/s", value: (row) => row.msgs_rate, text: (row) => rate(row.msgs_rate) },
      { title: "Messages", value: (row) => row.msgs, text: (row) => short(row.msgs) },
      { title: "Subscriptions", value: (row) => row.subscriptions, text: (row) => (row.stream ? "–" : whole(row.subscriptions)) },
    ],
  },
  {
    id: "accounts", title: "Accounts", column: 0, all: ["./accountz", "all at /accountz"],
    key: (row) => row.name, sort: 1,
    columns: [
      { title: "Account", value: (row) => row.name_tag || row.name, under: (row) => joined(row.name_tag && row.name_tag !== row.name && row.name, row.is_system && "system account", row.jetstream && `${whole(row.streams)} streams`) },
      { title: "Msg/s", value: (row) => sum(row.in_msgs_rate, row.out_msgs_rate), text: (row) => rate(row.in_msgs_rate === null ? null : sum(row.in_msgs_rate, row.out_msgs_rate)) },
      { title: "B/s", value: (row) => sum(row.in_bytes_rate, row.out_bytes_rate), text: (row) => byteRate(row.in_bytes_rate === null ? null : sum(row.in_bytes_rate, row.out_bytes_rate)) },
      { title: "Connections", value: (row) => row.connections, text: (row) => whole(row.connections) },
      { title: "Subs", value: (row) => row.subscriptions, text: (row) => whole(row.subscriptions) },
      { title: "Stored", value: (row) => sum(row.storage, row.memory), text: (row) => (row.jetstream ? bytes(sum(row.storage, row.memory)) : "–"), full: (row) => (row.max_storage > 0 ? row.storage / row.max_storage : 0) },
      { title: "Slow", value: (row) => row.slow_consumers, text: (row) => whole(row.slow_consumers), mark: (row) => row.slow_consumers > 0 && "warn" },
    ],
  },
  {
    id: "slow_consumers", title: "Slow consumers", column: 1, all: ["./connz?state=closed&sort=stop", "all closed at /connz"],
    key: (row) => row.cid, sort: 1, empty: "No connection was closed because it was slow.",
    columns: [
      { title: "Connection", value: named, under: (row) => joined(`cid ${row.cid}`, address(row), row.user && `user ${row.user}`) },
      { title: "Closed", value: (row, now) => -age(row.stop, now), text: (row, now) => `${ago(row.stop, now)} ago` },
      { title: "Reason", value: (row) => row.reason },
      { title: "Received", value: (row) => row.out_msgs, text: (row) => short(row.out_msgs) },
      { title: "Account", value: (row) => row.account },
    ],
  },
];

export class Table {
  constructor(table, parent) {
    this.table = table;
    this.rows = [];
    this.made = new Map();
    this.total = 0;
    this.filter = "";
    this.isWhole = false;
    this.sorted = { column: table.sort, descending: true };
    this.card = element("section", { class: "card" + (table.wide ? " wide" : ""), id: table.id, "aria-labelledby": `${table.id}-title` });
    const head = element("div", { class: "head" });
    this.count = element("span", { class: "count" });
    const title = element("h2", { id: `${table.id}-title` }, table.title);
    const link = element("a", { href: table.all[0] }, table.all[1]);
    head.append(title, this.count, link);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${table.title}, table` });
    this.grid = element("table");
    this.grid.append(this.headings());
    this.body = element("tbody");
    this.grid.append(this.body);
    scroll.append(this.grid);
    this.nothing = element("p", { class: "nothing" });
    this.more = element("button", { type: "button", class: "more", "aria-expanded": "false" });
    this.more.addEventListener("click", () => { this.isWhole = !this.isWhole; this.draw(); });
    this.card.append(head, scroll, this.nothing, this.more);
    parent.append(this.card);
  }

  headings() {
    const head = element("thead"), row = element("tr");
    this.heads = this.table.columns.map((column, index) => {
      const cell = element("th", { scope: "col", class: column.text ? "number" : "" });
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sortBy(index));
      cell.append(button);
      row.append(cell);
      return cell;
    });
    head.append(row);
    return head;
  }

  sortBy(index) {
    const isSame = this.sorted.column === index;
    const first = Boolean(this.table.columns[index].text);
    this.sorted = { column: index, descending: isSame ? !this.sorted.descending : first };
    this.draw();
  }

  /** Show other rows; `now` is the time of the server. */
  show(answer, now) {
    this.rows = answer.rows;
    this.total = answer.total;
    this.now = now;
    this.draw();
  }

  search(text) {
    this.filter = text.toLowerCase();
    this.draw();
  }

  draw() {
    const { columns, key } = this.table, { column, descending } = this.sorted;
    this.heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const found = this.rows.filter((row) => !this.filter || this.matches(row));
    const value = columns[column].value;
    found.sort((one, other) => compare(value(one, this.now), value(other, this.now)) * (descending ? -1 : 1));
    const shown = this.isWhole ? found : found.slice(0, ROWS_SHOWN);
    const wanted = new Map(shown.map((row) => [key(row), row]));
    for (const [each, line] of this.made) {
      if (!wanted.has(each)) { line.remove(); this.made.delete(each); }
    }
    let before = null;
    for (const [each, row] of wanted) {
      const line = this.made.get(each) ?? this.line();
      this.made.set(each, line);
      this.write(line, row);
      const next = before ? before.nextSibling : this.body.firstChild;
      if (next !== line) this.body.insertBefore(line, next);
      before = line;
    }
    this.tell(found.length);
  }

  matches(row) {
    return this.table.columns.some((column) =>
      (!column.text && String(column.value(row)).toLowerCase().includes(this.filter)) ||
      (column.under && column.under(row).toLowerCase().includes(this.filter)));
  }

  line() {
    const line = element("tr");
    this.table.columns.forEach((column, index) => {
      const cell = element(index ? "td" : "th", index ? {} : { scope: "row" });
      if (column.text) cell.className = "number";
      cell.append(element("span", { class: "main" }));
      if (column.under) cell.append(element("span", { class: "under" }));
      if (column.full) {
        const bar = element("span", { class: "bar", "aria-hidden": "true" });
        bar.append(element("span"));
        cell.append(bar);
      }
      line.append(cell);
    });
    return line;
  }

  write(line, row) {
    this.table.columns.forEach((column, index) => {
      const cell = line.children[index], main = cell.firstChild;
      const text = column.text ? column.text(row, this.now) : String(column.value(row));
      setText(main, text);
      cell.classList.toggle("zero", column.text !== undefined && (text === "0" || text === "–" || text === "0 B"));
      const mark = column.mark?.(row);
      cell.classList.toggle("warn", mark === "warn");
      cell.classList.toggle("bad", mark === "bad");
      if (!index) main.title = text;
      if (column.under) {
        const under = column.under(row);
        setText(main.nextSibling, under);
        main.nextSibling.title = under;
      }
      if (column.full) {
        const share = Math.min(column.full(row), 1);
        cell.lastChild.firstChild.style.width = `${share * 100}%`;
        cell.lastChild.classList.toggle("none", !share);
      }
    });
  }

  tell(found) {
    const some = this.rows.length < this.total ? `${whole(this.rows.length)} of ${whole(this.total)}` : whole(this.total);
    setText(this.count, this.filter ? `${whole(found)} found in ${some}` : some);
    this.grid.hidden = !found;
    this.nothing.hidden = found > 0;
    if (!found) setText(this.nothing, this.filter ? "Nothing matches the filter." : (this.table.empty ?? "None."));
    this.more.hidden = found <= ROWS_SHOWN;
    setText(this.more, this.isWhole ? `Show the first ${ROWS_SHOWN}` : `Show all ${whole(found)}`);
    this.more.setAttribute("aria-expanded", String(this.isWhole));
  }
}

/** Order numbers by size and texts by the alphabet; what is not known comes first. */
function compare(one, other) {
  if (typeof one === "string" || typeof other === "string") return String(one).localeCompare(String(other), "en", { numeric: true });
  return (one ?? -Infinity) - (other ?? -Infinity) || 0;
}
