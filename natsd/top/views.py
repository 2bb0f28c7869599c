"""The views: what each table shows of the summary. The same columns are in the dashboard."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from natsd.top.texts import NOTHING, age_s, plain, short, size, span

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the value that rows are sorted by, and the text of a cell.

    Both functions get the row and the time of the server. With `is_text` the cells stand on the
    left, and the filter searches them.
    """

    title: str
    value: Callable[[Row, str], Any]
    text: Callable[[Row, str], str]
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A table: its name in the summary, its title, and its columns.

    `sort` is the index of the column by which it is sorted at first.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    sort: int = 1

    def rows(self, summary: Row, filtered: str = "") -> list[Row]:
        """Return the rows of a summary that have this text in one of their texts."""
        wanted, now = filtered.lower(), summary["server"]["now"]
        return [
            row
            for row in summary[self.name]["rows"]
            if not wanted
            or any(wanted in each.text(row, now).lower() for each in self.columns if each.is_text)
        ]

    def sorted(self, rows: list[Row], now: str, column: int, *, descending: bool) -> list[Row]:
        """Return the rows in the order of a column; what is not known comes last."""
        value = self.columns[column].value
        known = [row for row in rows if value(row, now) is not None]
        known.sort(key=lambda row: value(row, now), reverse=descending)
        return known + [row for row in rows if value(row, now) is None]


def _number(title: str, field: str, text: Callable[[Any], str] = short) -> Column:
    return Column(title, lambda row, _: row.get(field), lambda row, _: text(row.get(field)))


def _text(title: str, value: Callable[[Row], str]) -> Column:
    return Column(
        title, lambda row, _: value(row).lower(), lambda row, _: plain(value(row)), is_text=True
    )


def _age(title: str, field: str) -> Column:
    def value(row: Row, now: str) -> float | None:
        return age_s(row.get(field), now)

    return Column(title, value, lambda row, now: span(value(row, now)))


def _client(row: Row) -> str:
    return str(row["name"] or f"cid {row['cid']}")


def _address(row: Row) -> str:
    return f"{row['ip']}:{row['port']}"


def _both(title: str, unit: str, text: Callable[[Any], str]) -> Column:
    def value(row: Row, _: str) -> float | None:
        one, other = row.get(f"in_{unit}_rate"), row.get(f"out_{unit}_rate")
        return None if one is None or other is None else one + other

    return Column(title, value, lambda row, now: text(value(row, now)))


def _full(row: Row) -> str:
    return f"{row['full']:.0%}" if row.get("full") else NOTHING


VIEWS: Final = (
    View(
        "connections",
        "Connections",
        (
            _text("Connection", _client),
            _number("Out/s", "out_msgs_rate"),
            _number("In/s", "in_msgs_rate"),
            _number("Out B/s", "out_bytes_rate", size),
            _number("In B/s", "in_bytes_rate", size),
            _number("Pending", "pending_bytes", size),
            _number("Subs", "subscriptions"),
            _text("Address", _address),
            _number("Idle", "idle_s", span),
            _age("Since", "start"),
            _text("Account", lambda row: row["account"]),
            _text("User", lambda row: row["user"]),
            _text("Client", lambda row: f"{row['lang']} {row['version']}".strip()),
        ),
    ),
    View(
        "streams",
        "Streams",
        (
            _text("Stream", lambda row: row["name"]),
            _number("Msg/s", "msgs_rate"),
            _number("Messages", "messages"),
            _number("Size", "bytes", size),
            Column("Full", lambda row, _: row.get("full"), lambda row, _: _full(row)),
            _number("Consumers", "consumers"),
            _age("Newest", "last_ts"),
            _age("Oldest", "first_ts"),
            _text("Account", lambda row: row["account"]),
            _text("Storage", lambda row: row["storage"]),
            _text("Subjects", lambda row: " ".join(row["subjects"])),
            _text("Description", lambda row: row["description"]),
        ),
    ),
    View(
        "consumers",
        "Consumers",
        (
            _text("Consumer", lambda row: row["name"]),
            _number("Lag", "num_pending"),
            _number("Unacked", "num_ack_pending"),
            _number("Redeliv.", "num_redelivered"),
            _number("Waiting", "num_waiting"),
            _number("Msg/s", "msgs_rate"),
            _text("Stream", lambda row: row["stream"]),
            _age("Last", "last_delivered"),
            _text("Account", lambda row: row["account"]),
        ),
    ),
    View(
        "subjects",
        "Subjects",
        (
            _text("Subject", lambda row: row["subject"]),
            _number("Msg/s", "msgs_rate"),
            _number("Messages", "msgs"),
            _number("Subs", "subscriptions"),
            _text("Stream", lambda row: row["stream"]),
            _text("Account", lambda row: row["account"]),
        ),
    ),
    View(
        "accounts",
        "Accounts",
        (
            _text("Account", lambda row: row["name_tag"] or row["name"]),
            _both("Msg/s", "msgs", short),
            _both("B/s", "bytes", size),
            _number("Connections", "connections"),
            _number("Subs", "subscriptions"),
            _number("Streams", "streams"),
            _number("Storage", "storage", size),
            _number("Slow", "slow_consumers"),
        ),
    ),
    View(
        "slow_consumers",
        "Slow",
        (
            _text("Connection", _client),
            _age("Closed", "stop"),
            _text("Reason", lambda row: row["reason"]),
            _number("Received", "out_msgs"),
            _text("Address", _address),
            _text("Account", lambda row: row["account"]),
        ),
    ),
)


def headline(summary: Row) -> str:
    """Return a line about the server."""
    server = summary["server"]
    version = f"natsd {server['version']}" if server["version"] else "nats-server"
    parts = [
        server["name"],
        f"{version} (NATS {server['nats_version']})"
        if server["version"]
        else version + f" {server['nats_version']}",
        f"{server['host']}:{server['port']}",
        f"up {span(server['uptime_s'])}",
    ]
    return plain(" · ".join(parts))


def figures(summary: Row) -> list[tuple[str, str]]:
    """Return the names and values of what is known of the whole server."""
    totals, rates, js = summary["totals"], summary["rates"], summary["jetstream"]
    cpu, lag_ms = rates.get("cpu"), rates.get("lag_ms")
    told = [
        ("CPU", NOTHING if cpu is None else f"{cpu:.1f}%"),
        ("Mem", size(totals["mem"])),
        ("Conns", short(totals["connections"])),
        ("Subs", short(totals["subscriptions"])),
        ("Slow", short(totals["slow_consumers"])),
    ]
    if lag_ms is not None:
        told.append(("Lag", f"{lag_ms:.1f}ms"))
    if js is not None:
        told += [("Disk", size(js["storage"])), ("Msgs", short(js["messages"]))]
    return told
