"""A rewritten block has the messages to keep, byte for byte, and nothing else.

Compaction rewrites blocks with mostly dead records in the background, and replaces the files
atomically. No bytes of the old file may ever count as part of the new one (docs/store.md).
"""

from hypothesis import given
from hypothesis import strategies as st

from natsd.store.block.blocks import MsgBlock, Scan, rewrite
from natsd.store.codec.records import StoredMessage
from natsd.store.sequence_set import SequenceSet
from tests.store.damage import overwritten

OLD_SEED, NEW_SEED = 11, 12


def committed(block: MsgBlock, data: bytes = b"") -> bytes:
    extent = block.take_extent(block.commit_number + 1, 1)
    assert extent is not None
    block.committed()
    return data[: extent.offset] + bytes(memoryview(extent))


def old_file(count: int = 20) -> tuple[bytes, dict[int, StoredMessage]]:
    """Return the bytes of a block with removals and skips, and its live messages."""
    block = MsgBlock(3, OLD_SEED, 101, 1 << 20, created_ns=5)
    data = b""
    for sequence in range(101, 101 + count):
        block.put(sequence, "a.b", b"h" * (sequence % 2) or None, b"x" * sequence, 1, sequence % 3)
        if sequence % 7 == 0:
            block.put_tombstones(SequenceSet([sequence - 3]).encode())
            data = committed(block, data)
    block.skip(101 + count, 5)
    data = committed(block, data)
    messages = {}
    for sequence in block.live_sequences():
        message = block.get(sequence)
        assert message is not None
        messages[sequence] = message
    return data, messages


def rewritten(data: bytes, dead: set[int], last_sequence: int = 125) -> Scan:
    """Return a scan of the block as rewritten without the dead sequences."""
    return Scan(
        rewrite(
            Scan(data),
            SequenceSet(dead),
            seed=NEW_SEED,
            commit_number=9,
            first_sequence=103,
            last_sequence=last_sequence,
            tombstones=[(False, SequenceSet([50, 51]).encode())],
            created_ns=77,
        )
    )


@given(st.sets(st.integers(95, 125)), st.integers(99, 125))
def test_what_is_kept_is_the_same(dead: set[int], last_sequence: int) -> None:
    data, messages = old_file()
    scan = rewritten(data, dead, last_sequence)
    kept = {
        sequence: message
        for sequence, message in messages.items()
        if sequence not in dead and sequence <= last_sequence
    }
    assert {sequence: scan.read(sequence) for sequence in scan.sequences()} == kept
    assert scan.last_sequence == max(last_sequence, 100)
    assert scan.damage == []
    assert not scan.torn_commit


def test_what_the_new_file_says_of_itself() -> None:
    data, _ = old_file()
    scan = rewritten(data, {101, 102})
    assert (scan.seed, scan.block_id, scan.base_sequence) == (NEW_SEED, 3, 101)
    assert (scan.commit_number, scan.first_sequence, scan.last_sequence) == (9, 103, 125)
    assert scan.created_ns == 77
    assert scan.closed
    assert [SequenceSet.decode(encoded) for _, _, encoded in scan.tombstones] == [
        SequenceSet([50, 51])
    ]


def test_it_goes_on() -> None:
    data, _ = old_file()
    scan = rewritten(data, set(range(101, 120)))
    written = scan.data
    block = MsgBlock.from_scan(scan, 1 << 20)
    assert block.live_sequences() == [120]
    block.put(126, "c", None, b"", 1)
    scan = Scan(committed(block, written))
    assert scan.sequences() == [120, 126]
    assert scan.damage == []


def test_damaged_and_erased_messages_are_left_out() -> None:
    data, messages = old_file()
    block = MsgBlock.from_scan(Scan(data), 1 << 20)
    block.remove(105)
    noise = bytes(block.record_bytes(105) - 40)
    data = overwritten(data, block.offset_of(105), block.erase_record(105, noise))
    data = overwritten(data, block.offset_of(110) + 33, b"????")
    assert rewritten(data, set()).sequences() == sorted(messages.keys() - {105, 110})


def test_nothing_of_the_old_file_counts_behind_the_new() -> None:
    """Bytes of the old file behind the end of the shorter new one are ignored."""
    data, _ = old_file()
    scan = rewritten(data, set(range(101, 115)))
    left = scan.data + data[len(scan.data) :]
    assert Scan(left).sequences() == scan.sequences()
    assert Scan(left).end == len(scan.data)
