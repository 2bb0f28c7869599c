"""Wounds: every way in which a test damages bytes that were stored, one at a time.

A test stores something, remembers where each piece stands, and asks of each wounded copy: is every
piece that the wound did not touch still there, is the touched one reported, and is no wrong byte
served?
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

SECTOR_BYTES = 512
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Wound:
    """Damaged bytes, and where they differ: from `first` up to, not including, `upto`."""

    what: str
    data: bytes
    first: int
    upto: int

    def touches(self, offset: int, length: int) -> bool:
        return self.first < offset + length and offset < self.upto

    def untouched(self, places: Mapping[int, tuple[int, int]]) -> list[int]:
        """Of pieces (sequence: offset and length), those that are as they were."""
        return [key for key, place in places.items() if not self.touches(*place)]


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


def overwritten(data: bytes, offset: int, noise: bytes) -> bytes:
    return data[:offset] + noise + data[offset + len(noise) :]


def flipped_bits(data: bytes, first: int = 0, upto: int | None = None) -> Iterator[Wound]:
    """Every bit of the bytes from `first` up to `upto`, one at a time."""
    for bit in range(first * 8, (len(data) if upto is None else upto) * 8):
        at = bit // 8
        yield Wound(f"bit {bit % 8} of byte {at}", with_flipped_bit(data, bit), at, at + 1)


def zeroed(data: bytes, unit: int = SECTOR_BYTES) -> Iterator[Wound]:
    """Every sector or page read as zeros, one at a time; those that were zeros stay out."""
    for at in range(0, len(data), unit):
        upto = min(at + unit, len(data))
        if data[at:upto].strip(b"\0"):
            zeros = overwritten(data, at, bytes(upto - at))
            yield Wound(f"zeros from byte {at} to {upto}", zeros, at, upto)


def truncated(data: bytes, lengths: Iterable[int] | None = None) -> Iterator[Wound]:
    """Cut off at every length."""
    for length in range(len(data)) if lengths is None else lengths:
        yield Wound(f"the first {length} bytes", data[:length], length, len(data))
