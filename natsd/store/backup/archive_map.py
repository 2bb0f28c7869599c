"""A map of an archive's entries, which lets a reader read one entry without those before it.

    frames  │ header │ body ··· body │ checksum │ header │ body ···
                     └ offset: ArchiveWriter begins a new frame for each of the three parts

Promise
- `map_archive` reads the whole archive once, one entry at a time, and verifies it as ArchiveReader
  does. It refuses an archive whose frames are cut elsewhere because another tool packed it again.
- `read_body` reads the frames of one entry and nothing else. It cannot verify the chain of
  checksums, so the caller must verify the body (the records of a block have their own checksums).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from natsd.store.backup.archive import ArchiveReader
from natsd.store.backup.snappy_frames import IDENTIFIER, FrameUnpacker
from natsd.store.errors import DamagedEncoding

_FRAME_HEADER_BYTES: Final = 4
_TAR_BYTES: Final = 512
_PART_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """An entry's place in an archive file.

    name: the entry's name.
    offset: where the first frame of its body begins in the file, in bytes.
    length: bytes of the body.
    """

    name: str
    offset: int
    length: int


def map_archive(archive: IO[bytes]) -> Iterator[tuple[EntryPlace, bytes]]:
    """Yield the place and the body of every entry, in order.

    Blocks on the disk. Raises DamagedEncoding, ForeignArchive or OSError.
    """
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
    """Return the body at this place; shorter than `place.length` if the archive ends early.

    Blocks on the disk. Raises DamagedEncoding if a frame is damaged, and OSError.
    """
    frames = FrameUnpacker()
    frames.feed(IDENTIFIER)
    archive.seek(place.offset)
    body = bytearray()
    while len(body) < place.length and (part := archive.read(_PART_BYTES)):
        body += frames.feed(part)
    return bytes(body[: place.length])


def _frames(archive: IO[bytes]) -> Iterator[bytes]:
    """Yield the frames as they stand in the file; the last one may be cut short."""
    while header := archive.read(_FRAME_HEADER_BYTES):
        yield header + archive.read(int.from_bytes(header[1:], "little"))
