"""A sequence of segment files that batches are appended to; the newest takes the next batch.

    log.3  full   log.4  full   log.5  current, preallocated

A job gets the steps of one batch: one write and one sync, and for the first batch of a segment its
header before. The batch counts when the job has succeeded (`committed`); if the job failed, the
next batch takes its place.

One batch is under way at a time, so that a batch proves that those before it were synced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from natsd.raft.storage.records import (
    ROOM,
    SEALED_VERSION,
    VERSION,
    Record,
    Touch,
    last_records,
    touched_record,
)
from natsd.raft.storage.sealing import LogKey, SegmentSeal
from natsd.store.disk.disk import CommitJob, Disk, DiskFile
from natsd.store.wal.entries import encode_entries, grown_allocation
from natsd.store.wal.format import HEADER_BYTES, encode_batch, encode_header

HEADS_PER_SEGMENT = 4  # a segment is at least so many times as long as its first batch
ZEROS_BYTES_MAX = 256 << 10
SMALL_BYTES = 16 << 10
"""Smaller batches go where zeros were written.

To sync them takes two thirds of the time: where space is only reserved, each sync has the file
system note, too, what of it is written by now. Larger ones would have twice as much to write.
"""


@dataclass(slots=True, eq=False)
class Segment:
    """One file; `end` is the first byte behind its last batch."""

    path: Path
    number: int
    end: int


@dataclass(slots=True, eq=False)
class _Current:
    """The segment that takes batches."""

    segment: Segment
    file: DiskFile
    seed: int
    seal: SegmentSeal | None  # None: it is not encrypted
    is_begun: bool = False  # its header is on disk
    room: int = 0  # size of the file, with the space reserved in it
    told_room: int = 0  # that size as the batches tell it


@dataclass(frozen=True, slots=True)
class _Staged:
    """A batch that is under way."""

    current: _Current
    end: int
    touched: list[Touch]
    told_room: int
    has_grown: bool  # space was reserved for it


class LogFiles:
    """The writing side of one sequence of segments."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        prefix: str,
        magic: bytes,
        random_bytes: Callable[[int], bytes],
        bytes_max: int,
        old: Sequence[Segment],
        last_segment: int,
        last_batch: int,
        last_touched: list[Touch],
        key: LogKey | None,
    ) -> None:
        """Begin a new segment behind the old ones, which get no more batches.

        It is encrypted if there is a key. `last_touched` is what the last batch of the old ones
        wrote.
        """
        self._disk = disk
        self._directory = directory
        self._prefix = prefix
        self._magic = magic
        self._random_bytes = random_bytes
        self._bytes_max = bytes_max
        self._full_at = bytes_max
        self._key = key
        self.segments = list(old)
        self._next_batch = last_batch + 1
        self._next_segment = last_segment + 1
        self._current: _Current | None = None
        self._fresh: _Current | None = None  # created, and without a batch yet
        self._staged: _Staged | None = None
        self._has_failed = False  # the batch before was not written, or only a part of it
        self._touched = last_touched  # by the batch before

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.end for segment in self.segments)

    @property
    def begins_segment(self) -> bool:
        """Whether the next batch begins a segment, so that it must start with its head."""
        return self._current is None or self._current.segment.end >= self._full_at

    @property
    def next_number(self) -> int:
        """Number of the segment that the next batch goes to."""
        if self.begins_segment or self._current is None:
            return self._next_segment
        return self._current.segment.number

    def add(self, job: CommitJob, records: list[Record], touched: list[Touch]) -> DiskFile:
        """Add the steps that write a batch; return the file, which is yet to be synced."""
        assert self._staged is None, "one batch at a time"
        current = self._open_segment() if self.begins_segment else self._current
        assert current is not None
        number, start = self._next_batch, current.segment.end
        room = current.room
        if room > current.told_room:
            records.insert(0, (ROOM, b"", room, b""))
        records.insert(0, touched_record(number - 1, self._touched))
        if current.seal is not None:
            records = current.seal.sealed(number, records)
        encoded = encode_entries(current.seed, records)
        count, last = last_records(number, current.seed, encoded)
        batch = encode_batch(current.seed, number, len(records) + count, encoded + last)
        end = start + len(batch)
        has_grown = self._make_room(job, current, start, end)
        self._staged = _Staged(current, end, touched, room, has_grown)
        job.write(current.file, batch, start)
        return current.file

    def _make_room(self, job: CommitJob, current: _Current, start: int, end: int) -> bool:
        """Add the steps that reserve space for a batch, if it lacks any; return whether."""
        if not current.is_begun:
            job.truncate(current.file, 0)
            self._reserve(job, current, 0, end)
            version = VERSION if current.seal is None else SEALED_VERSION
            header = encode_header(self._magic, version, current.segment.number, current.seed)
            job.write(current.file, header, 0)
            job.datasync(current.file)
            job.sync_directory(self._directory)
        elif self._has_failed:  # a longer batch may have left bytes there
            job.truncate(current.file, start)
            self._reserve(job, current, start, end)
        elif end > current.room:
            self._reserve(job, current, start, end)
        else:
            return False
        return True

    def _reserve(self, job: CommitJob, current: _Current, start: int, end: int) -> None:
        """Add the step that reserves space for a batch, and for some that follow."""
        wanted = grown_allocation(end, self._bytes_max)
        if end - start < SMALL_BYTES:
            job.write_zeros(current.file, end, min(wanted - end, ZEROS_BYTES_MAX))
        else:
            job.allocate(current.file, start, wanted - start)

    def _open_segment(self) -> _Current:
        if self._fresh is None:
            path = self._directory / f"{self._prefix}.{self._next_segment}"
            file = self._disk.open(path, create=True, exclusive=True)
            seed = int.from_bytes(self._random_bytes(8), "little")
            key, number = self._key, self._next_segment
            seal = None if key is None else key.segment(path, number, seed)
            self._fresh = _Current(Segment(path, number, HEADER_BYTES), file, seed, seal)
        return self._fresh

    def committed(self) -> None:
        """Note that the batch is on disk."""
        staged, self._staged = self._staged, None
        self._has_failed = False
        assert staged is not None
        if staged.current is self._fresh:
            if self._current is not None:
                self._current.file.close()
            self._current, self._fresh = self._fresh, None
            self._current.is_begun = True
            self.segments.append(self._current.segment)
            self._next_segment += 1
            self._full_at = max(self._bytes_max, HEADS_PER_SEGMENT * staged.end)
        staged.current.segment.end = staged.end
        staged.current.told_room = staged.told_room
        if staged.has_grown:
            staged.current.room = staged.current.file.size()
        self._touched = staged.touched
        self._next_batch += 1

    def failed(self) -> None:
        """Note that the batch was not written; the next one takes its place."""
        self._staged = None
        self._has_failed = True

    def removed(self, segment: Segment) -> None:
        """Forget a segment whose file is being removed."""
        self.segments.remove(segment)

    def close(self) -> None:
        """Close the files."""
        for each in (self._current, self._fresh):
            if each is not None:
                each.file.close()
