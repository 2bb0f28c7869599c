"""From the bytes of a block file, in whatever form, to the logical bytes a `Scan` reads; and back.

    file ──▶ clear?  ──────────────────────────▶ logical bytes ──▶ Scan ──▶ Damage (logical)
         └─▶ wrapped? unwrap (envelope.py) ────▶ the same, holes zeroed         │
    file offset ◀───────────────────────── `locate` ◀──────────────────────────┘

Promise
- The block header's flag WRAPPED says which form a file has; where the header is damaged, what
  follows it does.
- Where a data key is given, nothing that is not encrypted with it counts.
- Damage is told where it is in the file, envelopes that gave nothing included.

Imported only where blocks are compressed or encrypted, or where that is not known: it loads the
libraries for both.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from natsd.store.damage import Damage
from natsd.store.envelope import (
    BLOCK_HEADER_BYTES,
    Seal,
    Unwrapped,
    begins_with_envelope,
    find_seed,
    unwrap,
    wrap,
    wrap_block,
)
from natsd.store.keys import DataKey, Random
from natsd.store.record import checksum
from natsd.store.scan import Scan

WRAPPED: Final = 1  # flag of the block header
HEADER: Final = struct.Struct("<8sHHIQQq16s")  # record.pxd draws it
CHECKSUM: Final = struct.Struct("<Q")
MAGIC: Final = b"NATSDBLK"


class BlockHeader(NamedTuple):
    """The header of a block, without its magic and its checksum."""

    version: int
    flags: int
    block_id: int
    seed: int
    first_sequence: int
    created_ns: int
    salt: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """The header that `data` begins with, if it verifies."""
        if len(data) < BLOCK_HEADER_BYTES or data[:8] != MAGIC:
            return None
        if CHECKSUM.unpack_from(data, HEADER.size) != (checksum(data[: HEADER.size]),):
            return None
        return cls(*HEADER.unpack_from(data)[1:])

    def encode(self) -> bytes:
        """All 64 bytes."""
        header = HEADER.pack(MAGIC, *self)
        return header + CHECKSUM.pack(checksum(header))


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The logical bytes of a block file; `unwrapped` is None where they are the file's own."""

    logical: bytes
    file_bytes: int
    unwrapped: Unwrapped | None

    @classmethod
    def read(cls, data: bytes, block_id: int, data_key: DataKey | None, random: Random) -> Self:
        """Any bytes can be read. `random` is not used but to make the seal."""
        seed = _seed_of_wrapped(data)
        if seed is None and data_key is None:
            return cls(data, len(data), None)
        seal = None if data_key is None else data_key.seal(seed or 0, block_id, random)
        unwrapped = unwrap(data, seed or 0, seal)
        return cls(bytes(unwrapped.logical), len(data), unwrapped)

    def file_offset(self, logical_offset: int) -> int:
        """Where an extent that begins there is, or is to be, in the file."""
        if self.unwrapped is None:
            return logical_offset
        return self.unwrapped.physical_offset(logical_offset)

    def locate(self, damage: list[Damage]) -> list[Damage]:
        """The same damage with offsets and lengths in the file, in the file's order."""
        if self.unwrapped is None:
            return damage
        located = []
        for found in damage:
            start = self.file_offset(found.offset)
            end = max(self._end_of(found.offset + found.length), start)
            located.append(found._replace(offset=start, length=end - start))
        for hole in self.unwrapped.damage:
            if not any(_overlap(found, hole.offset, hole.length) for found in located):
                located.append(Damage(hole.offset, hole.length, 0, 0, hole.what))
        return sorted(located)

    def _end_of(self, logical_end: int) -> int:
        """Behind the last byte of the envelope that holds the byte before `logical_end`."""
        assert self.unwrapped is not None
        for span in self.unwrapped.spans:
            if span.logical < logical_end <= span.logical + span.logical_length:
                if span.physical == 0:
                    return logical_end
                return span.physical + span.physical_length
        return self.file_offset(logical_end)


def make_file(logical: bytes, data_key: DataKey | None, random: Random, *, compress: bool) -> bytes:
    """The file of a whole block: compressed, encrypted, both, or as it is."""
    header = BlockHeader.parse(logical)
    assert header is not None, "our own block"
    if data_key is None and not compress:
        return (
            header._replace(flags=header.flags & ~WRAPPED).encode() + logical[BLOCK_HEADER_BYTES:]
        )
    seal = None if data_key is None else data_key.seal(header.seed, header.block_id, random)
    return mark_wrapped(wrap_block(logical, header.seed, seal, compress=compress))


def wrap_extent(data: bytes, logical_offset: int, seed: int, seal: Seal) -> bytes:
    """What an extent of an encrypted block is in the file; the first one has the header."""
    if logical_offset:
        return wrap(data, logical_offset, seed, seal)
    return mark_wrapped(wrap_block(data, seed, seal, compress=False))


def mark_wrapped(file: bytes) -> bytes:
    """The same bytes, whose header says what the rest is."""
    header = BlockHeader.parse(file)
    assert header is not None, "our own block"
    return header._replace(flags=header.flags | WRAPPED).encode() + file[BLOCK_HEADER_BYTES:]


def _seed_of_wrapped(data: bytes) -> int | None:
    """The seed of a wrapped block; None if it is a clear one."""
    header = BlockHeader.parse(data)
    if header is not None:
        return header.seed if header.flags & WRAPPED else None
    if not begins_with_envelope(data) and Scan(data).readable:
        return None
    return find_seed(data)


def _overlap(found: Damage, offset: int, length: int) -> bool:
    return found.offset < offset + length and offset < found.offset + found.length
