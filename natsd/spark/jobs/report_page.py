"""A report as one self-contained HTML page: numbers, charts, tables.

The charts are plotly's, whose script is in the page: the page can be kept, mailed and read without
a network. Content of messages is never executed: subjects are escaped text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs.progress import shown_bytes
from natsd.spark.jobs.stream_numbers import Numbers, Rows

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SHOWN_GAPS: Final = 50
_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; }
body { margin: 0 auto; max-width: 1080px; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.what { color: #555; margin-top: .2rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { border: 1px solid #ddd; border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 600; }
.tile span { color: #666; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #eee; }
th.text, td.text { text-align: left; overflow-wrap: anywhere; min-width: 7rem; }
section { overflow-x: auto; }
th { position: sticky; top: 0; background: #fff; }
"""
_CONFIG: Final = {"displaylogo": False, "displayModeBar": False, "responsive": True}
_COLOURS: Final = ("#27aae1", "#34a574", "#8dc63f", "#375c93", "#d9822b", "#9b59b6")


def page(title: str, source: str, numbers: Numbers, made_at: str) -> str:
    """Return the HTML page; `source` and `made_at` are shown below the title."""
    from plotly.offline import get_plotlyjs

    sections = [
        _tiles(numbers),
        _section("Streams", _table(numbers.totals, _TOTALS)),
        _section(f"Messages per {numbers.window}", _chart(_rates(numbers, "messages", "messages"))),
        _section(f"Payload per {numbers.window}", _chart(_rates(numbers, "bytes", "bytes"))),
        _section("Sizes of payloads", _chart(_sizes(numbers))),
        _latency(numbers),
        _section("Subjects with the most messages", _subject_part(numbers)),
        _section("Gaps", _gap_part(numbers)),
    ]
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f"<script>{get_plotlyjs()}</script></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="what">{escape(source)} · {escape(made_at)}</p>',
            *sections,
            "</body></html>",
        )
    )


def _tiles(numbers: Numbers) -> str:
    totals = numbers.totals
    messages = sum(row["messages"] for row in totals)
    size = sum(row["bytes"] or 0 for row in totals)
    tiles = [
        (f"{messages:,}", "messages"),
        (shown_bytes(size), "payload"),
        (f"{_shown_rate(totals)}", "messages/s, mean"),
        (f"{sum(row['subjects'] for row in totals):,}", "subjects, about"),
        (f"{sum(row['missing'] for row in totals):,}", "sequences missing"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{b}</b><span>{s}</span></div>' for b, s in tiles)
        + "</div>"
    )


def _shown_rate(totals: Rows) -> str:
    messages = sum(row["messages"] for row in totals)
    if not messages:
        return "0"
    first = min(row["first_time"] for row in totals)
    seconds = (max(row["last_time"] for row in totals) - first).total_seconds()
    return f"{messages / seconds:,.1f}" if seconds else "–"


def _rates(numbers: Numbers, column: str, title: str) -> Figure:
    return _lines(numbers.windows, [(column, "")], title)


def _latency(numbers: Numbers) -> str:
    if numbers.latency is None:
        return ""
    columns = [("latency_ms_p50", "p50"), ("latency_ms_p95", "p95"), ("latency_ms_p99", "p99")]
    chart = _chart(_lines(numbers.windows, columns, "milliseconds"))
    return _section(f"Latency: {numbers.latency}", chart)


def _lines(rows: Rows, columns: Sequence[tuple[str, str]], title: str) -> Figure:
    from plotly import graph_objects as go

    figure = go.Figure()
    streams = sorted({row["stream"] for row in rows})
    for stream in streams:
        own = [row for row in rows if row["stream"] == stream]
        for column, name in columns:
            label = " ".join(part for part in (escape(stream), name) if part)
            figure.add_scatter(
                x=[row["start"] for row in own],
                y=[row[column] for row in own],
                name=label,
                mode="lines+markers" if len(own) < 60 else "lines",
            )
    return _laid_out(figure, title, shows_names=len(streams) * len(columns) > 1)


def _sizes(numbers: Numbers) -> Figure:
    from plotly import graph_objects as go

    figure = go.Figure()
    streams = sorted({row["stream"] for row in numbers.sizes})
    bounds = sorted({row["up_to"] for row in numbers.sizes})
    for stream in streams:
        own = {row["up_to"]: row["messages"] for row in numbers.sizes if row["stream"] == stream}
        figure.add_bar(
            x=[f"≤ {shown_bytes(bound)}" for bound in bounds],
            y=[own.get(bound, 0) for bound in bounds],
            name=escape(stream),
        )
    return _laid_out(figure, "messages", shows_names=len(streams) > 1)


def _subject_part(numbers: Numbers) -> str:
    from plotly import graph_objects as go

    top = numbers.subjects[:20][::-1]
    figure = go.Figure()
    figure.add_bar(
        x=[row["messages"] for row in top],
        y=[escape(row["subject"][:80]) for row in top],
        orientation="h",
    )
    figure = _laid_out(figure, "", shows_names=False)
    figure.update_layout(height=120 + 22 * len(top), yaxis={"type": "category"})
    return _chart(figure) + _table(numbers.subjects, _SUBJECTS)


def _gap_part(numbers: Numbers) -> str:
    if not numbers.gaps:
        return "<p>No sequence is missing between the first and the last one.</p>"
    missing = sum(row["missing"] for row in numbers.totals)
    shown = numbers.gaps[:SHOWN_GAPS]
    note = (
        f"<p>{missing:,} sequences have no message: removed, by someone or by a limit, or lost. "
        f"The longest {len(shown):,} runs of them:</p>"
    )
    return note + _table(shown, _GAPS)


def _laid_out(figure: Figure, title: str, *, shows_names: bool) -> Figure:
    figure.update_layout(
        template="plotly_white",
        colorway=_COLOURS,
        height=340,
        margin={"l": 60, "r": 20, "t": 20, "b": 40},
        yaxis={"title": title, "rangemode": "tozero"},
        showlegend=shows_names,
    )
    return figure


def _chart(figure: Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _count(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _time(value: dt.datetime | None) -> str:
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def _size(value: int | None) -> str:
    return "" if value is None else shown_bytes(value)


Shown = Callable[[Any], str]
_TOTALS: Final[Sequence[tuple[str, str, Shown]]] = (
    ("stream", "stream", str),
    ("messages", "messages", _count),
    ("bytes", "payload", _size),
    ("subjects", "subjects", _count),
    ("first_seq", "first", _count),
    ("last_seq", "last", _count),
    ("missing", "missing", _count),
    ("first_time", "from", _time),
    ("last_time", "to", _time),
    ("size_p50", "size p50", _size),
    ("size_p99", "p99", _size),
    ("size_max", "longest", _size),
)
_SUBJECTS: Final[Sequence[tuple[str, str, Shown]]] = (
    ("stream", "stream", str),
    ("subject", "subject", str),
    ("messages", "messages", _count),
    ("bytes", "payload", _size),
    ("longest", "longest", _size),
    ("last_time", "last", _time),
)
_GAPS: Final[Sequence[tuple[str, str, Shown]]] = (
    ("stream", "stream", str),
    ("first_missing", "from", _count),
    ("last_missing", "to", _count),
    ("missing", "missing", _count),
    ("behind", "behind", _time),
    ("before", "before", _time),
)


def _table(rows: Rows, columns: Sequence[tuple[str, str, Shown]]) -> str:
    def kind(shown: Shown) -> str:
        return ' class="text"' if shown is str else ""

    head = "".join(f"<th{kind(shown)}>{escape(title)}</th>" for _, title, shown in columns)
    lines = [
        "<tr>"
        + "".join(f"<td{kind(shown)}>{escape(shown(row[name]))}</td>" for name, _, shown in columns)
        + "</tr>"
        for row in rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
