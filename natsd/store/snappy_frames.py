"""Bytes as snappy frames (snappy.pyx): what readers of snappy and of S2 unpack.

    stream   identifier  ff 06 00 00 "sNaPpY"
             frames      00 length u24 · CRC-32C, masked · up to 64 KiB, compressed
                         01 length u24 · CRC-32C, masked · up to 64 KiB as they are
             in front of each: fe 08 00 00 number of the frame u64, which readers skip

All integers are little-endian. The number makes no two parts of a stream alike that hold one: a
part that comes twice in a row is known by that (`REPEATED_BYTES_MIN`).

Source: snappy's framing format, revision 2015-04-13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import cramjam

from natsd.store.disk import Buffer
from natsd.store.errors import DamagedEncoding, ForeignArchive
from natsd.store.reused_bytes import ReusedBytes
from natsd.store.snappy import FrameRoom

FRAME_BYTES: Final = 64 << 10
IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
S2_IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"
_HEADER_BYTES: Final = 4
_COMPRESSED, _PLAIN, _RESERVED = 0x00, 0x01, 0x80
_FRAME_BYTES_MAX: Final = 4 + 32 + FRAME_BYTES + FRAME_BYTES // 6
PARTS_KEPT: Final = 4
"""So many parts' memory is used again: of who packs two while one is sent and one waits."""
REPEATED_BYTES_MIN: Final = 4 << 10
"""Two parts in a row that are this long and alike are the same part. Without a number in it, a part
lies within one frame, and what repeats itself there compresses to less than half of this."""


class FramePacker:
    """Packs one stream."""

    def __init__(self) -> None:
        self._number = 0
        self._rooms: list[FrameRoom] = []
        self._packed = ReusedBytes(PARTS_KEPT)

    def begin(self) -> bytes:
        """What a stream begins with."""
        return IDENTIFIER

    def packing(self, *pieces: Buffer) -> Callable[[], bytes]:
        """What packs the next bytes, each piece into frames of its own. It may be called in any
        thread, and while other bytes are packed; it takes a while, without the GIL for the most."""
        first = self._number
        self._number += sum(-(-len(piece) // FRAME_BYTES) for piece in pieces)
        return partial(self._pack, first, pieces)

    def _pack(self, number: int, pieces: Sequence[Buffer]) -> bytes:
        """Room is used again: new memory takes longer than what is written to it."""
        room = self._rooms.pop() if self._rooms else FrameRoom()
        packed = room.pack(number, pieces, self._packed)
        self._rooms.append(room)
        return packed


class FrameUnpacker:
    """Unpacks a stream that comes in parts, cut anywhere."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._opened = False

    @property
    def is_between_frames(self) -> bool:
        """Nothing of a frame waits for its rest."""
        return self._opened and not self._pending

    def feed(self, part: bytes) -> bytes:
        """What the next part gives. Raises DamagedEncoding, and ForeignArchive for S2's frames."""
        self._pending += part
        if not self._opened and not self._open():
            return b""
        end, frames = self._whole_frames()
        if not frames:
            del self._pending[:end]
            return b""
        try:
            unpacked = cramjam.snappy.decompress(IDENTIFIER + b"".join(frames))
        except cramjam.DecompressionError as error:
            raise DamagedEncoding(f"the archive is damaged: {error}") from None
        del self._pending[:end]
        return bytes(unpacked)

    def _open(self) -> bool:
        start = bytes(self._pending[: len(IDENTIFIER)])
        if start == S2_IDENTIFIER:
            raise ForeignArchive
        if not IDENTIFIER.startswith(start) and not S2_IDENTIFIER.startswith(start):
            raise DamagedEncoding("this is no archive of a stream")
        if len(start) < len(IDENTIFIER):
            return False
        del self._pending[: len(IDENTIFIER)]
        self._opened = True
        return True

    def _whole_frames(self) -> tuple[int, list[bytes]]:
        """Where the last whole frame ends, and those that hold something."""
        pending, at, frames = self._pending, 0, []
        while at + _HEADER_BYTES <= len(pending):
            kind = pending[at]
            length = int.from_bytes(pending[at + 1 : at + _HEADER_BYTES], "little")
            holds_data = kind in (_COMPRESSED, _PLAIN)
            if not (holds_data or kind >= _RESERVED) or length > _FRAME_BYTES_MAX:
                raise DamagedEncoding("the archive is damaged: no frame where one should be")
            end = at + _HEADER_BYTES + length
            if end > len(pending):
                break
            if holds_data:
                frames.append(bytes(pending[at:end]))
            at = end
        return at, frames
