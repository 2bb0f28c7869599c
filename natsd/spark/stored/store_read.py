"""Reads a stream's blocks from files into record batches, without a server.

    file ─▶ [journal's patch] ─▶ [decoded blocks] ─▶ Scan: every checksum ─▶ Records ─▶ batches

Promise
- The rows are in the order of their sequences, each once, exactly those that a server would find:
  the plan (store_plan.py, snapshot_plan.py) lists the live sequences, the block holds the records.
- Every checksum of a block is verified before one of its rows is yielded. A live message that does
  not verify raises DamagedMessages with sequences, file and offset; if data loss is allowed, it is
  left out, counted, and logged.
- The store is only read. It is locked while its blocks are read, so that no server changes them; a
  block that differs from the planned one raises StoreChanged.
- Memory: one block, twice if it is compressed or encrypted, and one batch.

Importing this module does not import pyarrow. All functions block on the disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from natsd.spark.rows.columns import NAMES
from natsd.spark.rows.message_batch import MessageBatch
from natsd.spark.stored.reading import Records
from natsd.spark.stored.store_lock import lock_against_servers, open_key
from natsd.spark.stored.stored_ranges import (
    BlockPart,
    DamagedMessages,
    StoreChanged,
    StorePlace,
    StoreRange,
)
from natsd.store.block.blocks import Scan
from natsd.store.block.damage import Damage
from natsd.store.block.stored_blocks import StoredBlocks
from natsd.store.codec.records import checksum
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import DamagedEncoding
from natsd.store.log.subjects import Filter, SubjectIndex
from natsd.store.maintenance.overlay_disk import OverlayDisk
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("natsd.spark")


class BlockReader:
    """Reader of the blocks of one place, which it keeps open or locked until `close`."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._holds = contextlib.ExitStack()
        try:
            if place.snapshot:
                snapshot = Path(place.snapshot).open("rb")  # noqa: SIM115  # `close` closes it
                self._snapshot: IO[bytes] = self._holds.enter_context(snapshot)
            else:
                self._blocks = self._open_store()
        except FileNotFoundError as error:
            self.close()
            raise StoreChanged(
                f"{error.filename} is gone, or {socket.gethostname()} does not reach it: on a "
                "cluster every executor must, under this path"
            ) from None
        except BaseException:
            self.close()
            raise

    def _open_store(self) -> StoredBlocks:
        root, directory = Path(self._place.root), Path(self._place.directory)
        directory.stat()  # raises FileNotFoundError
        lock = lock_against_servers(root)
        if lock is not None:
            self._holds.callback(lock.release)
        operator = self._place.keys.operator()
        data_key = open_key(OverlayDisk(RealDisk()), root, directory, operator)
        return StoredBlocks(RealDisk(), directory, os.urandom, block_bytes_max=0, data_key=data_key)

    def close(self) -> None:
        """Close the snapshot, or unlock the directory; further calls do nothing."""
        self._holds.close()

    def read(self, part: BlockPart) -> tuple[Scan, list[Damage]]:
        """Return the scanned block and its damage, with offsets in the file.

        Raises StoreChanged if the block is not the planned one.
        """
        if self._place.snapshot:
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
        from natsd.store.backup.snapshot_map import EntryPlace, read_body

        try:
            data = read_body(self._snapshot, EntryPlace(part.file, part.offset, part.end))
        except DamagedEncoding:
            data = b""
        if checksum(data) != part.seed:
            raise StoreChanged(
                f"{self._place.snapshot} has changed since the read was planned: start it again"
            )
        scan = Scan(data, proven=part.end)
        return scan, scan.damage

    def path_of(self, part: BlockPart) -> Path:
        """Return the path of a block's file; for a snapshot's entry it only serves error texts."""
        return Path(self._place.snapshot or self._place.directory) / part.file


def patched(data: bytes, part: BlockPart) -> bytes:
    """Return the bytes of the file with the journal's patch applied."""
    data = data.ljust(part.patch_offset, b"\0")
    return data[: part.patch_offset] + part.patch + data[part.patch_offset + len(part.patch) :]


def read_store(
    store_range: StoreRange,
    names: Sequence[str] = NAMES,
    max_rows: int = 10_000,
    max_bytes: int = 8 << 20,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range, in batches of at most `max_rows` rows and `max_bytes` bytes.

    A batch may exceed `max_bytes` by one message. Blocks on the disk. Raises DamagedMessages,
    StoreChanged, StoreNotReadable, StoreError, OSError.
    """
    from natsd.spark.rows.arrow import BatchWrapper

    batch, wrapper = MessageBatch(names, max_rows, max_bytes), BatchWrapper(names)
    batch.stream = store_range.request.stream
    reader = BlockReader(store_range.place)
    lost = 0
    try:
        for part in store_range.blocks:
            records, damage = open_records(reader, store_range, part)
            if records is not None:
                while records.fill(batch):
                    yield wrapper.take(batch)
            lost += _note_lost(reader, store_range, part, records, damage)
    finally:
        reader.close()
    if batch.rows:
        yield wrapper.take(batch)
    if lost:
        _logger.warning(
            '%d messages of stream "%s" left out: damaged', lost, store_range.request.stream
        )


def open_records(
    reader: BlockReader, store_range: StoreRange, part: BlockPart
) -> tuple[Records | None, list[Damage]]:
    """Return the wanted messages of a block and its damage; None: the block is unreadable.

    Raises DamagedMessages if a wanted message is damaged, unless data loss is allowed.
    """
    request = store_range.request
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
    """Yield each lost run of the part: first and last sequence, and a text that names the place."""
    for first, last, where in part.damage:
        yield first, last or part.last, where
    if records is None:
        yield part.first, part.last, describe_damage(reader.path_of(part), damage[0])
        return
    for first, last in records.missing().runs():
        found = next((d for d in damage if d.covers(first)), None)
        path = reader.path_of(part)
        yield first, last, describe_damage(path, found) if found else f"{path}: not in the block"


def describe_damage(path: Path, damage: Damage) -> str:
    """Return one line that describes the damage."""
    return f"{path}: {damage.what} at byte {damage.offset} ({damage.length} bytes)"


def _note_lost(
    reader: BlockReader,
    store_range: StoreRange,
    part: BlockPart,
    records: Records | None,
    damage: list[Damage],
) -> int:
    """Log the messages left out of a range that may lose data; return their number."""
    if store_range.request.fail_on_data_loss:
        return 0
    total = 0
    for first, last, where in losses(reader, part, records, damage):
        first, last = max(first, part.first), min(last, part.last)
        total += last - first + 1
        _logger.warning("messages %d to %d left out: %s", first, last, where)
    return total


# Planning that must read blocks


def only_last_of_subjects(store_range: StoreRange) -> list[BlockPart]:
    """Return the blocks that hold the last message of a subject, with all others marked dead."""
    seen = SubjectIndex()
    parts: list[BlockPart] = []
    with contextlib.closing(BlockReader(store_range.place)) as reader:
        for part in reversed(store_range.blocks):
            records, _ = open_records(reader, store_range, part)
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


def first_at(all_blocks: StoreRange, time_ns: int) -> int | None:
    """Return the first sequence at or after a time, by a binary search that reads blocks.

    None: there is no such message.
    """
    request = replace(all_blocks.request, start_time_ns=time_ns, fail_on_data_loss=False)
    place, blocks, found = all_blocks.place, all_blocks.blocks, None
    low, high = 0, len(blocks)
    with contextlib.closing(BlockReader(place)) as reader:
        while low < high:
            middle = (low + high) // 2
            part = blocks[middle]
            records, _ = open_records(reader, StoreRange(place, request, (part,)), part)
            first = records.first_wanted() if records is not None else None
            if first is None:
                low = middle + 1
            else:
                found, high = first, middle
    return found
