"""A block's bytes, put together from what verifies of them and from copies of the other messages.

    damaged   │header│ 1 2 ~~~~~~~ 6 MARKS~ │ 7 † MARKS │        ~: does not verify
    copies              3 4
    mended    │header│ 1 2 3 4 (5) 6 7 † MARKS │                (5): nobody has it

Promise
- Bytes in, bytes out. All functions run for a while: call them in a thread.
- What verifies is kept: messages, removed or not, and removals. A copy only fills a gap.
- A message of which there is no copy keeps its place, with a record that does not verify: it is
  still reported as damaged, and not taken for removed.
"""

import struct
from collections.abc import Sequence
from typing import Final

from natsd.store.block.blocks import MsgBlock, Scan, copy_messages
from natsd.store.block.stored_blocks import IDENTITY
from natsd.store.codec.records import HEADER_BYTES, header_is_whole
from natsd.store.errors import DamagedEncoding
from natsd.store.sequence_set import SequenceSet

BYTES_MAX: Final = (1 << 31) - 1
SLICE_BYTES: Final = 128 << 10
"""Bytes that are copied without a chance for other threads."""

_RECORD: Final = struct.Struct("<IBBHQq")
"""The first fields of a record: length, kind, flags, subject length, sequence, time."""


class Copies:
    """The messages that were found elsewhere, in the blocks that hold them."""

    def __init__(self, damaged: Scan) -> None:
        """Take copies for `damaged`, whose whole record headers a copy must not contradict."""
        self.sequences = SequenceSet()
        self._found: list[tuple[SequenceSet, MsgBlock]] = []
        self._times = _times_of(damaged)

    def add(self, image: bytes, lacking: SequenceSet) -> None:
        """Take the `lacking` messages from the bytes of a closed block.

        Raises DamagedEncoding if these do not verify, or contradict the damaged record.
        """
        scan = Scan(image)
        if not scan.readable or scan.damage or scan.torn_bytes:
            raise DamagedEncoding("a block of messages does not verify")
        found = SequenceSet(scan.sequences())
        found.intersection_update(lacking)
        found.difference_update(self.sequences)
        for sequence, time_ns in self._times.items():
            if sequence in found:
                message = scan.read(sequence)
                if message is None or message.time_ns != time_ns:
                    raise DamagedEncoding(f"message {sequence} of another time")
        if found:
            self._found.append((found, MsgBlock.from_scan(scan, BYTES_MAX)))
            self.sequences.union_update(found)

    def runs(self, lost: SequenceSet) -> list[tuple[int, int, MsgBlock | None]]:
        """Return (first, last, block with the copies) ascending; None: there is no copy."""
        runs: list[tuple[int, int, MsgBlock | None]] = [(*run, None) for run in lost.runs()]
        for sequences, block in self._found:
            runs += [(*run, block) for run in sequences.runs()]
        return sorted(runs, key=lambda run: run[0])


def _times_of(scan: Scan) -> dict[int, int]:
    """Return the times of damaged messages whose record header is whole, by sequence."""
    times = {}
    for damage in scan.damage:
        header = scan.data[damage.offset : damage.offset + HEADER_BYTES]
        if damage.first_sequence and header_is_whole(header, scan.seed):
            *_, sequence, time_ns = _RECORD.unpack_from(header)
            times[sequence] = time_ns
    return times


def lacking_in(scan: Scan, expected: SequenceSet) -> SequenceSet:
    """Return those of the `expected` messages that the scan has not found."""
    lacking = expected.copy()
    lacking.difference_update(SequenceSet(scan.sequences()))
    return lacking


def image_of(source: MsgBlock, wanted: SequenceSet) -> bytes:
    """Return the bytes of a closed block with the wanted messages that live in `source`.

    Empty if there are none. Raises StoreError if `source` is not in memory.
    """
    image = MsgBlock(1, 0, max(1, wanted.first or 1), BYTES_MAX)
    for first, last in wanted.runs():
        _copy(source, image, first, last)
    return _closed(image, 1, 1) if image.message_count else b""


def mend(scan: Scan, old: MsgBlock, copies: Copies, lost: SequenceSet, seed: int) -> bytes:
    """Return the bytes of the block `old`: what `scan` found, with the copies in its gaps.

    The messages in `lost` have no copy. `seed` is random, 64 bits. Takes over the scan's index.
    """
    tombstones = scan.tombstones
    salt = IDENTITY.pack(scan.store_id, scan.follows)
    floor, created_ns = max(1, scan.first_sequence), scan.created_ns
    intact = MsgBlock.from_scan(scan, BYTES_MAX)
    new = MsgBlock(
        old.block_id, seed, old.base_sequence, BYTES_MAX, created_ns=created_ns, salt=salt
    )
    at = old.base_sequence
    for first, last, block in copies.runs(lost):
        _copy(intact, new, at, first - 1)
        if block is not None:
            _copy(block, new, first, last)
        else:
            for sequence in range(first, last + 1):
                new.put(sequence, "", None, b"", 0)
        at = last + 1
    _copy(intact, new, at, old.last_sequence)
    if new.last_sequence < old.last_sequence:
        new.skip(new.last_sequence + 1, old.last_sequence - new.last_sequence)
    for _, erased, encoded in tombstones:
        new.put_tombstones(encoded, erased)
    logical = bytearray(_closed(new, old.commit_number, floor))
    for sequence in lost:
        logical[new.offset_of(sequence) + new.record_bytes(sequence) - 1] ^= 0xFF
    return bytes(logical)


def unlike(new: MsgBlock, old: MsgBlock, sequences: SequenceSet) -> Sequence[int]:
    """Return those of the messages whose subject or length differ from what memory has of them."""
    return [each for each in sequences if not new.is_like(old, each)]


def _copy(source: MsgBlock, into: MsgBlock, first: int, last: int) -> None:
    while first <= last:
        first = copy_messages(source, into, first, last, into.size + SLICE_BYTES)


def _closed(block: MsgBlock, commit_number: int, first_sequence: int) -> bytes:
    extent = block.take_extent(commit_number, first_sequence, force=True, closing=True)
    assert extent is not None
    return bytes(memoryview(extent))
