"""The write-ahead log of a volume: one file whose sync commits many stores at once.

A thousand streams that each commit 200 bytes would cost a thousand syncs; a sync of one file that
holds all of them costs one. So where many stores are dirty, their extents are written to their
files without a sync, and once more, together, to the journal, which is synced. Later a checkpoint
syncs the files and frees the journal. After a crash the journal's content is written into the
files before any store opens them.

    journal.0, journal.1: one takes new batches while the other is checkpointed

    An entry's name is the path below the volume's directory; in a WRITE the file's identity u64
    follows it. Its offset is the offset in that file. format.py draws the bytes.

Promise
- All checksums are seeded with the segment's random seed, so neither a batch of an earlier epoch
  nor a batch inside a message's payload is taken for a batch of this epoch.
- Batch numbers count on across segments and epochs: a number missing in between is damage, reported
  with file and offset; batches missing at the end were torn, and never acknowledged.
- A FORGET entry cancels all earlier entries of a path. It is on disk before the file is replaced,
  cut or overwritten in place, or another file gets its path. So replay writes only bytes that the
  files hold already, or would hold if the power had stayed on.
- A WRITE names the file's identity, the random number in its header (`file_identity`), beside its
  path: bytes meant for one file are never written into another file that later got its path.
- An epoch has ended on disk before its paths count as free; a failed checkpoint ends no epoch.

Source: docs/store.md; committer.py has the measurements behind it. The layout is our own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from natsd.store.disk.disk import Buffer, CommitJob, Disk, DiskFile, below
from natsd.store.wal.entries import Extent, encode_entries, grown_allocation
from natsd.store.wal.format import (
    CHECKSUM,
    ENTRY_HEADER_BYTES,
    HEADER_BYTES,
    batch_bytes,
    encode_batch,
    encode_header,
)

SEGMENT_NAMES = ("journal.0", "journal.1")
SEGMENT_BYTES_MAX = 64 << 20
HEADER_MAGIC = b"NATSDJNL"
VERSION = 2
FORGET = 2
WRITE = 3
WRITE_ANY = 1  # a WRITE of version 1, which has no identity
IDENTITY = struct.Struct("<Q")
FILE_HEADER_BYTES = 64
ZEROS = bytes(1 << 20)

JournalEntry = tuple[int, bytes, int, Buffer]  # kind, name, offset, data


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Bytes of a journal that were synced once and do not verify now."""

    path: Path
    offset: int
    what: str


@dataclass(slots=True, eq=False)
class Segment:
    """One of the two journal files.

    `end` is the offset of the next batch; `paths` are those that its batches write to.
    """

    path: Path
    file: DiskFile
    epoch: int
    seed: int
    end: int = HEADER_BYTES
    is_new: bool = True
    paths: set[Path] = field(default_factory=set)
    directories: set[Path] = field(default_factory=set)  # all above the paths, also forgotten ones

    def add_paths(self, paths: Iterable[Path]) -> None:
        """Note paths that a batch writes to."""
        for path in set(paths) - self.paths:
            self.paths.add(path)
            self.directories.update(path.parents)


@dataclass(frozen=True, slots=True)
class _LastWrite:
    """The journal's state before the last batch, to undo it until the batch is submitted."""

    segment: Segment
    end: int
    is_new: bool
    number: int


def file_identity(header: bytes) -> int:
    """Return the identity of a file from its first 64 bytes; 0 if they are not a whole header.

    The headers of blocks (record.pxd) and of consumers' logs (consumer_log.pxd) are alike: 64
    bytes, the file's random seed at 16, and at 56 the XXH64 of all bytes before.
    """
    covered = header[: FILE_HEADER_BYTES - CHECKSUM.size]
    checksum = header[FILE_HEADER_BYTES - CHECKSUM.size : FILE_HEADER_BYTES]
    if checksum != CHECKSUM.pack(xxhash.xxh64_intdigest(covered)):
        return 0
    return int(IDENTITY.unpack_from(header, 16)[0])


class WriteAheadLog:
    """The writing side: the place of the next batch, and the paths that the journal writes to.

    It adds steps to jobs and does the bookkeeping; the journal's driver submits the jobs and
    reports their results.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        random_bytes: Callable[[int], bytes],
        *,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self._disk = disk
        self._root = root
        self._prefix = os.path.join(os.fsencode(root), b"")
        self._random_bytes = random_bytes
        self._segment_bytes_max = segment_bytes_max
        self._segments: list[Segment] = []
        self._next_epoch = 1
        self._next_number = 1
        self._names: dict[Path, tuple[int, bytes]] = {}  # each path's identity and encoded name
        self._last_write: _LastWrite | None = None
        self.is_usable = True  # it takes writes
        self.is_broken = False  # it takes neither writes nor forgets
        # Set by JournalDriver while it syncs their files.
        self.checkpointing: Sequence[Segment] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches in the segments."""
        return sum(segment.end - HEADER_BYTES for segment in self._segments)

    @property
    def is_nearly_full(self) -> bool:
        """Whether the next batch may find no room before a segment is retired."""
        if not self._segments:
            return False
        current, other = self._segments[-1], self._segments[0]
        if current in self.checkpointing:
            return True
        if current.end + self._segment_bytes_max // 8 <= self._segment_bytes_max:
            return False
        return other is not current and (other.end > HEADER_BYTES or other in self.checkpointing)

    def speaks_of(self, path: Path) -> bool:
        """Return whether replay would write to this path."""
        return any(path in segment.paths for segment in self._segments)

    def paths_below(self, directory: Path) -> list[Path]:
        """Return the paths in that directory, at any depth, that replay would write to."""
        # A creation asks for its new directory, which no segment knows, beside thousands of paths.
        known = [segment.paths for segment in self._segments if directory in segment.directories]
        return below(directory, set().union(*known))

    def add_writes(self, job: CommitJob, extents: Sequence[Extent]) -> bool:
        """Add the steps that write these extents to the journal and sync it.

        Return False if the journal has no room now; then nothing was added. Raises `OSError` if a
        segment cannot be created.
        """
        entries = [(WRITE, self._name(e.file.path, e.identity), e.offset, e.data) for e in extents]
        size = sum(len(name) + len(data) for _, name, _, data in entries)
        segment = None
        if self.is_usable:
            segment = self._segment_with_room(self._batch_bytes(len(entries), size))
        if segment is None:
            return False
        self._last_write = _LastWrite(segment, segment.end, segment.is_new, self._next_number)
        self._add_steps(job, segment, self._batch(segment, entries))
        segment.add_paths(extent.file.path for extent in extents)
        return True

    def take_back(self) -> None:
        """Undo the bookkeeping of the last `add_writes`, none of whose steps was begun."""
        assert self._last_write is not None
        segment = self._last_write.segment
        segment.end = self._last_write.end
        segment.is_new = self._last_write.is_new
        self._next_number = self._last_write.number
        self._last_write = None

    def add_forgets(self, job: CommitJob, paths: Sequence[Path]) -> bool:
        """Add the steps that make replay forget these paths.

        Return False if the journal has no room now; then nothing was added. The entries are written
        in two batches, so that one damaged batch revives nothing. A journal that takes no more
        writes still takes these, up to twice its size. Raises `OSError` if a segment cannot be
        created.
        """
        names = [self._path_name(path) for path in paths]
        size = 2 * self._batch_bytes(len(names), sum(map(len, names)))
        segment = self._segment_with_room(size)
        if segment is None:
            return False
        entries = [(FORGET, name, 0, b"") for name in names]
        batches = self._batch(segment, entries) + self._batch(segment, entries)
        self._add_steps(job, segment, batches)
        return True

    def _batch_bytes(self, entry_count: int, body_bytes: int) -> int:
        return batch_bytes(entry_count * ENTRY_HEADER_BYTES + body_bytes)

    def _batch(self, segment: Segment, entries: Sequence[JournalEntry]) -> bytes:
        encoded = encode_entries(segment.seed, entries)
        batch = encode_batch(segment.seed, self._next_number, len(entries), encoded)
        self._next_number += 1
        return batch

    def _add_steps(self, job: CommitJob, segment: Segment, batch: bytes) -> None:
        end = segment.end + len(batch)
        allocate_to = grown_allocation(end, self._segment_bytes_max)
        if segment.is_new:
            job.allocate(segment.file, 0, allocate_to)
            job.write(
                segment.file, encode_header(HEADER_MAGIC, VERSION, segment.epoch, segment.seed), 0
            )
            job.datasync(segment.file)
            job.sync_directory(self._root)
            segment.is_new = False
        elif allocate_to > grown_allocation(segment.end, self._segment_bytes_max):
            job.allocate(segment.file, segment.end, allocate_to - segment.end)
        job.write(segment.file, batch, segment.end)
        job.datasync(segment.file)
        segment.end = end

    def _segment_with_room(self, size: int) -> Segment | None:
        if self.is_broken or HEADER_BYTES + size > self._segment_bytes_max:
            return None
        current = self._segments[-1] if self._segments else None
        if current is not None and current in self.checkpointing:
            return None
        if current is not None and not self.is_usable:
            return current if current.end + size <= 2 * self._segment_bytes_max else None
        if current is not None and current.end + size <= self._segment_bytes_max:
            return current
        if len(self._segments) < len(SEGMENT_NAMES):
            return self._create_segment()
        if self._segments[0].end == HEADER_BYTES and self._segments[0] not in self.checkpointing:
            self._segments.reverse()
            return self._segments[-1]
        return None

    def _create_segment(self) -> Segment:
        used = {segment.path.name for segment in self._segments}
        path = self._root / next(name for name in SEGMENT_NAMES if name not in used)
        file = self._disk.open(path, create=True)
        segment = Segment(path, file, self._next_epoch, self._new_seed())
        self._next_epoch += 1
        self._segments.append(segment)
        return segment

    def _new_seed(self) -> int:
        return int.from_bytes(self._random_bytes(8), "little")

    def _name(self, path: Path, identity: int) -> bytes:
        known = self._names.get(path)
        if known is None or known[0] != identity:
            name = self._path_name(path) + IDENTITY.pack(identity)
            known = self._names[path] = (identity, name)
        return known[1]

    def _path_name(self, path: Path) -> bytes:
        whole = os.fsencode(path)
        assert whole.startswith(self._prefix), f"{path} is not in the volume"
        return whole[len(self._prefix) :]

    # ---- the end of a path's entries

    def forget(self, path: Path) -> None:
        """Drop a path after its FORGET reached the disk."""
        for segment in self._segments:
            segment.paths.discard(path)
        self._names.pop(path, None)

    # ---- checkpoints

    @property
    def full_segments(self) -> list[Segment]:
        """Segments with batches that take no more batches, older first."""
        return [segment for segment in self.used_segments if segment is not self._segments[-1]]

    @property
    def used_segments(self) -> list[Segment]:
        """Segments with batches, older first."""
        return [segment for segment in self._segments if segment.end > HEADER_BYTES]

    def add_retirement(self, job: CommitJob, segments: Sequence[Segment]) -> None:
        """Add the steps that end the epochs of these segments, in order.

        All files of the segments must be synced.
        """
        for segment in segments:
            segment.epoch = self._next_epoch
            segment.seed = self._new_seed()
            self._next_epoch += 1
            job.write(
                segment.file, encode_header(HEADER_MAGIC, VERSION, segment.epoch, segment.seed), 0
            )
            job.datasync(segment.file)

    def retired(self, segments: Sequence[Segment]) -> None:
        """Empty the segments after the end of their epochs reached the disk."""
        for segment in segments:
            segment.paths.clear()
            segment.directories.clear()
            segment.end = HEADER_BYTES
        self._names.clear()

    def add_wiping(self, job: CommitJob) -> None:
        """Add the steps that overwrite the bytes of all batches; all segments must be retired."""
        for segment in self._segments:
            for offset in range(HEADER_BYTES, segment.file.size(), len(ZEROS)):
                job.write(segment.file, ZEROS[: segment.file.size() - offset], offset)
            job.datasync(segment.file)

    def take_no_writes(self) -> None:
        """Keep the journal's content: from now on it takes only forgets, until it is removed."""
        self.is_usable = False

    def give_up(self) -> None:
        """Take neither writes nor forgets until the journal is removed: a write or sync failed."""
        self.is_usable = False
        self.is_broken = True

    def remove(self) -> None:
        """Remove the files; every file that the journal writes to must be synced.

        The older segment goes first, and its removal is synced before that of the newer: the newer
        may hold the FORGET of entries in the older. Blocks on the disk. Raises `OSError`.
        """
        while self._segments:
            segment = self._segments[0]
            self._disk.unlink(segment.path)
            self._disk.sync_dir(self._root)
            segment.file.close()
            del self._segments[0]
        self.is_usable = True
        self.is_broken = False
