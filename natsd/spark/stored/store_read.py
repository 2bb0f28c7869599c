"""Reads a stream's blocks from files into record batches; no server takes part.

    file ─▶ [journal's patch] ─▶ [envelopes opened] ─▶ Scan: every checksum ─▶ Records ─▶ batches

Promise
- Rows come in the order of their sequences, each once, exactly those that a server would find: a
  plan (store_plan.py, archive_plan.py) says which live, the block's own records what they are.
- Every checksum of a block is verified before a row of it is given. A message that should live and
  does not verify is DamagedMessages with sequences, file and offset; where data may be lost it is
  left out, counted, and logged.
- A store is only read. It is held while its blocks are read, so that no server changes them; a
  block that is not the one that was planned is StoreChanged.
- Memory: one block, twice where it is compressed or encrypted, and one batch.

Importing this imports no Arrow. All of it blocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from natsd.spark.rows.columns import NAMES
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.stored.records import Records
from natsd.spark.stored.store_hold import hold, open_key
from natsd.spark.stored.stored_ranges import (
    BlockPart,
    DamagedMessages,
    StoreChanged,
    StorePlace,
    StoreRange,
    StreamPlan,
)
from natsd.store.damage import Damage
from natsd.store.disk import RealDisk
from natsd.store.errors import DamagedEncoding
from natsd.store.filter import Filter
from natsd.store.overlay_disk import OverlayDisk
from natsd.store.record import checksum
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet
from natsd.store.stored_blocks import StoredBlocks
from natsd.store.subject_index import SubjectIndex

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("natsd.spark")


class BlockReader:
    """Opens the blocks of one place; `close` lets go of it."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._holds = contextlib.ExitStack()
        try:
            if place.archive:
                archive = Path(place.archive).open("rb")  # noqa: SIM115  # `close` closes it
                self._archive: IO[bytes] = self._holds.enter_context(archive)
            else:
                self._blocks = self._open_store()
        except FileNotFoundError as error:
            self.close()
            raise StoreChanged(f"{error.filename} is gone: was it moved or deleted?") from None
        except BaseException:
            self.close()
            raise

    def _open_store(self) -> StoredBlocks:
        root, directory = Path(self._place.root), Path(self._place.directory)
        held = hold(root)
        if held is not None:
            self._holds.callback(held.release)
        operator = self._place.keys.operator()
        data_key = open_key(OverlayDisk(RealDisk()), root, directory, operator)
        return StoredBlocks(RealDisk(), directory, os.urandom, block_bytes_max=0, data_key=data_key)

    def close(self) -> None:
        """A second call does nothing."""
        self._holds.close()

    def read(self, part: BlockPart) -> tuple[Scan, list[Damage]]:
        """The block, scanned; its damage, with offsets in the file. Raises StoreChanged where it is
        another one now."""
        if self._place.archive:
            return self._read_entry(part)
        path = self.path_of(part)
        try:
            with open(path, "rb", buffering=0) as file:
                data = file.read(part.end)
        except FileNotFoundError:
            data = b""
        if not data and not part.patch:
            raise StoreChanged(f"{path} is gone since the read was planned: start it again")
        if part.patch:
            data = patched(data, part)
        read = self._blocks.scan(data, part.block_id, proven=part.proven)
        if read.scan.readable and read.scan.seed != part.seed:
            raise StoreChanged(
                f"{path} was written anew since the read was planned: start it again"
            )
        return read.scan, read.damage

    def _read_entry(self, part: BlockPart) -> tuple[Scan, list[Damage]]:
        from natsd.store.archive_map import EntryPlace, read_body

        try:
            data = read_body(self._archive, EntryPlace(part.file, part.offset, part.end))
        except DamagedEncoding:
            data = b""
        if checksum(data) != part.seed:
            raise StoreChanged(
                f"{self._place.archive} has changed since the read was planned: start it again"
            )
        scan = Scan(data, proven=part.end)
        return scan, scan.damage

    def path_of(self, part: BlockPart) -> Path:
        """For the eye, where it is an archive's entry."""
        return Path(self._place.archive or self._place.directory) / part.file


def patched(data: bytes, part: BlockPart) -> bytes:
    """With what the journal has for the file."""
    data = data.ljust(part.patch_offset, b"\0")
    return data[: part.patch_offset] + part.patch + data[part.patch_offset + len(part.patch) :]


def read_store(
    asked: StoreRange,
    names: Sequence[str] = NAMES,
    max_rows: int = 10_000,
    max_bytes: int = 8 << 20,
) -> Iterator[pa.RecordBatch]:
    """The rows of the range. Raises DamagedMessages, StoreChanged, StoreNotReadable, StoreError,
    OSError."""
    from natsd.spark.rows.arrow import BatchWrapper

    batch, wrapper = MessageBatch(names, max_rows, max_bytes), BatchWrapper(names)
    batch.stream = asked.request.stream
    reader = BlockReader(asked.place)
    lost = 0
    try:
        for part in asked.blocks:
            records, damage = open_records(reader, asked, part)
            if records is not None:
                while records.fill(batch):
                    yield wrapper.take(batch)
            lost += _note_lost(reader, asked, part, records, damage)
    finally:
        reader.close()
    if batch.rows:
        yield wrapper.take(batch)
    if lost:
        _logger.warning('%d messages of stream "%s" left out: damaged', lost, asked.request.stream)


def open_records(
    reader: BlockReader, asked: StoreRange, part: BlockPart
) -> tuple[Records | None, list[Damage]]:
    """The block's wanted messages; None where nothing of it can be read. Raises DamagedMessages
    before any of them is given, unless data may be lost."""
    request = asked.request
    scan, damage = reader.read(part)
    if not scan.readable:
        damage = [Damage(0, len(scan.data), part.first, part.last, "block unreadable")]
        records = None
    else:
        records = Records(
            scan,
            max(part.first, request.first_sequence),
            min(part.last, request.last_sequence),
            SequenceSet.decode(part.dead),
            Filter(request.subjects),
            request.start_time_ns,
            request.end_time_ns,
        )
    if request.fail_on_data_loss:
        for first, last, where in losses(reader, part, records, damage):
            if first <= request.last_sequence and last >= request.first_sequence:
                raise DamagedMessages(request.stream, first, last, where)
    return records, damage


def losses(
    reader: BlockReader, part: BlockPart, records: Records | None, damage: list[Damage]
) -> Iterator[tuple[int, int, str]]:
    """What of the part is lost: first and last sequence, and where."""
    for first, last, where in part.damage:
        yield first, last or part.last, where
    if records is None:
        yield part.first, part.last, told(reader.path_of(part), damage[0])
        return
    for first, last in records.missing().runs():
        found = next((d for d in damage if d.covers(first)), None)
        path = reader.path_of(part)
        yield first, last, told(path, found) if found else f"{path}: not in the block"


def told(path: Path, damage: Damage) -> str:
    """One line about it."""
    return f"{path}: {damage.what} at byte {damage.offset} ({damage.length} bytes)"


def _note_lost(
    reader: BlockReader,
    asked: StoreRange,
    part: BlockPart,
    records: Records | None,
    damage: list[Damage],
) -> int:
    """Log what was left out of a range that may lose data; how many messages that were."""
    if asked.request.fail_on_data_loss:
        return 0
    total = 0
    for first, last, where in losses(reader, part, records, damage):
        first, last = max(first, part.first), min(last, part.last)
        total += last - first + 1
        _logger.warning("messages %d to %d left out: %s", first, last, where)
    return total


# What a plan has to look into blocks for


def only_last_of_subjects(asked: StoreRange) -> list[BlockPart]:
    """The blocks in which the last message of some subject stands, with all others dead."""
    seen = SubjectIndex()
    parts: list[BlockPart] = []
    with contextlib.closing(BlockReader(asked.place)) as reader:
        for part in reversed(asked.blocks):
            records, _ = open_records(reader, asked, part)
            if records is None:
                continue
            last = records.last_of_subjects(seen)
            if last:
                parts.append(_only(part, last))
    return parts[::-1]


def _only(part: BlockPart, wanted: SequenceSet) -> BlockPart:
    first, last = wanted.first, wanted.last
    assert first is not None
    assert last is not None
    dead = SequenceSet()
    dead.add_range(first, last)
    dead.difference_update(wanted)
    size = part.size_bytes * wanted.count // max(1, part.rows)
    return replace(
        part,
        first=first,
        last=last,
        rows=wanted.count,
        size_bytes=size,
        dead=dead.encode(),
        damage=(),
    )


def sequence_at(plan: StreamPlan, time_ns: int) -> int:
    """See StreamPlan.sequence_at. A search among the blocks, each of which it reads."""
    request = replace(plan.request(), start_time_ns=time_ns, fail_on_data_loss=False)
    found = plan.last_sequence + 1
    low, high = 0, len(plan.blocks)
    with contextlib.closing(BlockReader(plan.place)) as reader:
        while low < high:
            middle = (low + high) // 2
            part = plan.blocks[middle]
            records, _ = open_records(reader, StoreRange(plan.place, request, (part,)), part)
            first = records.first_wanted() if records is not None else None
            if first is None:
                low = middle + 1
            else:
                found, high = first, middle
    return found
