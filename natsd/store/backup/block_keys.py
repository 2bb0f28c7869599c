"""Keys of blocks: they tell which messages live in a block, without a read of its file.

    plan     one after another, for each block: key 16 bytes │ live messages u32, little-endian

Two images of blocks with the same key hold the same messages. A key covers the block's random seed,
its size, and the checksum chain of its last mark on disk, which no other content of these bytes
has; the first and last sequence that count; and the removed sequences between the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from natsd.store.errors import DamagedEncoding
from natsd.store.sequence_set import SequenceSet

KEY_BYTES: Final = 16
_IDENTITY: Final = Struct("<QQQQQQ")
_PLANNED: Final = Struct(f"<{KEY_BYTES}sI")


class PlannedBlock(NamedTuple):
    """A block of a plan: its key, and the number of messages that live in it."""

    key: bytes
    msgs: int


def plan_block(
    seed: int,
    base_sequence: int,
    size: int,
    chain: int,
    first: int,
    last: int,
    dead: SequenceSet,
) -> bytes:
    """Return one block of a plan; `dead` holds the removed sequences of the whole store.

    `size` is the number of logical bytes on disk, and `chain` the checksum in the mark that ends
    them. Only messages from `first` to `last` count.
    """
    removed = SequenceSet()
    if first <= last:
        removed.add_range(first, last)
        removed.intersection_update(dead)
    key = hashlib.blake2b(
        _IDENTITY.pack(seed, base_sequence, size, chain, first, max(last, 0)), digest_size=KEY_BYTES
    )
    key.update(removed.encode())
    return _PLANNED.pack(key.digest(), max(last - first + 1, 0) - removed.count)


def read_plan(plan: bytes) -> Iterator[PlannedBlock]:
    """Yield the blocks of a plan. Raises DamagedEncoding."""
    if len(plan) % _PLANNED.size:
        raise DamagedEncoding("the plan of a snapshot is not whole")
    yield from map(PlannedBlock._make, _PLANNED.iter_unpack(plan))
