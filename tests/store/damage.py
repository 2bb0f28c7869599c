"""Damage to stored bytes: every kind of wound that a test inflicts, one at a time.

A test stores something, notes the place of each piece, and checks each wounded copy: every piece
that the wound did not touch is still there, the touched piece is reported, and no wrong byte is
served.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

SECTOR_BYTES = 512
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Wound:
    """Damaged bytes, and where they differ from the original: from `first` up to but not `upto`."""

    what: str
    data: bytes
    first: int
    upto: int

    def touches(self, offset: int, length: int) -> bool:
        """Return whether the wound overlaps `length` bytes at `offset`."""
        return self.first < offset + length and offset < self.upto

    def untouched(self, places: Mapping[int, tuple[int, int]]) -> list[int]:
        """Return the keys of the pieces that the wound does not overlap.

        `places` maps a key (a sequence) to the offset and length of its piece in bytes.
        """
        return [key for key, place in places.items() if not self.touches(*place)]


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    """Return a copy of the bytes with bit number `bit` inverted."""
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


def overwritten(data: bytes, offset: int, noise: bytes) -> bytes:
    """Return a copy of the bytes with `noise` written at `offset`."""
    return data[:offset] + noise + data[offset + len(noise) :]


def flipped_bits(data: bytes, first: int = 0, upto: int | None = None) -> Iterator[Wound]:
    """Yield a wound for each flipped bit of the bytes from `first` up to but not `upto`."""
    for bit in range(first * 8, (len(data) if upto is None else upto) * 8):
        at = bit // 8
        yield Wound(f"bit {bit % 8} of byte {at}", with_flipped_bit(data, bit), at, at + 1)


def zeroed(data: bytes, unit: int = SECTOR_BYTES) -> Iterator[Wound]:
    """Yield a wound for each sector or page of `unit` bytes that reads as zeros.

    A unit that consists of zeros already is left out.
    """
    for at in range(0, len(data), unit):
        upto = min(at + unit, len(data))
        if data[at:upto].strip(b"\0"):
            zeros = overwritten(data, at, bytes(upto - at))
            yield Wound(f"zeros from byte {at} to {upto}", zeros, at, upto)


def truncated(data: bytes, lengths: Iterable[int] | None = None) -> Iterator[Wound]:
    """Yield a wound for each length at which the bytes are cut off."""
    for length in range(len(data)) if lengths is None else lengths:
        yield Wound(f"the first {length} bytes", data[:length], length, len(data))
