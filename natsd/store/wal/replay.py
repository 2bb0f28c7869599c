"""Replay of a volume's journal into the files, after a crash and before any store opens.

Promise
- Batches are replayed in the order of their numbers, so that the last write of a place wins and a
  FORGET undoes all entries of its path before it.
- Nothing is written unless its checksum verifies. A batch or entry that does not verify is skipped.
  It is reported as damage if something that was synced later proves that it was whole once; at the
  end of the journal it was torn by the crash and never acknowledged.
- The journal is removed only when all bytes it wrote are synced, and the directories of the files
  that it created too. A crash on the way does no harm: the same bytes are written again. A damaged
  segment is renamed (`.damaged`), not removed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from natsd.store.disk.disk import Disk, DiskFile
from natsd.store.disk.doubled_file import read_contents
from natsd.store.wal.entries import decode_entries
from natsd.store.wal.format import (
    HEADER_BYTES,
    Batch,
    Header,
    find_batches,
    read_headers,
)
from natsd.store.wal.write_ahead_log import (
    FILE_HEADER_BYTES,
    FORGET,
    HEADER_MAGIC,
    IDENTITY,
    SEGMENT_NAMES,
    VERSION,
    WRITE,
    JournalDamage,
    file_identity,
)

SET_ASIDE = ".damaged"


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    `files` were written, `bytes` in all. `foreign`: files of which some entries were not written,
    since these belong to an earlier file at the same path.
    """

    files: list[Path] = field(default_factory=list)
    bytes: int = 0
    foreign: list[Path] = field(default_factory=list)
    damage: list[JournalDamage] = field(default_factory=list)


@dataclass(slots=True)
class ReadSegment:
    """A segment as it was found; `end` is the first byte after its last batch."""

    path: Path
    data: bytes
    seed: int
    batches: list[Batch]
    end: int


Pieces = list[tuple[int, int, bytes]]  # file's identity (0: unknown), offset, data
Writes = dict[Path, Pieces]


def replay(disk: Disk, root: Path) -> Replayed:
    """Replay the journal of the volume in `root` and remove it. Blocks. Raises `OSError`."""
    result = Replayed()
    segments = []
    paths = [path for name in SEGMENT_NAMES if disk.exists(path := root / name)]
    for path in paths:
        segment = read_segment(disk, path, result.damage)
        if segment is not None and segment.batches:
            segments.append(segment)
    segments.sort(key=lambda segment: segment.batches[0].number)
    report_missing_batches(segments, result.damage)
    writes: Writes = {}
    for segment in segments:
        for batch in segment.batches:
            is_last = segment is segments[-1] and batch is segment.batches[-1]
            whole = collect(segment, batch, root, writes)
            if not whole and not is_last:
                result.damage.append(JournalDamage(segment.path, batch.offset, "damaged batch"))
    write_files(disk, writes, result)
    # Older segments go first, each removal synced before the next: a newer one has the FORGETs.
    ordered = [segment.path for segment in segments]
    damaged = {damage.path for damage in result.damage}
    for path in [*(path for path in paths if path not in ordered), *ordered]:
        if path in damaged:
            disk.rename(path, path.with_name(path.name + SET_ASIDE))
        else:
            disk.unlink(path)
        disk.sync_dir(root)
    return result


def read_segment(disk: Disk, path: Path, damage: list[JournalDamage]) -> ReadSegment | None:
    """Read one file; return None if neither copy of its header verifies."""
    contents = read_contents(disk, path)
    data = contents.data
    damage += [JournalDamage(path, hole, "cannot be read") for hole in contents.holes]
    valid = [header for header in read_headers(data) if _is_journal(header)]
    if not valid:
        # A segment's header is synced before its first batch: bytes behind it mean it was synced.
        if data[HEADER_BYTES:].count(0) != len(data[HEADER_BYTES:]):
            damage.append(JournalDamage(path, 0, "no header verifies; its batches are lost"))
        return None
    seed = max(valid).seed
    found = find_batches(data, seed)
    damage += [
        JournalDamage(path, start, f"{end - start} bytes are no batch") for start, end in found.gaps
    ]
    return ReadSegment(path, data, seed, found.batches, found.end)


def _is_journal(header: Header) -> bool:
    return header.magic == HEADER_MAGIC and header.version <= VERSION


def report_missing_batches(segments: list[ReadSegment], damage: list[JournalDamage]) -> None:
    """Report batches that are missing between the end of a segment and the next segment."""
    for older, newer in pairwise(segments):
        missing = newer.batches[0].number - older.batches[-1].number - 1
        if missing:
            damage.append(JournalDamage(older.path, older.end, f"{missing} batches are missing"))


def collect(segment: ReadSegment, batch: Batch, root: Path, writes: Writes) -> bool:
    """Add the batch's entries that verify to `writes`; return whether all of them verify."""
    found = 0
    for kind, name, offset, data in decode_entries(
        segment.seed, segment.data, batch.offset, batch.size
    ):
        if data is None:
            continue
        found += 1
        identity = 0
        if kind == WRITE and len(name) >= IDENTITY.size:
            (identity,) = IDENTITY.unpack_from(name, len(name) - IDENTITY.size)
            name = name[: -IDENTITY.size]
        path = root / os.fsdecode(name)
        if kind == FORGET:
            writes.pop(path, None)
        else:
            writes.setdefault(path, []).append((identity, offset, data))
    return found == batch.count


def write_files(disk: Disk, writes: Writes, result: Replayed) -> None:
    """Write and sync every file.

    A file whose directory is gone was removed together with it, and is skipped.
    """
    made_in = set()
    for path, pieces in writes.items():
        if not disk.exists(path.parent):
            continue
        if not disk.exists(path):
            made_in.add(path.parent)
        file = disk.open(path, create=True)
        try:
            write_pieces(file, own_pieces(file, pieces, result), result)
        finally:
            file.close()
    for directory in made_in:
        disk.sync_dir(directory)


def own_pieces(file: DiskFile, pieces: Pieces, result: Replayed) -> Pieces:
    """Return the pieces that are meant for this file, not for an earlier file at its path.

    If the file's header never reached the disk, or is damaged, the file is taken for the one that
    was written last.
    """
    identity = file_identity(file.pread(FILE_HEADER_BYTES, 0)) or pieces[-1][0]
    own = [piece for piece in pieces if piece[0] in (0, identity)]
    if len(own) < len(pieces):
        result.foreign.append(file.path)
    return own


def write_pieces(file: DiskFile, pieces: Pieces, result: Replayed) -> None:
    """Write a file's pieces at their offsets, and sync the file."""
    for _, offset, data in pieces:
        file.pwrite(data, offset)
        result.bytes += len(data)
    if pieces:
        file.fdatasync()
        result.files.append(file.path)
