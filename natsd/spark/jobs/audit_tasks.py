"""Tasks of an audit, on executors: read a run of blocks, verify all of it, return digests.

    AuditTask ─▶ rows of SCHEMA, distinguished by `kind`

    SUMMARY  a first sequence · b last · c messages · d bytes of data · e descents in time
             text: JSON with first and last time
    CHUNK    a number · b messages · c digest                   (digests.pyx)
    ID       a hash · b sequence · c time · d window
    ROW      a sequence · b time · c d e hashes of subject, headers, data · f digest
    DAMAGE   a first sequence · b last · text: JSON with file, offset, length, what
    UNREAD   text: why

Promise
- A task never fails: it reports the parts that it cannot read. Its memory is one block, one block's
  digests, and one chunk for each 65,536 sequences.
- Importing this module does not import pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.stored.reading import Digests
from natsd.spark.stored.store_read import BlockReader, describe_damage, open_records
from natsd.spark.stored.stored_ranges import BlockPart, StoreNotReadable, StoreRange
from natsd.store.errors import StoreError
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    import pyarrow as pa

    from natsd.spark.stored.reading import Records
    from natsd.store.block.damage import Damage

SUMMARY, CHUNK, ID, ROW, DAMAGE, UNREAD = range(6)
NUMBERS: Final = ("a", "b", "c", "d", "e", "f")
SCHEMA: Final = (
    "kind INT, replica INT, stream STRING, a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT, "
    "f BIGINT, text STRING"
)


@dataclass(frozen=True)
class AuditTask:
    """One task of an audit.

    `chunks`: an encoded SequenceSet of chunk numbers whose single messages are returned, and
    nothing else; None: the first pass. `window_ns`: duplicate window in ns; 0: message ids are
    ignored.
    """

    replica: int
    blocks: StoreRange
    window_ns: int = 0
    chunks: bytes | None = None


def run_task(task: AuditTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task; unreadable parts are rows too, not errors."""
    return _Running(task).run()


class _Running:
    """One run of a task."""

    def __init__(self, task: AuditTask) -> None:
        self._task = task
        self._rows = AuditBatchFactory(task.replica, task.blocks.request.stream)
        wanted = None if task.chunks is None else SequenceSet.decode(task.chunks)
        self._digests = Digests(wanted)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task."""
        try:
            reader = BlockReader(self._task.blocks.place)
            try:
                for part in self._task.blocks.blocks:
                    yield from self._examine(reader, part)
            finally:
                reader.close()
        except (StoreNotReadable, StoreError, OSError) as error:
            yield self._rows.one(UNREAD, text=str(error))
            return
        if self._task.chunks is None:
            yield self._rows.columns(CHUNK, self._digests.take_chunks())
            yield self._summary()

    def _examine(self, reader: BlockReader, part: BlockPart) -> Iterator[pa.RecordBatch]:
        records, damage = open_records(reader, self._task.blocks, part)
        if self._task.chunks is None:
            for found in damage_of(reader, part, records, damage):
                yield self._rows.one(DAMAGE, found["first"], found["last"], text=json.dumps(found))
        if records is None:
            return
        self._digests.add(records)
        ids, rows = self._digests.take_ids(), self._digests.take_rows()
        if ids[0] and self._task.window_ns and self._task.chunks is None:
            yield self._rows.columns(ID, ids, {"d": self._task.window_ns})
        if rows[0]:
            yield self._rows.columns(ROW, rows)

    def _summary(self) -> pa.RecordBatch:
        found = self._digests
        times = {"first_ns": found.first_time_ns, "last_ns": found.last_time_ns}
        return self._rows.one(
            SUMMARY,
            found.first_sequence,
            found.last_sequence,
            found.count,
            found.data_bytes,
            found.descents,
            text=json.dumps(times),
        )


def damage_of(
    reader: BlockReader, part: BlockPart, records: Records | None, damage: list[Damage]
) -> Iterator[dict[str, Any]]:
    """Yield the damaged and the missing parts of a block, each once."""
    path = reader.path_of(part)
    seen = set()
    for each in damage:
        seen.add(describe_damage(path, each))
        yield {
            "first": each.first_sequence,
            "last": each.last_sequence,
            "what": each.what,
            "file": str(path),
            "offset": each.offset,
            "length": each.length,
        }
    for first, last, where in part.damage:
        if where not in seen:
            yield {"first": first, "last": last, "what": where, "file": ""}
    if records is None:
        return
    for first, last in records.missing().runs():
        if not any(each.covers(first) for each in damage):
            what = f"{path}: not in the block"
            yield {"first": first, "last": last, "what": what, "file": ""}


class AuditBatchFactory:
    """Factory of batches of SCHEMA."""

    def __init__(self, replica: int, stream: str) -> None:
        self._replica = replica
        self._stream = stream

    def one(self, kind: int, *numbers: int, text: str | None = None) -> pa.RecordBatch:
        """Return a batch of a single row."""
        packed = [number.to_bytes(8, "little", signed=True) for number in numbers]
        return self._batch(kind, 1, packed, {}, text)

    def columns(
        self, kind: int, columns: list[bytes], same: dict[str, int] | None = None
    ) -> pa.RecordBatch:
        """Return a batch of int64 columns, from `a` on; `same` holds constant columns."""
        return self._batch(kind, len(columns[0]) // 8, columns, same or {}, None)

    def _batch(
        self, kind: int, count: int, columns: list[bytes], same: dict[str, int], text: str | None
    ) -> pa.RecordBatch:
        import pyarrow as pa

        int64, int32 = pa.int64(), pa.int32()
        arrays = [
            pa.repeat(pa.scalar(kind, int32), count),
            pa.repeat(pa.scalar(self._replica, int32), count),
            pa.repeat(pa.scalar(self._stream, pa.string()), count),
        ]
        for at, name in enumerate(NUMBERS):
            if at < len(columns):
                buffers = [None, pa.py_buffer(columns[at])]
                arrays.append(pa.Array.from_buffers(int64, count, buffers))
            else:
                arrays.append(pa.repeat(pa.scalar(same.get(name), int64), count))
        arrays.append(pa.repeat(pa.scalar(text, pa.string()), count))
        names = ["kind", "replica", "stream", *NUMBERS, "text"]
        return pa.RecordBatch.from_arrays(arrays, names=names)
