"""A block and its file: the operations of BlockFile, and a crash, a full or a broken disk.

After any crash a message is whole or gone. A record erases nothing before the record itself is
durable. A secure erase overwrites the bytes. Sealing survives recovery, and a bad record does not
end the scan (docs/store.md).
"""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.block_file import BlockFile, block_path
from natsd.store.disk import RealDisk
from natsd.store.errors import (
    BlockSealed,
    BlockUnreadable,
    MessageDamaged,
    SequenceMismatch,
    StoreClosed,
    StoreFull,
    StoreReadOnly,
)
from natsd.store.record import StoredMessage
from tests.store.damage import overwritten, with_flipped_bit
from tests.store.faulty_disk import FaultyDisk, PowerLoss

SEED = 0x5EED_0000_0000_0001
MAX_BYTES = 1 << 20
VOLUME = Path("/volume")


@pytest.fixture
def block(tmp_path: Path) -> BlockFile:
    return BlockFile.create(RealDisk(), tmp_path / "msgs", 1, MAX_BYTES, seed=SEED)


def recovered(block: BlockFile) -> BlockFile:
    return BlockFile.recover(block.disk, block.path.parent, block.block_id, block.max_bytes)


def damaged(block: BlockFile, change: Callable[[bytes], bytes]) -> BlockFile:
    """Return the block as recovered after `change` was applied to the bytes of its closed file."""
    block.close()
    block.path.write_bytes(change(block.path.read_bytes()))
    return recovered(block)


# ---- operations


def test_create_write_read(block: BlockFile) -> None:
    assert block.path.name == "000001.blk"
    assert (block.block_id, block.first_sequence, block.last_sequence) == (1, 1, 0)
    assert block.write("orders.new", b"NATS/1.0\r\n\r\n", b"one", 100) == 1
    assert block.write("orders.new", None, b"two", 101) == 2
    assert block.read(1) == StoredMessage(1, "orders.new", b"NATS/1.0\r\n\r\n", b"one", 100)
    assert block.read(2) == StoredMessage(2, "orders.new", None, b"two", 101)
    assert block.read(3) is None
    assert (block.message_count, block.deleted_count, block.last_sequence) == (2, 0, 2)


def test_a_block_begins_where_it_is_told_and_is_created_once(tmp_path: Path) -> None:
    block = BlockFile.create(RealDisk(), tmp_path, 123456, MAX_BYTES, 1000, seed=SEED)
    assert block.path == tmp_path / "123456.blk"
    assert block.write("a", None, b"", 1) == 1000
    with pytest.raises(FileExistsError):
        BlockFile.create(RealDisk(), tmp_path, 123456, MAX_BYTES, seed=SEED)


def test_write_at_gives_sequence_and_time(block: BlockFile) -> None:
    block.write_at(10, "a", None, b"ten", 1_000_000)
    block.write_at(20, "a", None, b"twenty", 2_000_000, 3_000_000)
    assert block.read(20) == StoredMessage(20, "a", None, b"twenty", 2_000_000, 3_000_000)
    assert (block.first_sequence, block.last_sequence, block.message_count) == (10, 20, 2)
    assert block.write("a", None, b"", 1) == 21
    with pytest.raises(SequenceMismatch):
        block.write_at(15, "a", None, b"", 1)


def test_recovery_brings_back_what_was_flushed(block: BlockFile) -> None:
    written = [block.write(f"s.{n % 5}", None, b"x" * n, n) for n in range(100)]
    expected = [block.read(sequence) for sequence in written]
    block.delete(7)
    block.write_skip(101, 3)
    assert block.flush_pending() > 0
    again = recovered(block)
    expected[6] = None
    assert [again.read(sequence) for sequence in written] == expected
    assert (again.first_sequence, again.last_sequence) == (1, 103)
    assert (again.message_count, again.deleted_count) == (99, 4)
    assert again.max_skip_sequence == 103
    assert again.write("a", None, b"", 1) == 104


def test_a_sealed_block_stays_sealed(tmp_path: Path) -> None:
    block = BlockFile.create(RealDisk(), tmp_path, 1, 1000, seed=SEED)
    while not block.is_sealed:
        block.write("a", None, b"x" * 100, 1)
    with pytest.raises(BlockSealed):
        block.write("a", None, b"", 1)
    with pytest.raises(BlockSealed):
        block.write_skip(100)
    assert block.delete(1)
    block.close()
    again = BlockFile.recover(RealDisk(), tmp_path, 1, 1000)
    assert again.is_sealed
    assert again.is_deleted(1)
    with pytest.raises(BlockSealed):
        again.write_at(100, "a", None, b"", 1)


def test_deleting_is_soft(block: BlockFile) -> None:
    for _ in range(3):
        block.write("a", None, b"", 1)
    assert block.delete(2)
    assert not block.delete(2)
    assert not block.delete(4)
    assert block.read(2) is None
    assert block.is_deleted(2)
    assert set(block.deleted_sequences) == {2}
    assert (block.message_count, block.deleted_count) == (2, 1)
    assert list(block.enumerate_non_deleted()) == [(1, "a"), (3, "a")]


def test_skips_are_deleted_sequences(block: BlockFile) -> None:
    block.write("a", None, b"", 1)
    assert block.max_skip_sequence == 0
    block.write_skip(2)
    block.write_skip(3, 10)
    assert (block.max_skip_sequence, block.last_sequence) == (12, 12)
    assert block.is_deleted(5)
    assert block.read(5) is None
    assert (block.message_count, block.deleted_count) == (1, 11)


def test_reads_go_to_the_file_when_the_cache_is_gone(block: BlockFile) -> None:
    assert block.has_cache
    for n in range(10):
        block.write("a", b"h" * n or None, b"%d" % n, n)
    expected = [block.read(sequence) for sequence in range(1, 11)]
    block.flush_pending()
    block.write("b", None, b"pending", 5)
    block.clear_cache()
    assert not block.has_cache
    assert [block.read(sequence) for sequence in range(1, 11)] == expected
    assert block.read(11) == StoredMessage(11, "b", None, b"pending", 5)
    assert [subject for _, subject in block.enumerate_non_deleted()] == ["a"] * 10 + ["b"]


def test_pending_and_used_bytes(block: BlockFile) -> None:
    assert (block.pending_write_size, block.flush_pending()) == (0, 0)
    block.write("a", None, b"12345", 1)
    assert block.pending_write_size == 40 + 1 + 5
    assert block.flush_pending() == block.bytes_used == block.path.stat().st_size
    assert block.pending_write_size == 0


def test_the_last_checksum_is_that_of_the_last_record(block: BlockFile) -> None:
    assert block.last_checksum is None
    block.write("a", None, b"12345", 1)
    first = block.last_checksum
    block.write("a", None, b"12345", 1)
    second = block.last_checksum
    assert first is not None
    assert second is not None
    assert first != second
    block.close()
    assert block.path.read_bytes().count(second) == 1
    assert recovered(block).last_checksum == second


def test_closing(block: BlockFile) -> None:
    block.write("a", None, b"", 1)
    block.close()
    block.close()
    for attempt in (lambda: block.write("a", None, b"", 1), block.flush, lambda: block.delete(1)):
        with pytest.raises(StoreClosed):
            attempt()
    assert recovered(block).read(1) is not None
    block.clear_cache()
    with pytest.raises(StoreClosed):
        block.read(1)


# ---- erasing


def test_secure_erase_overwrites_the_bytes(block: BlockFile) -> None:
    for _ in range(3):
        block.write("secret.subject", b"secret headers", b"secret payload", 1)
    assert block.delete(2, secure_erase=True)
    assert not block.delete(2, secure_erase=True)
    data = block.path.read_bytes()
    for text in (b"secret.subject", b"secret headers", b"secret payload"):
        assert data.count(text) == 2
    again = recovered(block)
    assert again.damage == []
    assert [sequence for sequence, _ in again.enumerate_non_deleted()] == [1, 3]
    assert again.is_deleted(2)
    assert again.path.read_bytes() == data


@pytest.mark.parametrize("seed", range(20))
def test_recovery_finishes_an_erasure_that_was_cut_short(seed: int) -> None:
    disk = FaultyDisk()
    disk.mkdir(VOLUME)
    block = BlockFile.create(disk, VOLUME, 1, MAX_BYTES, seed=SEED)
    disk.sync_dir(Path("/"))
    for _ in range(3):
        block.write("a", None, b"secret" * 200, 1)
    block.flush()
    disk.fail("fdatasync", errno.EIO, after=1)
    with pytest.raises(StoreReadOnly):
        block.delete(2, secure_erase=True)
    after = disk.crash(seed)
    again = BlockFile.recover(after, VOLUME, 1, MAX_BYTES)
    assert again.damage == []
    assert (again.read(2), again.is_deleted(2) or again.offset_of(2) == 0) == (None, True)
    file = after.open(block.path)
    assert file.pread(1 << 20, 0).count(b"secret") == 400
    assert BlockFile.recover(after, VOLUME, 1, MAX_BYTES).damage == []


# ---- damage


def test_a_damaged_message_is_never_served(block: BlockFile) -> None:
    for _ in range(3):
        block.write("a", None, b"payload", 1)
    offset = block.offset_of(2)
    again = damaged(block, lambda data: with_flipped_bit(data, (offset + 35) * 8))
    with pytest.raises(MessageDamaged) as raised:
        again.read(2)
    assert (raised.value.sequence, raised.value.offset) == (2, offset)
    assert raised.value.path == str(block.path)
    assert [sequence for sequence, _ in again.enumerate_non_deleted()] == [1, 3]
    assert not again.delete(2)


def test_damage_that_comes_later_is_noticed_when_read(block: BlockFile) -> None:
    block.write("a", None, b"payload", 1)
    block.flush()
    block.path.write_bytes(with_flipped_bit(block.path.read_bytes(), (block.offset_of(1) + 35) * 8))
    assert block.read(1) is not None
    block.clear_cache()
    with pytest.raises(MessageDamaged):
        block.read(1)


def test_what_is_no_block_is_left_as_it_is(block: BlockFile) -> None:
    block.write("a", None, b"payload", 1)
    for change in (
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: b"something else altogether" * 10,
    ):
        with pytest.raises(BlockUnreadable, match=r"000001\.blk"):
            damaged(block, change)
    assert block.path.read_bytes() == b"something else altogether" * 10


def test_a_file_under_another_name_is_refused(block: BlockFile, tmp_path: Path) -> None:
    block.close()
    block.path.rename(block_path(tmp_path, 2))
    with pytest.raises(BlockUnreadable, match="is block 1"):
        BlockFile.recover(RealDisk(), tmp_path, 2, MAX_BYTES)


def test_what_is_torn_is_cut_off_the_file(block: BlockFile) -> None:
    block.write("a", None, b"payload", 1)
    block.close()
    whole = block.path.read_bytes()
    block.path.write_bytes(whole + b"torn" * 100)
    again = recovered(block)
    assert block.path.read_bytes() == whole
    assert again.write("a", None, b"payload", 1) == 2
    again.flush()
    assert recovered(block).read(2) is not None


def test_a_header_that_is_damaged_costs_nothing(block: BlockFile) -> None:
    block.write("a", None, b"payload", 1)
    again = damaged(block, lambda data: overwritten(data, 0, bytes(64)))
    assert again.read(1) is not None
    assert [found.what for found in again.damage] == ["block header damaged"]


# ---- a disk that is full or broken


def faulty(capacity_bytes: int | None = None) -> tuple[FaultyDisk, BlockFile]:
    disk = FaultyDisk(capacity_bytes=capacity_bytes)
    disk.mkdir(VOLUME)
    disk.sync_dir(Path("/"))
    return disk, BlockFile.create(disk, VOLUME, 1, MAX_BYTES, seed=SEED)


def test_without_space_all_since_the_last_commit_is_taken_back() -> None:
    disk, block = faulty(capacity_bytes=2000)
    for _ in range(3):
        block.write("a", None, b"x" * 100, 1)
    block.flush()
    block.delete(1)
    block.write("a", None, b"x" * 2000, 1)
    with pytest.raises(StoreFull):
        block.flush()
    assert [sequence for sequence, _ in block.enumerate_non_deleted()] == [1, 2, 3]
    assert (block.last_sequence, block.deleted_count) == (3, 0)
    disk.capacity_bytes = None
    assert block.write("a", None, b"y" * 2000, 1) == 4
    block.delete(2)
    block.close()
    again = BlockFile.recover(disk, VOLUME, 1, MAX_BYTES)
    assert [sequence for sequence, _ in again.enumerate_non_deleted()] == [1, 3, 4]
    assert again.damage == []


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_after_another_error_nothing_is_written_any_more(call: str) -> None:
    disk, block = faulty()
    block.write("a", None, b"", 1)
    block.flush()
    block.write("a", None, b"", 1)
    disk.fail(call, errno.EIO)
    with pytest.raises(StoreReadOnly):
        block.flush()
    for attempt in (lambda: block.write("a", None, b"", 1), block.flush, lambda: block.delete(1)):
        with pytest.raises(StoreReadOnly):
            attempt()
    assert block.read(1) is not None
    calls = len(disk.calls)
    block.close()
    assert "pwrite" not in disk.calls[calls:]


# ---- power loss

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 900)),
        st.tuples(st.just("write"), st.integers(0, 900)),
        st.tuples(st.just("delete"), st.integers(1, 20)),
        st.tuples(st.just("erase"), st.integers(1, 20)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("flush_pending"), st.just(0)),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
    ),
    max_size=20,
)
lives = st.lists(
    st.tuples(steps, st.integers(1, 30), st.integers(0, 10**6)), min_size=1, max_size=4
)


@given(lives)
def test_what_was_synced_survives_power_loss(
    script: list[tuple[list[tuple[str, int]], int, int]],
) -> None:
    Survivor(script)


class Survivor:
    """A block that lives through several crashes, and the promises it made.

    Messages in `kept` must be found after a crash, and sequences in `gone` must not.
    """

    def __init__(self, script: list[tuple[list[tuple[str, int]], int, int]]) -> None:
        self.kept: dict[int, StoredMessage] = {}
        self.gone: set[int] = set()
        self.known: dict[int, list[StoredMessage]] = {}  # all messages that ever had the sequence
        self.deleted: set[int] = set()  # removals that are not synced yet
        self.disk, self.block = faulty()
        self.block.flush()
        for life, calls, seed in script:
            self.disk.power_fails_at = calls
            try:
                for name, number in life:
                    getattr(self, name)(number)
            except PowerLoss:
                pass
            self.recover(seed)

    def write(self, size: int) -> None:
        sequence = self.block.write("s", None, b"%d" % size * (size // 4), size)
        message = self.block.read(sequence)
        assert message is not None
        self.known.setdefault(sequence, []).append(message)

    def delete(self, sequence: int) -> None:
        if self.block.delete(sequence):
            self.deleted.add(sequence)
            self.kept.pop(sequence, None)

    def erase(self, sequence: int) -> None:
        self.kept.pop(sequence, None)
        if self.block.delete(sequence, secure_erase=True):
            self.gone.add(sequence)

    def skip(self, count: int) -> None:
        self.block.write_skip(self.block.last_sequence + 1, count)

    def flush_pending(self, _: int) -> None:
        self.block.flush_pending()

    def clear(self, _: int) -> None:
        self.block.clear_cache()

    def flush(self, _: int) -> None:
        self.block.flush()
        self.promise()

    def close(self, _: int) -> None:
        self.block.close()
        self.promise()
        self.block = BlockFile.recover(self.disk, VOLUME, 1, MAX_BYTES)

    def promise(self) -> None:
        """Note that everything so far is synced."""
        self.gone |= self.deleted
        self.deleted.clear()
        self.kept = {sequence: self.known[sequence][-1] for sequence in self.block.live_sequences()}

    def recover(self, seed: int) -> None:
        self.disk = self.disk.crash(seed)
        self.block = BlockFile.recover(self.disk, VOLUME, 1, MAX_BYTES)
        found = dict.fromkeys(self.block.live_sequences())
        for sequence in found:
            message = self.block.read(sequence)
            assert message in self.known[sequence]
            assert sequence not in self.kept or message == self.kept[sequence]
        assert self.kept.keys() <= found.keys()
        assert not self.gone & found.keys()
        assert self.block.last_sequence >= max(self.kept, default=0)
        for sequence in list(self.known):
            if sequence > self.block.last_sequence:
                del self.known[sequence]
        self.deleted.clear()
