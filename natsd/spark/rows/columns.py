"""The columns of a stream as a table: their order, Spark DDL and Arrow types.

    stream | seq | subject | time (µs, UTC) | time_ns | headers | data

Promise
- A choice of columns is a sequence of names, in the wanted order; `Columns` is the same choice as
  flags, without the order.
- `arrow_schema` equals the schema that Spark derives from `ddl`: Spark compares the two with
  `Schema.equals`, which includes the names and the nullability of nested fields.
- Importing this module imports neither pyarrow nor pyspark.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa


class Columns(enum.IntFlag):
    """A choice of columns, without their order."""

    STREAM = 1
    SEQ = 2
    SUBJECT = 4
    TIME = 8
    TIME_NS = 16
    HEADERS = 32
    DATA = 64
    ALL = 127


NAMES: Final = ("stream", "seq", "subject", "time", "time_ns", "headers", "data")
DDL: Final = {
    "stream": "STRING",
    "seq": "BIGINT",
    "subject": "STRING",
    "time": "TIMESTAMP",
    "time_ns": "BIGINT",
    "headers": "MAP<STRING, ARRAY<STRING>>",
    "data": "BINARY",
}


class UnknownColumn(ValueError):
    """A column that does not exist, or that is chosen twice."""


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple. Raises UnknownColumn if one is unknown or repeated."""
    if not names:
        raise UnknownColumn(f"no column is chosen: choose among {', '.join(NAMES)}")
    for name in names:
        if name not in DDL:
            raise UnknownColumn(f'there is no column "{name}": choose among {", ".join(NAMES)}')
    if len(set(names)) < len(names):
        raise UnknownColumn(f"a column is chosen twice: {', '.join(names)}")
    return tuple(names)


def flags(names: Sequence[str]) -> Columns:
    """Return the choice of columns as flags. Raises UnknownColumn."""
    chosen = Columns(0)
    for name in checked(names):
        chosen |= Columns[name.upper()]
    return chosen


def ddl(names: Sequence[str] = NAMES) -> str:
    """Return the Spark DDL of the columns, for `DataSource.schema`. Raises UnknownColumn."""
    return ", ".join(f"{name} {DDL[name]}" for name in checked(names))


def arrow_schema(names: Sequence[str] = NAMES) -> pa.Schema:
    """Return the Arrow schema that Spark expects for `ddl(names)`. Raises UnknownColumn."""
    import pyarrow as pa

    values = pa.list_(pa.field("element", pa.string()))
    types = {
        "stream": pa.string(),
        "seq": pa.int64(),
        "subject": pa.string(),
        "time": pa.timestamp("us", tz="UTC"),
        "time_ns": pa.int64(),
        "headers": pa.map_(pa.string(), pa.field("value", values)),
        "data": pa.binary(),
    }
    return pa.schema([pa.field(name, types[name]) for name in checked(names)])
