"""The text of metric families, as Prometheus reads it, piece by piece.

    # HELP gnatsd_varz_connections connections
    # TYPE gnatsd_varz_connections gauge
    gnatsd_varz_connections{server_id="NA…"} 3

- All families here are gauges, as with the Prometheus NATS exporter. Their text is the same in the
  Prometheus format and in OpenMetrics.
- A family stands together, as both formats demand: so the rows are collected first, and each column
  of them is then written as one family.
- prometheus-client's writer makes an object per sample and cannot pause. For 10,000 consumers
  (80,000 lines, 39 MB) it took 2.0 s, and this one 0.1 s with the labels (2026-11-23); it writes
  the few metrics of the process (process_metrics.py).
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

Value: TypeAlias = int | float | None
"""A sample; None: the row has no such sample."""

Row: TypeAlias = tuple[bytes, Sequence[Value]]
"""The labels as they stand between name and value, and the values."""

Gauges: TypeAlias = Sequence[tuple[str, str]]
"""Name and help of each family, in the order of a row's values."""

ROWS_PER_PIECE: Final = 25


def row(labels: str, values: Sequence[Value]) -> Row:
    """Return a row; the labels are as `label_text` makes them."""
    return f"{{{labels}}} ".encode(errors="replace"), values


def label_text(**labels: str) -> str:
    """Return the labels as text; quotes, backslashes and line breaks are escaped."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()])


def escaped(value: str) -> str:
    """Return a label's value as it stands between quotes.

    A null character becomes U+FFFD: Prometheus would refuse the whole answer because of it.
    """
    if value.isalnum():
        return value
    value = value.replace("\0", "\ufffd")
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def families(prefix: str, gauges: Gauges, rows: Sequence[Row]) -> Iterator[bytes]:
    """Yield the text of the families whose samples are the rows; `prefix` begins their names."""
    for column, (name, help_text) in enumerate(gauges):
        yield from _family(prefix + name, help_text, rows, column)


def family(name: str, help_text: str, labels: str, value: float) -> bytes:
    """Return the text of a family with one sample."""
    return b"".join(_family(name, help_text, [row(labels, (value,))], 0))


def _family(name: str, help_text: str, rows: Sequence[Row], column: int) -> Iterator[bytes]:
    """Yield the text of one column; nothing if no row has such a sample.

    Lines are joined by the name, and integers written without a text object: a third of the time
    that formatting each line takes.
    """
    head = f"# HELP {name} {help_text}\n# TYPE {name} gauge\n".encode()
    begin = name.encode()
    for start in range(0, len(rows), ROWS_PER_PIECE):
        lines = [
            labels + (b"%d\n" % value if type(value) is int else f"{value}\n".encode())
            for labels, values in rows[start : start + ROWS_PER_PIECE]
            if (value := values[column]) is not None
        ]
        if lines:
            yield head + begin + begin.join(lines)
            head = b""
