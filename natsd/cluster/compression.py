"""Compression of a route: a framing of S2 streams in both directions.

    sent       ff 06 00 00 "sNaPpY", then snappy frames, which readers of S2 read
    received   S2 or snappy frames, cut anywhere

- What is pending is compressed together, once per turn of the loop.
- `s2_uncompressed` puts frames around the bytes and leaves them as they are. All other levels
  compress alike: snappy has one level. Names of levels are what the two servers negotiate.
- A damaged frame, or frames that unpack to over 256 MiB at once, close the connection.
"""

from typing import Final

import cramjam

from natsd.cluster.compression_mode import UNCOMPRESSED
from natsd.core.network import Endpoint, Framing
from natsd.core.reasons import ClosedReason
from natsd.store.backup.snappy_frames import FRAME_BYTES, IDENTIFIER
from natsd.store.backup.snapshots import crc32c
from natsd.store.nats_server.blocks import unpack_frames

HEADER_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 5 << 20
"""Bytes of a frame on the wire; S2's blocks have 4 MiB at most."""
_PLAIN_FRAME: Final = b"\x01"


class CompressionFraming(Framing):
    """The S2 streams of one route."""

    def __init__(self, endpoint: Endpoint, level: str) -> None:
        super().__init__()
        self.level = level
        self._endpoint = endpoint
        self._has_begun = False

    def decode(self, data: bytes) -> tuple[bytes, int]:
        """Return the content of the whole frames in `data`, and how many bytes these took."""
        end = _end_of_frames(data)
        if end < 0:
            return self._fail(len(data))
        if end == 0:
            return b"", 0
        content, damaged = unpack_frames(data[:end])
        return self._fail(len(data)) if damaged else (content, end)

    def _fail(self, size: int) -> tuple[bytes, int]:
        """Close the connection because of damaged frames, and drop the received bytes."""
        self._endpoint.close(ClosedReason.PROTOCOL_VIOLATION)
        return b"", size

    def encode(self, data: bytes) -> bytes:
        """Return the frames around `data`."""
        start = b"" if self._has_begun else IDENTIFIER
        self._has_begun = True
        if self.level == UNCOMPRESSED:
            return start + b"".join(
                _plain_frame(data[at : at + FRAME_BYTES]) for at in range(0, len(data), FRAME_BYTES)
            )
        return start + bytes(cramjam.snappy.compress(data))[len(IDENTIFIER) :]


def _end_of_frames(data: bytes) -> int:
    """Return the end of the last whole frame; -1: a frame is longer than any may be."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        size = int.from_bytes(data[at + 1 : at + HEADER_BYTES], "little")
        if size > FRAME_BYTES_MAX:
            return -1
        if at + HEADER_BYTES + size > len(data):
            break
        at += HEADER_BYTES + size
    return at


def _plain_frame(content: bytes) -> bytes:
    """Return an uncompressed frame with its masked checksum."""
    crc = crc32c(content)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    size = len(content) + 4
    return _PLAIN_FRAME + size.to_bytes(3, "little") + masked.to_bytes(4, "little") + content
