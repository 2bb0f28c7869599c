"""The columns that a table must have to be written to a stream, and their compiled-code form.

    subject    STRING
    data       BINARY, or STRING
    headers    MAP<STRING, ARRAY<STRING>>, or MAP<STRING, STRING>       may be missing
    id         STRING, or an integer                                    may be missing

Promise
- The order of the columns is free; their names are matched without regard to case.
- The other columns of a stream that was read (stream, seq, time, time_ns) are allowed and not
  written; any other column is refused, so that a misspelt `header` is not silently dropped.
- A header Nats-Msg-Id is left out: the message id is the column id, or the task's own.
- Buffers are passed on without a copy, except where Arrow must convert (an integer id, `large_`
  types).
- Importing this module imports neither pyarrow nor pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.sink.publishing import RowBatch

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
    """The table lacks the columns of messages, or has columns that cannot be written."""


@dataclass(frozen=True)
class WrittenColumns:
    """Positions of the columns in a batch; None: there is no such column."""

    subject: int
    data: int
    headers: int | None = None
    id: int | None = None

    @classmethod
    def of(cls, schema: StructType) -> WrittenColumns:
        """Return the positions of the columns in the schema. Raises NotWritable."""
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

    def rows(self, batch: pa.RecordBatch) -> RowBatch:
        """Return the batch as rows, which keep its memory alive."""
        return RowBatch(
            batch.num_rows,
            strings(batch.column(self.subject)),
            strings(batch.column(self.data)),
            None if self.headers is None else maps(batch.column(self.headers)),
            None if self.id is None else strings(batch.column(self.id)),
        )


def strings(array: Any) -> Column:
    """Return the buffers of a column of strings or bytes, or of a type that converts to them."""
    import pyarrow as pa

    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        binary = pa.types.is_large_binary(array.type) or pa.types.is_binary_view(array.type)
        array = array.cast(pa.binary() if binary else pa.string())
    validity, offsets, data = array.buffers()
    if array.offset and offsets is not None:
        offsets = offsets.slice(4 * array.offset)
    return offsets, data, validity, array.offset


def maps(array: Any) -> Headers:
    """Return the buffers of a column of headers, with one or several values for each name."""
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
