"""Recycling: an obsolete cell is used again once no reader can see it any more, and not before."""

import gc
from collections.abc import Iterator

import pytest

from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, RecordTrie, TrieCursor
from tests.trie.plain_reader import check, read

CELL_BYTES = 32


def churn(trie: InMemoryTrie[int], rounds: int) -> None:
    """Write and delete keys; the trie is left as it was, with garbage."""
    for number in range(rounds):
        key = b"churn.%d" % (number % 97)
        trie.put(key, number)
        trie.put(key + b".more", number)
        trie.delete(key)
        trie.delete(key + b".more")


def sample(**limits: int) -> InMemoryTrie[int]:
    trie: InMemoryTrie[int] = InMemoryTrie(**limits)
    for number in range(20):
        trie.put(b"orders.%d" % number, number)
    return trie


@pytest.fixture
def resting() -> Iterator[tuple[InMemoryTrie[int], TrieCursor]]:
    """Yield a trie with a limit of 100 garbage cells, and a cursor that rests in it."""
    trie = sample(garbage_bytes_max=100 * CELL_BYTES)
    with trie.cursor() as cursor:
        for _ in range(5):
            cursor.advance()
        yield trie, cursor


def test_memory_is_flat_under_overwrites_and_deletes() -> None:
    trie = sample()
    churn(trie, 200)
    before = trie.usage()
    churn(trie, 5000)
    assert trie.usage() == before


def test_a_trie_of_records_stays_flat_too() -> None:
    trie = RecordTrie(28)
    for number in range(500):
        trie.put(b"orders.%d" % number, bytes(28))
    sizes = set()
    for number in range(20_000):
        key = b"orders.%d" % (number * 7919 % 500)
        trie.delete(key)
        trie.put(key, bytes(28))
        if number >= 2000:
            usage = trie.usage()
            sizes.add((usage.cell_bytes, usage.slot_bytes))
    assert len(sizes) <= 3
    assert trie.usage().cell_bytes < 500 * CELL_BYTES


def test_nothing_is_recycled_while_a_cursor_from_before_rests(
    resting: tuple[InMemoryTrie[int], TrieCursor],
) -> None:
    trie, cursor = resting
    root, contents = trie.root, read(trie).contents
    for number in range(10):
        trie.delete(b"orders.%d" % number)
    trie.recycle()
    kept = {key: index for key, index in contents.items() if len(key) > len(b"orders.0")}
    assert read(trie, root).contents.items() >= kept.items()
    for number in range(10, 20):
        trie.delete(b"orders.%d" % number)
    trie.recycle()
    assert trie.root == 0
    assert trie.usage().waiting == trie.usage().cells + trie.usage().slots > 20
    cursor.close()
    trie.recycle()
    assert trie.usage().waiting == trie.usage().cells == 0


def test_what_becomes_obsolete_after_a_cursor_left_does_not_wait_for_it() -> None:
    trie = sample()
    trie.cursor().close()
    churn(trie, 10)
    trie.recycle()
    assert trie.usage().waiting == 0


def test_a_cursor_holds_back_only_what_was_reachable_when_it_came() -> None:
    trie = sample()
    with trie.cursor():
        churn(trie, 3)
        waiting = trie.usage().waiting
        assert waiting > 0
        with trie.cursor():
            churn(trie, 3)
    trie.recycle()
    assert trie.usage().waiting == 0
    check(trie)


def test_a_forgotten_cursor_becomes_stale_above_the_garbage_limit(
    resting: tuple[InMemoryTrie[int], TrieCursor],
) -> None:
    trie, cursor = resting
    key = cursor.key()
    churn(trie, 500)
    assert trie.usage().waiting <= 200
    with pytest.raises(StaleCursor):
        cursor.advance()
    with pytest.raises(StaleCursor):
        cursor.skip_to(1, 0x70)
    assert cursor.key() == key


def test_below_the_limit_no_cursor_becomes_stale(
    resting: tuple[InMemoryTrie[int], TrieCursor],
) -> None:
    trie, cursor = resting
    churn(trie, 5)
    assert 0 < trie.usage().waiting <= 100
    while cursor.advance() >= 0:
        pass


def test_only_the_oldest_cursors_become_stale() -> None:
    trie = sample(garbage_bytes_max=400 * CELL_BYTES)
    old = trie.cursor()
    churn(trie, 500)
    young = trie.cursor()
    churn(trie, 1)
    with pytest.raises(StaleCursor):
        old.advance()
    assert young.advance() == 1


def test_a_collected_cursor_holds_nothing_back() -> None:
    trie = sample()
    cursor = trie.cursor()
    cursor.advance()
    churn(trie, 3)
    del cursor
    gc.collect()
    trie.recycle()
    assert trie.usage().waiting == 0


def test_a_stale_cursors_lease_can_be_given_back_and_taken_again(
    resting: tuple[InMemoryTrie[int], TrieCursor],
) -> None:
    trie, cursor = resting
    churn(trie, 500)
    cursor.close()
    assert cursor.advance() == -1
    with trie.cursor() as again:
        assert again.advance() == 1


def test_many_cursors_at_once() -> None:
    trie = sample()
    cursors = [trie.cursor() for _ in range(500)]
    churn(trie, 20)
    for cursor in cursors:
        assert cursor.advance_to_content() > 0
    for cursor in cursors:
        cursor.close()
    trie.recycle()
    assert trie.usage().waiting == 0


def test_a_cursor_keeps_its_trie() -> None:
    trie = sample()
    cursor = trie.cursor()
    del trie
    gc.collect()
    assert cursor.advance_to_content() == len(b"orders.0")


def test_what_a_long_reader_made_wait_leaves_no_trace() -> None:
    trie = sample()
    with trie.cursor():
        churn(trie, 1000)
        assert trie.usage().bookkeeping_bytes > 8 * 1024
    trie.recycle()
    assert trie.usage().bookkeeping_bytes < 8 * 1024
