"""Snappy frames (snappy.pyx), as readers of snappy and of S2 unpack them.

    stream   identifier  ff 06 00 00 "sNaPpY"
             frames      00 length u24 · CRC-32C, masked · up to 64 KiB, compressed
                         01 length u24 · CRC-32C, masked · up to 64 KiB, uncompressed
             before each frame: fe 08 00 00 number of the frame u64, which readers skip

All integers are little-endian. Because of the numbers, no two parts of a stream that hold
a number are equal: so a part that arrives twice in a row is recognized (`REPEATED_BYTES_MIN`).

Source: the Snappy framing format, revision 2015-04-13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import cramjam

from natsd.store.backup.snapshots import FrameRoom, ReusedBytes
from natsd.store.disk.disk import Buffer
from natsd.store.errors import DamagedEncoding, ForeignSnapshot

FRAME_BYTES: Final = 64 << 10
IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
S2_IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"
_HEADER_BYTES: Final = 4
_COMPRESSED, _PLAIN, _RESERVED = 0x00, 0x01, 0x80
_FRAME_BYTES_MAX: Final = 4 + 32 + FRAME_BYTES + FRAME_BYTES // 6
PARTS_KEPT: Final = 4
"""Number of parts whose memory is used again: two are packed, one is sent, one waits."""
REPEATED_BYTES_MIN: Final = 4 << 10
"""Two equal parts in a row of at least this many bytes are the same part, sent twice. A part
without a number lies within one frame, and data that repeats itself within a frame compresses to
less than half of this."""


class FramePacker:
    """Packer of one stream."""

    def __init__(self) -> None:
        self._number = 0
        self._rooms: list[FrameRoom] = []
        self._packed = ReusedBytes(PARTS_KEPT)

    def begin(self) -> bytes:
        """Return the first bytes of a stream."""
        return IDENTIFIER

    def packing(self, *pieces: Buffer) -> Callable[[], bytes]:
        """Return a function that packs `pieces`, each into frames of its own.

        The function returns the frames. It may be called in any thread, and while other pieces are
        packed; it takes a while, mostly without the GIL.
        """
        first = self._number
        self._number += sum(-(-len(piece) // FRAME_BYTES) for piece in pieces)
        return partial(self._pack, first, pieces)

    def _pack(self, number: int, pieces: Sequence[Buffer]) -> bytes:
        """Pack in memory that is used again: new memory costs more time than the packing."""
        room = self._rooms.pop() if self._rooms else FrameRoom()
        packed = room.pack(number, pieces, self._packed)
        self._rooms.append(room)
        return packed


class FrameUnpacker:
    """Unpacker of a stream that arrives in parts, cut anywhere."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._opened = False

    @property
    def is_between_frames(self) -> bool:
        """Whether the parts so far end with a whole frame."""
        return self._opened and not self._pending

    @property
    def pending(self) -> bytes:
        """The bytes that are not unpacked yet."""
        return bytes(self._pending)

    def feed(self, part: bytes) -> bytes:
        """Return the unpacked bytes of all frames that are whole with this part.

        Raises DamagedEncoding, and ForeignSnapshot for S2's frames.
        """
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
            raise DamagedEncoding(f"the snapshot is damaged: {error}") from None
        del self._pending[:end]
        return bytes(unpacked)

    def _open(self) -> bool:
        start = bytes(self._pending[: len(IDENTIFIER)])
        if start == S2_IDENTIFIER:
            raise ForeignSnapshot
        if not IDENTIFIER.startswith(start) and not S2_IDENTIFIER.startswith(start):
            raise DamagedEncoding("this is no snapshot of a stream")
        if len(start) < len(IDENTIFIER):
            return False
        del self._pending[: len(IDENTIFIER)]
        self._opened = True
        return True

    def _whole_frames(self) -> tuple[int, list[bytes]]:
        """Return the end of the last whole frame, and the frames that hold data."""
        pending, at, frames = self._pending, 0, []
        while at + _HEADER_BYTES <= len(pending):
            kind = pending[at]
            length = int.from_bytes(pending[at + 1 : at + _HEADER_BYTES], "little")
            holds_data = kind in (_COMPRESSED, _PLAIN)
            if not (holds_data or kind >= _RESERVED) or length > _FRAME_BYTES_MAX:
                raise DamagedEncoding("the snapshot is damaged: no frame where one should be")
            end = at + _HEADER_BYTES + length
            if end > len(pending):
                break
            if holds_data:
                frames.append(bytes(pending[at:end]))
            at = end
        return at, frames
