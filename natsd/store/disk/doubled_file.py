"""One small file that holds its content twice.

Every small file of the store is kept in two such files: see twin_file.py.

    ┌─────────────────────────────┬────────┬─────────────────────────────┬────────┐
    │ copy                        │ zeros  │ the same copy               │ zeros  │
    └─────────────────────────────┴────────┴─────────────────────────────┴────────┘
    0                                      half: a multiple of 4,096     2 × half = file size

    copy (little-endian)  0 magic, 8 bytes · 8 payload length u32 · 12 generation u32 · 16 payload …
                          XXH64 of all before it, seeded with the number of the copy, 0 or 1
    payload               length of the place u16 · the place · the body
                          in generation 0, which earlier versions wrote: only the body

Promise
- Either copy alone gives the body. So a flipped bit, a bad sector or page, or a cut of one half
  loses nothing; damage is reported, and the file can be written anew.
- The number in the checksum tells the copies apart: neither a body that contains a whole file of
  this kind, nor a half that was written to the wrong place, is taken for a copy.
- A higher generation is newer. The place says which file of the store directory this is.
"""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.codec.records import checksum
from natsd.store.disk.disk import Disk, rename_synced
from natsd.store.disk.holes import Contents, read_all

PAGE_BYTES: Final = 4096
HEADER: Final = struct.Struct("<8sII")
PLACE_LENGTH: Final = struct.Struct("<H")
CHECKSUM: Final = struct.Struct("<Q")
OVERHEAD_BYTES: Final = HEADER.size + CHECKSUM.size
UNFINISHED_SUFFIX: Final = ".new"


@dataclass(frozen=True, slots=True)
class CopyDamage:
    """A copy that does not verify: the offset of its half in the file, and the length in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a copy; `place` is the path of its file in the store directory."""

    magic: bytes
    body: bytes
    generation: int = 0
    place: str = ""


@dataclass(frozen=True, slots=True)
class Doubled:
    """The content of a doubled file (None: no copy verifies), and the damaged copies."""

    content: Content | None
    damage: tuple[CopyDamage, ...]


def encode_doubled(content: Content) -> bytes:
    """Return all bytes of the file."""
    assert len(content.magic) == 8
    payload = _payload(content)
    start = HEADER.pack(content.magic, len(payload), content.generation) + payload
    half = -(-(len(start) + CHECKSUM.size) // PAGE_BYTES) * PAGE_BYTES
    return b"".join(
        (start + CHECKSUM.pack(checksum(start, copy))).ljust(half, b"\0") for copy in (0, 1)
    )


def decode_doubled(data: bytes) -> Doubled:
    """Read all bytes of a file of any magic; never raise."""
    first = _read_copy(data, 0, 0)
    if first is not None and encode_doubled(first) == data:  # so it is but for damage
        return Doubled(first, ())
    half = _half(data)
    copies = [_read_copy(data, copy * half, copy) for copy in (0, 1)]
    # Other bytes than zeros behind a copy are damage too, although nothing is lost.
    whole = [
        content is not None
        and _is_padded(data[copy * half : (copy + 1) * half], len(_payload(content)), half)
        for copy, content in enumerate(copies)
    ]
    damage = tuple(CopyDamage(copy * half, half) for copy in (0, 1) if not whole[copy])
    found = next((content for content in copies if content is not None), None)
    if found is not None and not damage and len(data) != 2 * half:
        damage = (CopyDamage(2 * half, len(data) - 2 * half),)
    return Doubled(found, damage)


def write_unfinished(disk: Disk, path: Path, data: bytes) -> Path:
    """Write and sync the future content of `path` in a file beside it; return that file's path.

    Blocks on the disk and raises `OSError`.
    """
    unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
    file = disk.open(unfinished, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fsync()
    finally:
        file.close()
    return unfinished


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Replace the content of `path` in one step; it is on disk on return. Blocks.

    Raises UnsyncedRename if the new file is there but may be gone after a power cut, and any other
    `OSError` if the old file is still there.
    """
    rename_synced(disk, write_unfinished(disk, path, data), path)


def read_file(disk: Disk, path: Path) -> bytes:
    """Return all bytes of a file, with zeros for unreadable pages.

    Blocks on the disk and raises `OSError`.
    """
    return read_contents(disk, path).data


def read_contents(disk: Disk, path: Path) -> Contents:
    """Return all bytes of a file and the places of its unreadable pages.

    Blocks on the disk and raises `OSError`.
    """
    with contextlib.closing(disk.open(path, write=False)) as file:
        return read_all(file)


def _half(data: bytes) -> int:
    """Return the offset of the second copy in bytes.

    It follows from the first copy if that verifies, otherwise from the file's size.
    """
    first = _read_copy(data, 0, 0)
    if first is not None:
        return -(-(len(_payload(first)) + OVERHEAD_BYTES) // PAGE_BYTES) * PAGE_BYTES
    return max(len(data) // 2 // PAGE_BYTES, 1) * PAGE_BYTES


def _payload(content: Content) -> bytes:
    """Return the payload of a copy: place and body, or only the body in generation 0."""
    if content.generation == 0:
        return content.body
    place = content.place.encode("utf-8", "surrogateescape")
    return PLACE_LENGTH.pack(len(place)) + place + content.body


def _read_copy(data: bytes, at: int, copy: int) -> Content | None:
    """Return the content of the copy at this offset; None if it does not verify."""
    if at + OVERHEAD_BYTES > len(data):
        return None
    magic, length, generation = HEADER.unpack_from(data, at)
    end = at + HEADER.size + length
    if end + CHECKSUM.size > len(data):
        return None
    (expected,) = CHECKSUM.unpack_from(data, end)
    if checksum(data[at:end], copy) != expected:
        return None
    payload = data[at + HEADER.size : end]
    if generation == 0:
        return Content(magic, payload)
    if len(payload) < PLACE_LENGTH.size:
        return None
    (length,) = PLACE_LENGTH.unpack_from(payload)
    body_at = PLACE_LENGTH.size + length
    place = payload[PLACE_LENGTH.size : body_at].decode("utf-8", "surrogateescape")
    return Content(magic, payload[body_at:], generation, place)


def _is_padded(half_bytes: bytes, payload_length: int, half: int) -> bool:
    """Return whether the half has its full length and only zeros behind the copy."""
    padding = half_bytes[OVERHEAD_BYTES + payload_length :]
    return len(half_bytes) == half and padding == bytes(len(padding))
