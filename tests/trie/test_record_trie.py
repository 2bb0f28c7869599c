"""A trie of records of fixed width."""

import random
import struct

import pytest

from natsd.trie.errors import TrieFull
from natsd.trie.in_memory import RecordTrie
from tests.trie.plain_reader import check


def test_a_record_is_replaced_as_a_whole() -> None:
    trie = RecordTrie(24)
    assert trie.put(b"orders.eu", struct.pack("=3Q", 1, 1, 1))
    assert not trie.put(b"orders.eu", struct.pack("=3Q", 1, 9, 2))
    record = trie.get(b"orders.eu")
    assert record is not None
    assert struct.unpack("=3Q", record) == (1, 9, 2)
    assert trie.record_bytes == 24


def test_a_key_that_is_not_there_has_none() -> None:
    trie = RecordTrie(4)
    trie.put(b"ab", b"1234")
    assert trie.get(b"a") is None
    assert trie.get(b"abc", b"none") == b"none"
    assert b"ab" in trie
    assert b"" not in trie
    assert not trie.delete(b"a")


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 28, 100, 4096])
def test_any_width_keeps_records_apart(width: int) -> None:
    trie = RecordTrie(width)
    for number in range(50):
        trie.put(b"%d" % number, bytes([number]) * width)
    for number in range(50):
        assert trie.get(b"%d" % number) == bytes([number]) * width


def test_records_pay_for_nothing_but_themselves() -> None:
    trie = RecordTrie(28)
    for number in range(1000):
        trie.put(b"%d" % number, bytes(28))
    assert trie.usage().slot_bytes == 28_000


@pytest.mark.parametrize("record", [b"", b"123", b"12345"])
def test_a_record_of_another_width_is_refused(record: bytes) -> None:
    trie = RecordTrie(4)
    with pytest.raises(ValueError, match="4 bytes"):
        trie.put(b"k", record)
    assert trie.root == 0


@pytest.mark.parametrize("width", [0, -1, 4097])
def test_widths_have_bounds(width: int) -> None:
    with pytest.raises(ValueError, match="record_bytes"):
        RecordTrie(width)


def test_deleted_slots_are_used_again_zeroed() -> None:
    trie = RecordTrie(8)
    for number in range(1000):
        trie.put(b"%d" % number, b"12345678")
        trie.delete(b"%d" % number)
    usage = trie.usage()
    assert usage.slot_bytes < 1000
    check(trie)


def test_a_full_trie_refuses() -> None:
    trie = RecordTrie(8, max_bytes=2048)
    keys = [b"%d.%d" % (number * 7919 % 10_000, number) for number in range(10_000)]
    with pytest.raises(TrieFull):
        put_all(trie, keys)
    check(trie)


def put_all(trie: RecordTrie, keys: list[bytes]) -> None:
    for key in keys:
        trie.put(key, bytes(8))


def test_update_takes_over_what_another_trie_has() -> None:
    trie, other = RecordTrie(4), RecordTrie(4)
    trie.put(b"a", b"old.")
    trie.put(b"b", b"old.")
    other.put(b"b", b"new.")
    other.put(b"bcd", b"new.")
    other.put(b"", b"new.")
    trie.update(other)
    found = {key: trie.get(key) for key in check(trie).contents}
    assert found == {b"": b"new.", b"a": b"old.", b"b": b"new.", b"bcd": b"new."}
    with pytest.raises(ValueError, match="width"):
        trie.update(RecordTrie(8))


def test_a_record_is_never_seen_half_written_new_or_not() -> None:
    """A new key appears together with its record; test_reader_threads.py tests changed ones."""
    trie = RecordTrie(4)
    cursor = trie.cursor()
    trie.put(b"k", b"full")
    assert cursor.advance() == -1  # the cursor read the root before
    with trie.cursor() as later:
        later.advance()
        assert later.content() == b"full"


def test_a_trie_of_many_segments() -> None:
    """A trie works with small segments, which are on the heap, and large ones, which are mapped."""
    seeded = random.Random(3)
    records = {
        b"orders.%d.item.%d" % (seeded.randrange(1000), seeded.randrange(10**8)): bytes([i % 251])
        * 28
        for i in range(60_000)
    }
    trie = RecordTrie(28)
    for key, record in records.items():
        trie.put(key, record)
    usage = trie.usage()
    assert min(usage.cell_bytes, usage.slot_bytes) > 1 << 20
    assert all(trie.get(key) == record for key, record in records.items())
    assert len(trie) == len(records)
    for key in records:
        assert trie.delete(key)
    trie.recycle()
    assert (trie.usage().cells, trie.usage().slots) == (0, 0)
