"""A MessageBatch as a pyarrow.RecordBatch that shares the memory of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from natsd.spark.rows.columns import arrow_schema

if TYPE_CHECKING:
    from natsd.spark.rows.message_batch import ColumnBuffer, MessageBatch


class BatchWrapper:
    """Factory of record batches with the columns `names`; all batches share one schema."""

    def __init__(self, names: Sequence[str]) -> None:
        self.schema = arrow_schema(names)

    def take(self, batch: MessageBatch) -> pa.RecordBatch:
        """Return the rows as a record batch, and empty `batch`. Nothing is copied."""
        rows, headerless, counts = batch.rows, batch.headerless, batch.entry_counts
        columns = [
            headers_array(field.type, buffers, rows, headerless, counts)
            if field.name == "headers"
            else pa.Array.from_buffers(field.type, rows, [None, *wrapped(buffers)], 0)
            for field, buffers in zip(self.schema, batch.take(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def wrapped(buffers: Sequence[ColumnBuffer]) -> list[pa.Buffer]:
    """Return Arrow buffers that share the memory of the column buffers."""
    return [pa.py_buffer(buffer) for buffer in buffers]


def headers_array(
    kind: pa.MapType,
    buffers: Sequence[ColumnBuffer],
    rows: int,
    headerless: int,
    counts: tuple[int, int],
) -> pa.Array:
    """Return the array of header maps of `rows` rows.

    `headerless` is the number of null rows; `counts` are the keys and the values of all rows.
    """
    entries, values = counts
    validity, offsets, key_offsets, keys, lists, value_offsets, texts = wrapped(buffers)
    text = pa.string()
    key_array = pa.Array.from_buffers(text, entries, [None, key_offsets, keys], 0)
    value_array = pa.Array.from_buffers(text, values, [None, value_offsets, texts], 0)
    list_array = pa.Array.from_buffers(
        kind.item_type, entries, [None, lists], 0, children=[value_array]
    )
    pairs = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]),
        entries,
        [None],
        0,
        children=[key_array, list_array],
    )
    return pa.Array.from_buffers(kind, rows, [validity, offsets], headerless, children=[pairs])
