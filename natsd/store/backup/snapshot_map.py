"""A map of a snapshot's entries, which lets a reader read one entry without those before it.

    frames  │ header │ body ··· body │ checksum │ header │ body ···
                     └ offset: SnapshotWriter begins a new frame for each of the three parts

Promise
- `map_snapshot` reads the whole snapshot once, one entry at a time, and verifies it as
  SnapshotReader does. It refuses a snapshot whose frames are cut elsewhere because another tool
  packed it again.
- `read_body` reads the frames of one entry and nothing else. It cannot verify the chain of
  checksums, so the caller must verify the body (the records of a block have their own checksums).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from natsd.store.backup.snappy_frames import IDENTIFIER, FrameUnpacker
from natsd.store.backup.snapshot_file import SnapshotReader
from natsd.store.errors import DamagedEncoding

_FRAME_HEADER_BYTES: Final = 4
_TAR_BYTES: Final = 512
_PART_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """An entry's place in a snapshot file.

    name: the entry's name.
    offset: where the first frame of its body begins in the file, in bytes.
    length: bytes of the body.
    """

    name: str
    offset: int
    length: int


def map_snapshot(snapshot: IO[bytes]) -> Iterator[tuple[EntryPlace, bytes]]:
    """Yield the place and the body of every entry, in order.

    Blocks on the disk. Raises DamagedEncoding, ForeignSnapshot or OSError.
    """
    reader, frames = SnapshotReader(), FrameUnpacker()
    frames.feed(snapshot.read(len(IDENTIFIER)))
    offset = len(IDENTIFIER)
    body_at = 0
    expects_body = False
    for frame in _frames(snapshot):
        unpacked = frames.feed(frame)
        if unpacked:
            if reader.is_between_entries:
                expects_body = len(unpacked) == _TAR_BYTES
                body_at = 0
            elif not body_at:
                body_at = offset
            for name, body in reader.take(unpacked):
                if not expects_body or not reader.is_between_entries:
                    raise DamagedEncoding("the snapshot was packed anew: only the original is read")
                yield EntryPlace(name, body_at, len(body)), body
        offset += len(frame)
    if not frames.is_between_frames:
        raise DamagedEncoding("the snapshot is not whole")
    reader.finish_entries()


def read_body(snapshot: IO[bytes], place: EntryPlace) -> bytes:
    """Return the body at this place; shorter than `place.length` if the snapshot ends early.

    Blocks on the disk. Raises DamagedEncoding if a frame is damaged, and OSError.
    """
    frames = FrameUnpacker()
    frames.feed(IDENTIFIER)
    snapshot.seek(place.offset)
    body = bytearray()
    while len(body) < place.length and (part := snapshot.read(_PART_BYTES)):
        body += frames.feed(part)
    return bytes(body[: place.length])


def _frames(snapshot: IO[bytes]) -> Iterator[bytes]:
    """Yield the frames as they stand in the file; the last one may be cut short."""
    while header := snapshot.read(_FRAME_HEADER_BYTES):
        yield header + snapshot.read(int.from_bytes(header[1:], "little"))
