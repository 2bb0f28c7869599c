"""Where the entries of an archive stand, so that one can be read without those before it.

    frames  │ header │ body ··· body │ checksum │ header │ body ···
                     └ offset: ArchiveWriter begins each of the three with a frame of its own

Promise
- `map_archive` reads all of the archive once, an entry at a time, and verifies it as ArchiveReader
  does; an archive whose frames are cut elsewhere (packed anew by something else) is refused.
- `read_body` reads an entry's frames and nothing else. It does not know the chain of checksums:
  what it gives is to be verified by who knows what it is (a block's records have their own).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from natsd.store.archive import ArchiveReader
from natsd.store.errors import DamagedEncoding
from natsd.store.snappy_frames import IDENTIFIER, FrameUnpacker

_FRAME_HEADER_BYTES: Final = 4
_TAR_BYTES: Final = 512
_PART_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """An entry's name, where its body's first frame stands in the file, the body's length."""

    name: str
    offset: int
    length: int


def map_archive(archive: IO[bytes]) -> Iterator[tuple[EntryPlace, bytes]]:
    """Every entry with its body, in order. Raises DamagedEncoding, ForeignArchive, OSError."""
    reader, frames = ArchiveReader(), FrameUnpacker()
    frames.feed(archive.read(len(IDENTIFIER)))
    offset = len(IDENTIFIER)
    body_at = 0
    expects_body = False
    for frame in _frames(archive):
        unpacked = frames.feed(frame)
        if unpacked:
            if reader.is_between_entries:
                expects_body = len(unpacked) == _TAR_BYTES
                body_at = 0
            elif not body_at:
                body_at = offset
            for name, body in reader.take(unpacked):
                if not expects_body or not reader.is_between_entries:
                    raise DamagedEncoding("the archive was packed anew: only the original is read")
                yield EntryPlace(name, body_at, len(body)), body
        offset += len(frame)
    if not frames.is_between_frames:
        raise DamagedEncoding("the archive is not whole")
    reader.finish_entries()


def read_body(archive: IO[bytes], place: EntryPlace) -> bytes:
    """The body that stands there, as far as the frames are whole. Raises DamagedEncoding."""
    frames = FrameUnpacker()
    frames.feed(IDENTIFIER)
    archive.seek(place.offset)
    body = bytearray()
    while len(body) < place.length and (part := archive.read(_PART_BYTES)):
        body += frames.feed(part)
    return bytes(body[: place.length])


def _frames(archive: IO[bytes]) -> Iterator[bytes]:
    """As they stand in the file; the last one may be cut short."""
    while header := archive.read(_FRAME_HEADER_BYTES):
        yield header + archive.read(int.from_bytes(header[1:], "little"))
