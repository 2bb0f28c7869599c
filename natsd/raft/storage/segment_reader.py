"""A segment as a start finds it: its batches, and whether what follows them is torn or damaged.

    │ header │ batch 7 │ batch 8 │ ??? │ zeros      │
                                   torn: a sector of it holds zeros, since it was never written
                                   damaged: all its sectors hold something, and it does not verify

Promise
- Nothing is written here.
- A batch counts only if all its entries verify, or if a later batch proves that it was synced.
- Records are given back as they were before they were encrypted (sealing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from natsd.raft.storage.errors import LogsUnreadableError
from natsd.raft.storage.records import (
    END,
    ROOM,
    SEALED_VERSION,
    ZERO_SECTOR,
    Record,
    count_zero_sectors,
    read_end,
)
from natsd.raft.storage.sealing import LogKey, SegmentSeal, key_is_missing
from natsd.store.disk.disk import Disk
from natsd.store.disk.doubled_file import read_contents
from natsd.store.disk.holes import PAGE_BYTES
from natsd.store.wal.entries import decode_entries
from natsd.store.wal.format import (
    HEADER_BYTES,
    SECTOR_BYTES,
    Batch,
    Header,
    find_batches,
    read_batch_header,
    read_headers,
)

FLIPPED_BITS_MAX = (
    8  # a sector with no more bits set than this is unwritten, and a few bits flipped
)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch whose header verifies, with those of its records that verify."""

    number: int
    offset: int
    end: int
    records: list[Record]
    is_whole: bool


@dataclass(slots=True)
class ReadSegment:
    """A segment as it was found; damage is a list of offsets and descriptions."""

    path: Path
    number: int
    batches: list[ReadBatch]
    damage: list[tuple[int, str]]
    end_damage: str
    """What is wrong behind the last whole batch, if that is no torn batch; else empty."""
    is_unbegun: bool = False
    """It has no header, and nothing was written to it."""

    @property
    def end(self) -> int:
        """Offset of the first byte behind the last batch that counts."""
        return self.batches[-1].end if self.batches else HEADER_BYTES


def segment_number(name: str, prefix: str) -> int:
    """Return the number in the name of a segment; 0: it is none."""
    head, _, digits = name.partition(".")
    is_number = head == prefix and digits.isdecimal() and not digits.startswith("0")
    return int(digits) if is_number else 0


def read_segment(
    disk: Disk, path: Path, number: int, magic: bytes, key: LogKey | None
) -> ReadSegment:
    """Read one segment; `key` is that of the logs, None: they are plain.

    Blocks. Raises `OSError`, EncryptionError, and LogsUnreadableError if the file is of a later
    version.
    """
    contents = read_contents(disk, path)
    data, damage = contents.data, [(hole, "cannot be read") for hole in contents.holes]
    headers = read_headers(data)
    if any(each.magic == magic and each.version > SEALED_VERSION for each in headers):
        raise LogsUnreadableError(path, "was written by a later version of natsd")
    good = [each for each in headers if each.magic == magic and each.epoch == number]
    if not good:
        is_unbegun = not damage and not data[HEADER_BYTES:].strip(b"\0")
        lost = "" if is_unbegun else "no header verifies; the batches are lost"
        return ReadSegment(path, number, [], damage, lost, is_unbegun)
    seed = good[0].seed
    seal = _seal_of(path, good[0], key)
    found = find_batches(data, seed)
    if len(good) == 1 and found.batches:
        damage.append((0, "a copy of the header does not verify"))
    damage += [(start, f"{end - start} bytes are no batch") for start, end in found.gaps]
    batches = [_read_batch(data, seed, batch, seal) for batch in found.batches]
    if batches and not batches[-1].is_whole:  # nothing in this segment proves that it was synced
        batches.pop()
        end_damage = _damage_of_last(data, seed, found.batches[-1], contents.holes)
    else:
        end_damage = _damage_behind(data, found.end, seed, contents.holes)
    if not end_damage and _is_cut_off(data, batches):
        end_damage = "the file is cut off"
    return ReadSegment(path, number, batches, damage, end_damage)


def _seal_of(path: Path, header: Header, key: LogKey | None) -> SegmentSeal | None:
    """Return the encryption of a segment; None: it is plain, and may be. Raises EncryptionError."""
    if header.version == SEALED_VERSION:
        if key is None:
            raise key_is_missing(path, path.parent)
        return key.segment(path, header.epoch, header.seed)
    if key is not None:
        key.check_plain(path)
    return None


def _read_batch(data: bytes, seed: int, batch: Batch, seal: SegmentSeal | None) -> ReadBatch:
    records = decode_entries(seed, data, batch.offset, batch.size)
    whole = [(kind, name, at, body) for kind, name, at, body in records if body is not None]
    is_whole = len(whole) == batch.count and bool(whole) and whole[-1][0] == END
    if seal is not None:
        whole, are_all_here = seal.opened(batch.number, whole)
        is_whole &= are_all_here
    return ReadBatch(batch.number, batch.offset, batch.end, whole, is_whole)


def _damage_of_last(data: bytes, seed: int, batch: Batch, holes: tuple[int, ...]) -> str:
    """Return what is wrong with a last batch whose header verifies; empty: it is torn."""
    if _has_hole(holes, batch.offset, batch.end):
        return "the last batch cannot be read"
    if len(data) < batch.end:
        return ""
    zeros = read_end(seed, data, batch)
    if zeros is None:
        is_torn = data[batch.end - SECTOR_BYTES : batch.end] == ZERO_SECTOR
    else:
        is_torn = count_zero_sectors(data[batch.offset : batch.end]) > zeros
    return "" if is_torn else "the last batch does not verify"


def _damage_behind(data: bytes, end: int, seed: int, holes: tuple[int, ...]) -> str:
    """Return what is wrong behind the last whole batch; empty: nothing, or a torn batch."""
    if _has_hole(holes, end, len(data)):
        return "bytes behind the last batch cannot be read"
    sector = data[end : end + SECTOR_BYTES]
    if len(sector) < SECTOR_BYTES or read_batch_header(data, end, seed) is not None:
        return ""
    if int.from_bytes(sector, "little").bit_count() <= FLIPPED_BITS_MAX:
        return ""
    return "the header of the last batch does not verify"


def _is_cut_off(data: bytes, batches: list[ReadBatch]) -> bool:
    """Tell whether the file was longer once.

    What a failed write has left is cut off at the end of the last batch.
    """
    room = max(
        (at for each in batches for kind, _, at, _ in each.records if kind == ROOM), default=0
    )
    return len(data) < room and len(data) != batches[-1].end


def _has_hole(holes: tuple[int, ...], start: int, end: int) -> bool:
    return any(hole < end and start < hole + PAGE_BYTES for hole in holes)
