"""A block in memory: its messages, the extent that a commit takes, and the rollback of appends.

Until the sync of a commit returns, all of its messages can be rolled back (docs/store.md, "What an
acknowledgement means").
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MaximumMessageSizeExceeded, SequenceMismatch
from natsd.store.sequence_set import SequenceSet

SEED = 0xFEED_5EED_0BAD_CAFE
HEADER_BYTES = 64
MARKS_BYTES = 2 * 104


def new_block(first_sequence: int = 1, max_bytes: int = 1 << 20) -> MsgBlock:
    return MsgBlock(7, SEED, first_sequence, max_bytes)


def fill(block: MsgBlock, count: int) -> None:
    for sequence in range(block.last_sequence + 1, block.last_sequence + 1 + count):
        block.put(sequence, f"subject.{sequence % 3}", None, b"%d" % sequence, sequence * 10)


def message(sequence: int) -> StoredMessage:
    return StoredMessage(sequence, f"subject.{sequence % 3}", None, b"%d" % sequence, sequence * 10)


def commit(block: MsgBlock, disk: bytearray, *, closing: bool = False) -> None:
    """Commit the block's appends to the bytes of its file."""
    extent = block.take_extent(block.commit_number + 1, 1, force=closing, closing=closing)
    if extent is not None:
        disk[extent.offset : extent.offset + extent.length] = memoryview(extent)
        block.committed()


def reopened(disk: bytearray, max_bytes: int = 1 << 20) -> MsgBlock:
    return MsgBlock.from_scan(Scan(bytes(disk)), max_bytes)


def test_a_new_block_is_empty() -> None:
    block = new_block(first_sequence=41)
    assert (block.base_sequence, block.first_sequence, block.last_sequence) == (41, 41, 40)
    assert (block.message_count, block.deleted_sequences.count, block.live_bytes) == (0, 0, 0)
    assert (block.size, block.durable_size) == (HEADER_BYTES, 0)
    assert block.take_extent(1, 1) is None


def test_what_is_put_can_be_got() -> None:
    block = new_block()
    size = block.put(1, "orders.é", b"NATS/1.0\r\n\r\n", b"payload", 5, 99)
    assert block.get(1) == StoredMessage(1, "orders.é", b"NATS/1.0\r\n\r\n", b"payload", 5, 99)
    assert size == block.record_bytes(1) == block.live_bytes == 40 + 8 + 9 + 12 + 7
    assert block.offset_of(1) == HEADER_BYTES
    assert block.get(0) is None
    assert block.get(2) is None


def test_sequences_increase() -> None:
    block = new_block()
    fill(block, 3)
    for sequence in (0, 1, 3):
        with pytest.raises(SequenceMismatch):
            block.put(sequence, "a", None, b"", 1)
        with pytest.raises(SequenceMismatch):
            block.skip(sequence)
    with pytest.raises(SequenceMismatch):
        block.put(1 + 2**32, "a", None, b"", 1)
    with pytest.raises(SequenceMismatch):
        block.skip(4, 2**64 - 4)
    with pytest.raises(SequenceMismatch):
        new_block().put(2**64 - 1, "a", None, b"", 1)
    assert block.live_sequences() == [1, 2, 3]


def test_what_does_not_fit_into_a_record_is_refused() -> None:
    block = new_block()
    with pytest.raises(MaximumMessageSizeExceeded):
        block.put(1, b"s" * 65_536, None, b"", 1)
    assert (block.size, block.message_count) == (HEADER_BYTES, 0)


def test_full_is_a_matter_of_size() -> None:
    block = new_block(max_bytes=200)
    block.put(1, "a", None, b"x" * 59, 1)
    assert not block.is_sealed
    block.put(2, "a", None, b"", 1)
    assert block.is_sealed


def test_removed_messages_are_not_served() -> None:
    block = new_block()
    fill(block, 5)
    before = block.live_bytes
    assert block.remove(3)
    assert not block.remove(3)
    assert not block.remove(9)
    assert block.get(3) is None
    assert block.live_sequences() == [1, 2, 4, 5]
    assert (block.message_count, block.deleted_sequences.count) == (4, 1)
    assert block.live_bytes == before - block.record_bytes(3)
    assert block.restore(3)
    assert not block.restore(3)
    assert block.get(3) == message(3)
    assert block.live_bytes == before


def test_skipped_sequences_are_deleted_from_the_start() -> None:
    block = new_block()
    fill(block, 2)
    block.skip(3, 1000)
    fill(block, 1)
    assert block.last_sequence == 1003
    assert block.live_sequences() == [1, 2, 1003]
    assert list(block.deleted_sequences.runs()) == [(3, 1002)]


@pytest.mark.parametrize("gap", [1, 100, 5000, 10**6, 2**32 - 2000])
def test_gaps_cost_little(gap: int) -> None:
    block = new_block()
    fill(block, 100)
    block.put(100 + gap, "a", None, b"far", 1)
    for sequence in range(101 + gap, 1101 + gap, 2):
        block.put(sequence, "a", None, b"%d" % sequence, 1)
    assert block.get(100 + gap) is not None
    assert block.get(102 + gap) is None
    assert block.live_sequences() == [
        *range(1, 101),
        100 + gap,
        *range(101 + gap, 1101 + gap, 2),
    ]
    assert block.array_bytes < 30_000
    assert block.remove(100 + gap)
    assert block.get(100 + gap) is None


def test_an_extent_is_what_the_file_is_to_hold() -> None:
    block = new_block()
    fill(block, 3)
    extent = block.take_extent(1, 1)
    assert extent is not None
    assert (extent.offset, extent.length) == (0, block.size)
    assert (extent.commit_number, extent.last_sequence) == (1, 3)
    block.committed()
    assert block.take_extent(2, 1) is None
    end = block.size
    fill(block, 1)
    extent = block.take_extent(2, 1)
    assert extent is not None
    assert extent.offset == end
    assert extent.length == block.record_bytes(4) + MARKS_BYTES


def test_a_full_block_takes_its_marks_without_being_moved() -> None:
    block = new_block(max_bytes=1 << 16)
    while not block.is_sealed:
        fill(block, 1)
    memory = block.cached_bytes
    assert memory < 2 * block.max_bytes
    assert block.take_extent(1, 1) is not None
    assert block.cached_bytes == memory


def test_appending_goes_on_while_a_commit_is_in_flight() -> None:
    block = new_block()
    fill(block, 10)
    extent = block.take_extent(1, 1)
    assert extent is not None
    before = bytes(memoryview(extent))
    fill(block, 5000)  # enough to make the buffer grow several times
    assert bytes(memoryview(extent)) == before
    block.committed()
    assert block.get(5010) == message(5010)
    scan = Scan(before)
    assert scan.sequences() == list(range(1, 11))


def test_a_commit_that_failed_is_undone_and_all_after_it() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 10)
    commit(block, disk)
    summary = block.summary()
    fill(block, 10)
    block.skip(21, 5)
    block.put_tombstones(SequenceSet([3]).encode())
    assert block.take_extent(2, 1) is not None
    fill(block, 10)
    block.rolled_back()
    assert block.summary()._replace(skipped=b"") == summary
    assert block.deleted_sequences.count == 0
    assert block.live_sequences() == list(range(1, 11))
    fill(block, 2)
    commit(block, disk)
    assert reopened(disk).live_sequences() == list(range(1, 13))
    assert Scan(bytes(disk)).damage == []


def test_undone_before_anything_was_on_disk() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 10)
    assert block.take_extent(1, 1) is not None
    block.rolled_back()
    assert (block.size, block.durable_size, block.message_count) == (HEADER_BYTES, 0, 0)
    fill(block, 1)
    commit(block, disk)
    assert reopened(disk).live_sequences() == [1]


def test_a_reopened_block_goes_on() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 10)
    commit(block, disk)
    block = reopened(disk)
    assert (block.seed, block.block_id, block.commit_number) == (SEED, 7, 1)
    fill(block, 10)
    commit(block, disk)
    block = reopened(disk)
    assert block.damage == []
    assert [block.get(sequence) for sequence in range(1, 21)] == [
        message(sequence) for sequence in range(1, 21)
    ]


def test_cache_and_arrays_are_dropped_each_for_itself() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 100)
    block.skip(101, 10)
    commit(block, disk)
    sizes = [block.record_bytes(sequence) for sequence in range(1, 101)]
    for sequence in (1, 2, 3, 50):
        block.remove(sequence)
    live = block.live_bytes
    assert block.has_cache
    assert block.clear_cache() > 0
    assert (block.has_cache, block.cached_bytes, block.clear_cache()) == (False, 0, 0)
    assert block.get(4) is None
    assert block.is_live(4)
    assert [block.record_bytes(sequence) for sequence in range(1, 101)] == sizes
    assert block.drop_arrays() > 0
    assert not block.has_arrays
    assert block.dead == SequenceSet([1, 2, 3, 50, *range(101, 111)])
    assert block.is_live(4)
    assert not block.is_live(3)
    assert not block.is_live(111)
    assert (block.message_count, block.live_bytes) == (96, live)
    assert block.load(Scan(bytes(disk))) == []
    assert (block.message_count, block.live_bytes) == (96, live)
    assert block.has_cache
    assert block.get(4) == message(4)
    assert block.get(3) is None
    assert block.deleted_sequences.count == 14


def test_a_block_comes_back_from_its_summary_without_being_read() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 100)
    block.skip(101, 10)
    commit(block, disk)
    fill(block, 1)
    for sequence in (1, 2, 3, 50):
        block.remove(sequence)
    with pytest.raises(ValueError, match="not wholly on disk"):
        block.summary()
    commit(block, disk)
    summary = block.summary()
    again = MsgBlock.from_summary(summary, 1 << 20)
    assert again.summary() == summary
    assert (again.has_arrays, again.has_cache, again.cached_bytes) == (False, False, 0)
    assert (again.message_count, again.live_bytes) == (block.message_count, block.live_bytes)
    assert again.is_live(111)
    assert not again.is_live(50)
    assert again.load(Scan(bytes(disk))) == []
    assert again.live_sequences() == block.live_sequences()
    assert again.deleted_sequences == block.deleted_sequences
    fill(again, 3)
    commit(again, disk)
    assert reopened(disk).live_sequences() == list(range(1, 101)) + list(range(111, 115))


def test_what_is_not_on_disk_stays_in_memory() -> None:
    block, disk = new_block(), bytearray()
    fill(block, 10)
    commit(block, disk)
    fill(block, 10)
    block.clear_cache()
    assert block.get(10) is None
    assert block.get(11) == message(11)
    assert block.drop_arrays() == 0
    extent = block.take_extent(2, 1)
    assert extent is not None
    fill(block, 1000)
    block.clear_cache()
    disk[extent.offset :] = memoryview(extent)
    block.committed()
    assert block.load(Scan(bytes(disk))) == []
    assert [block.get(sequence) for sequence in range(1, 1021)] == [
        message(sequence) for sequence in range(1, 1021)
    ]


@pytest.mark.parametrize("arrays", [True, False])
def test_what_was_lost_on_disk_meanwhile_is_told(arrays: bool) -> None:
    block, disk = new_block(), bytearray()
    fill(block, 10)
    commit(block, disk)
    offset, live = block.offset_of(5), block.live_bytes - block.record_bytes(5)
    disk[offset + 34] ^= 1
    block.clear_cache()
    if not arrays:
        block.drop_arrays()
    assert block.load(Scan(bytes(disk), proven=len(disk))) == [5]
    assert block.get(5) is None
    assert not block.is_live(5)
    assert [found.offset for found in block.damage] == [offset]
    assert (block.message_count, block.live_bytes) == (9, live)


def test_the_bytes_of_another_block_are_refused() -> None:
    disk = bytearray()
    other = MsgBlock(7, SEED + 1, 1, 1000)
    fill(other, 1)
    commit(other, disk)
    block = new_block()
    with pytest.raises(ValueError, match="not the bytes of block 7"):
        block.load(Scan(bytes(disk)))


def test_a_block_is_initialised_once() -> None:
    with pytest.raises(TypeError):
        new_block().__init__(1, 2, 3, 4)  # type: ignore[misc]  # a second __init__ is tested
    with pytest.raises(ValueError, match="begin with 1"):
        new_block(first_sequence=0)


def test_an_erased_message_is_noise_and_no_damage() -> None:
    block, disk = new_block(), bytearray()
    for sequence in range(1, 4):
        block.put(sequence, "secret.subject", b"secret headers", b"secret payload", 1)
    commit(block, disk)
    with pytest.raises(ValueError, match="not there to be erased"):
        block.erase_record(2, b"")
    block.remove(2)
    with pytest.raises(ValueError, match="42 bytes of noise"):
        block.erase_record(2, b"short")
    record = block.erase_record(2, bytes(range(42)))
    offset = block.offset_of(2)
    assert len(record) == block.record_bytes(2)
    disk[offset : offset + len(record)] = record
    assert bytes(disk).count(b"secret payload") == 2
    scan = Scan(bytes(disk))
    assert scan.damage == []
    assert scan.sequences() == [1, 3]
    assert reopened(disk).live_sequences() == [1, 3]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3)),
        st.tuples(st.just("put"), st.sampled_from([1, 1, 2, 3000])),
        st.tuples(st.just("skip"), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.sampled_from(
            [
                ("take", 0),
                ("done", 0),
                ("undo", 0),
                ("clear", 0),
                ("drop", 0),
                ("load", 0),
                ("reopen", 0),
            ]
        ),
    ),
    max_size=40,
)


@given(steps)
def test_model(script: list[tuple[str, int]]) -> None:
    """A block holds the same messages as a model made of dictionaries."""
    Model(script)


class Model:
    """A block, and copies of its messages as appended, as taken by a commit, and as on disk.

    Removals are kept outside the block, as MessageLog keeps them.
    """

    def __init__(self, script: list[tuple[str, int]]) -> None:
        self.block = new_block()
        self.disk = bytearray()
        self.stored: dict[int, StoredMessage] = {}
        self.taken: dict[int, StoredMessage] = {}
        self.durable: dict[int, StoredMessage] = {}
        self.gone: set[int] = set()
        for name, number in script:
            getattr(self, name)(number)
            self.check()

    def put(self, gap: int) -> None:
        sequence = self.block.last_sequence + gap
        if not self.block.has_arrays:
            self.load(0)
        self.block.put(sequence, f"s.{gap}", b"h" * gap or None, b"%d" % sequence * gap, sequence)
        read = self.block.get(sequence)
        assert read is not None
        self.stored[sequence] = read

    def skip(self, count: int) -> None:
        if not self.block.has_arrays:
            self.load(0)
        self.block.skip(self.block.last_sequence + 1, count)

    def remove(self, sequence: int) -> None:
        if self.block.has_arrays:
            present = sequence in self.stored and sequence not in self.gone
            assert self.block.remove(sequence) == present
            if present:
                self.gone.add(sequence)

    def take(self, _: int) -> None:
        if self.block.in_flight is None and self.block.take_extent(self.block.commit_number + 1, 1):
            self.taken = dict(self.stored)

    def done(self, _: int) -> None:
        extent = self.block.in_flight
        if extent is not None:
            self.disk[extent.offset :] = memoryview(extent)
            self.block.committed()
            self.durable = self.taken

    def undo(self, _: int) -> None:
        self.block.rolled_back()
        self.stored = dict(self.durable)
        self.gone &= self.stored.keys()

    def clear(self, _: int) -> None:
        if self.disk:
            self.block.clear_cache()

    def drop(self, _: int) -> None:
        self.block.drop_arrays()

    def load(self, _: int) -> None:
        if self.disk:
            assert self.block.load(Scan(bytes(self.disk))) == []

    def reopen(self, _: int) -> None:
        if self.disk:
            self.block = reopened(self.disk)
            self.stored = dict(self.durable)
            self.gone &= self.stored.keys()
            for sequence in self.gone:
                assert self.block.remove(sequence)

    def check(self) -> None:
        live = {key: value for key, value in self.stored.items() if key not in self.gone}
        assert self.block.message_count == len(live)
        assert self.block.live_bytes == sum(
            40 + len(m.subject) + len(m.headers or b"") + len(m.data) for m in live.values()
        )
        assert all(self.block.is_live(sequence) for sequence in live)
        assert not any(self.block.is_live(sequence) for sequence in self.gone)
        if self.block.has_arrays:
            assert self.block.live_sequences() == sorted(live)
            assert set(self.block.deleted_sequences) >= self.gone
        if self.block.has_arrays and self.block.has_cache:
            assert [self.block.get(sequence) for sequence in sorted(live)] == [
                live[sequence] for sequence in sorted(live)
            ]
        else:
            for sequence, stored in live.items():
                assert self.block.get(sequence) in (None, stored)
