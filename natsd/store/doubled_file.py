"""Small files that hold everything twice, and appear whole or not at all.

    ┌─────────────────────────────┬────────┬─────────────────────────────┬────────┐
    │ copy                        │ zeros  │ the same copy               │ zeros  │
    └─────────────────────────────┴────────┴─────────────────────────────┴────────┘
    0                                      half: a multiple of 4,096     2 × half = file size

    copy (little-endian)  0 magic, 8 bytes · 8 body length u64 · 16 body … · XXH64 of all before it,
                          seeded with the number of the copy, 0 or 1

Promise
- Either copy alone gives the body, so neither a flipped bit, nor a bad sector or page, nor a cut at
  any place of one half costs anything; what is damaged is reported, and can be written anew.
- The number in the checksum tells the copies apart: a body that contains a whole file of this kind,
  or a half that was written to the wrong place, passes for nothing.
- `replace` leaves the old file or the new one, whatever happens, and returns when the new is on
  disk.
"""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.disk import Disk
from natsd.store.holes import Contents, read_all
from natsd.store.record import checksum

PAGE_BYTES: Final = 4096
HEADER: Final = struct.Struct("<8sQ")
CHECKSUM: Final = struct.Struct("<Q")
OVERHEAD_BYTES: Final = HEADER.size + CHECKSUM.size
UNFINISHED_SUFFIX: Final = ".new"


@dataclass(frozen=True, slots=True)
class CopyDamage:
    """A copy that does not verify: where it is in the file, and how long its half is."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Doubled:
    """What a doubled file says: its body, or None if no copy verifies; and which copies do not."""

    body: bytes | None
    damage: tuple[CopyDamage, ...]


def encode_doubled(magic: bytes, body: bytes) -> bytes:
    """All bytes of the file."""
    assert len(magic) == 8
    start = HEADER.pack(magic, len(body)) + body
    half = -(-(len(start) + CHECKSUM.size) // PAGE_BYTES) * PAGE_BYTES
    return b"".join(
        (start + CHECKSUM.pack(checksum(start, copy))).ljust(half, b"\0") for copy in (0, 1)
    )


def decode_doubled(magic: bytes, data: bytes) -> Doubled:
    """Read all bytes of a file; never raises."""
    half = _half(magic, data)
    bodies = [_read_copy(magic, data, copy * half, copy) for copy in (0, 1)]
    # Behind a copy are zeros; anything else there is damage too, though it costs nothing.
    whole = [
        body is not None and _is_padded(data[copy * half : (copy + 1) * half], len(body), half)
        for copy, body in enumerate(bodies)
    ]
    damage = tuple(CopyDamage(copy * half, half) for copy in (0, 1) if not whole[copy])
    body = next((body for body in bodies if body is not None), None)
    if body is not None and not damage and len(data) != 2 * half:
        damage = (CopyDamage(2 * half, len(data) - 2 * half),)
    return Doubled(body, damage)


def replace_doubled(disk: Disk, path: Path, magic: bytes, body: bytes) -> None:
    """Write the file anew; on disk on return, with the name it is found by. Blocks."""
    replace_file(disk, path, encode_doubled(magic, body))


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Give `path` this content, at once and on disk. Errors are `OSError`s; the old file is
    left."""
    unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
    file = disk.open(unfinished, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fsync()
    finally:
        file.close()
    disk.rename(unfinished, path)
    disk.sync_dir(path.parent)


def read_file(disk: Disk, path: Path) -> bytes:
    """Return all of a file, with zeros where the disk gives nothing back. Blocks; raises
    `OSError`."""
    return read_contents(disk, path).data


def read_contents(disk: Disk, path: Path) -> Contents:
    """Return all of a file, and what of it cannot be read. Blocks; raises `OSError`."""
    with contextlib.closing(disk.open(path, write=False)) as file:
        return read_all(file)


def _half(magic: bytes, data: bytes) -> int:
    """Where the second copy begins: by the first one if that verifies, or else by the file's
    size."""
    first = _read_copy(magic, data, 0, 0)
    if first is not None:
        return -(-(len(first) + OVERHEAD_BYTES) // PAGE_BYTES) * PAGE_BYTES
    return max(len(data) // 2 // PAGE_BYTES, 1) * PAGE_BYTES


def _read_copy(magic: bytes, data: bytes, at: int, copy: int) -> bytes | None:
    if at + OVERHEAD_BYTES > len(data):
        return None
    found, length = HEADER.unpack_from(data, at)
    end = at + HEADER.size + length
    if found != magic or end + CHECKSUM.size > len(data):
        return None
    (expected,) = CHECKSUM.unpack_from(data, end)
    return data[at + HEADER.size : end] if checksum(data[at:end], copy) == expected else None


def _is_padded(half_bytes: bytes, body_length: int, half: int) -> bool:
    padding = half_bytes[OVERHEAD_BYTES + body_length :]
    return len(half_bytes) == half and padding == bytes(len(padding))
