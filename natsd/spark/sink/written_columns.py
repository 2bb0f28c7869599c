"""What a table must have to be written to a stream, and its batches as compiled code sees them.

    subject    STRING
    data       BINARY, or STRING
    headers    MAP<STRING, ARRAY<STRING>>, or MAP<STRING, STRING>       may be missing
    id         STRING, or an integer                                    may be missing

Promise
- The order of columns is free; their names are found whatever their case.
- The columns that a stream has when it is read (stream, seq, time, time_ns) may stay, and are not
  written; any other one is refused, so that no misspelt `header` is lost.
- A header Nats-Msg-Id is left out: the message's id is the column id, or the task's own.
- Buffers are passed on without a copy, but for what Arrow must convert (an integer id, `large_`
  types).
- Importing this imports neither pyarrow nor pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.sink.publishing import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from natsd.spark.sink.publishing import Column, Headers

IGNORED: Final = ("stream", "seq", "time", "time_ns")
STRING: Final = "string"
TYPES: Final = {
    "subject": (STRING,),
    "data": ("binary", STRING),
    "headers": ("map<string,array<string>>", "map<string,string>"),
    "id": (STRING, "bigint", "int", "smallint", "tinyint"),
}


class NotWritable(ValueError):
    """A table that has not the columns of messages."""


@dataclass(frozen=True)
class WrittenColumns:
    """Where in a batch the columns stand; None: there is none."""

    subject: int
    data: int
    headers: int | None = None
    id: int | None = None

    @classmethod
    def of(cls, schema: StructType) -> WrittenColumns:
        """Raises NotWritable."""
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = field.name.lower()
            if name in IGNORED:
                continue
            if name not in TYPES:
                raise NotWritable(
                    f'the column "{field.name}" cannot be written to a stream: '
                    "select subject, data and, if you like, headers and id"
                )
            kind = field.dataType.simpleString()
            if kind not in TYPES[name]:
                raise NotWritable(
                    f'the column "{field.name}" is {kind}; it must be {" or ".join(TYPES[name])}'
                )
            places[name] = place
        for name in ("subject", "data"):
            if name not in places:
                raise NotWritable(f'a column "{name}" is missing: each row is one message')
        return cls(places["subject"], places["data"], places.get("headers"), places.get("id"))

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """The batch, which they hold on to."""
        return Rows(
            batch.num_rows,
            strings(batch.column(self.subject)),
            strings(batch.column(self.data)),
            None if self.headers is None else maps(batch.column(self.headers)),
            None if self.id is None else strings(batch.column(self.id)),
        )


def strings(array: Any) -> Column:
    """A column of strings or bytes, or of what can be written as a string."""
    import pyarrow as pa

    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        binary = pa.types.is_large_binary(array.type) or pa.types.is_binary_view(array.type)
        array = array.cast(pa.binary() if binary else pa.string())
    validity, offsets, data = array.buffers()
    if array.offset and offsets is not None:
        offsets = offsets.slice(4 * array.offset)
    return offsets, data, validity, array.offset


def maps(array: Any) -> Headers:
    """A column of headers, with one value or with several for each name."""
    import pyarrow as pa

    validity, offsets = array.buffers()[:2]
    if array.offset and offsets is not None:
        offsets = offsets.slice(4 * array.offset)
    items = array.items
    if not pa.types.is_list(items.type):
        return (
            offsets,
            validity,
            array.offset,
            strings(array.keys),
            None,
            None,
            0,
            strings(items),
        )
    lists_validity, lists = items.buffers()[:2]
    if items.offset and lists is not None:
        lists = lists.slice(4 * items.offset)
    return (
        offsets,
        validity,
        array.offset,
        strings(array.keys),
        lists,
        lists_validity,
        items.offset,
        strings(items.values),
    )
