"""A trie of objects: put, put_recursive, get and delete, ownership, and refusals."""

import gc
import weakref

import pytest

from natsd.trie.errors import ConcurrentWrite, TrieFull
from natsd.trie.in_memory import InMemoryTrie
from tests.trie.plain_reader import check


class Thing:
    """An object to which a test holds weak references."""


def test_a_key_leads_to_what_was_put_last() -> None:
    trie: InMemoryTrie[str] = InMemoryTrie()
    trie.put(b"orders.eu", "one")
    trie.put(b"orders.eu", "two")
    assert trie.get(b"orders.eu") == "two"
    assert b"orders.eu" in trie
    assert len(trie) == 1


@pytest.mark.parametrize("key", [b"", b"order", b"orders.eu.", b"x", b"orders.eu\0"])
def test_other_keys_lead_nowhere(key: bytes) -> None:
    trie: InMemoryTrie[str] = InMemoryTrie()
    trie.put(b"orders.eu", "one")
    assert trie.get(key) is None
    assert trie.get(key, "default") == "default"
    assert key not in trie
    assert not trie.delete(key)


def test_a_transformer_sees_what_was_there() -> None:
    """`put_recursive` calls its transformer with the existing content, or None for a new key."""
    trie: InMemoryTrie[list[int]] = InMemoryTrie()
    seen: list[list[int] | None] = []

    def append(existing: list[int] | None, update: int) -> list[int]:
        seen.append(existing)
        return [*(existing or []), update]

    trie.put_recursive(b"k", 1, append)
    trie.put_recursive(b"k", 2, append)
    assert seen == [None, [1]]
    assert trie.get(b"k") == [1, 2]


def test_a_transformer_that_returns_none_leaves_no_key() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    trie.put(b"k", 1)
    trie.put_recursive(b"k", 2, lambda existing, update: None)
    trie.put_recursive(b"other", 2, lambda existing, update: None)
    assert len(trie) == 0
    assert trie.root == 0


def test_a_transformer_that_fails_changes_nothing() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    trie.put(b"k", 1)
    with pytest.raises(ZeroDivisionError):
        trie.put_recursive(b"k", 0, lambda existing, update: (existing or 0) // update)
    assert trie.get(b"k") == 1
    trie.put(b"k", 2)
    assert trie.get(b"k") == 2


def test_a_transformer_may_read_the_trie_and_not_write_to_it() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    trie.put(b"k", 1)

    def meddle(existing: int | None, update: int) -> int:
        assert trie.get(b"k") == existing
        trie.put(b"other", update)
        return update

    with pytest.raises(ConcurrentWrite):
        trie.put_recursive(b"k", 2, meddle)
    assert trie.get(b"k") == 1


def test_none_is_no_content() -> None:
    trie: InMemoryTrie[None] = InMemoryTrie()
    with pytest.raises(TypeError, match="None"):
        trie.put(b"k", None)
    assert trie.root == 0


@pytest.mark.parametrize("key", ["text", None, 7])
def test_a_key_is_bytes(key: object) -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    with pytest.raises(TypeError):
        trie.put(key, 1)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(TypeError):
        trie.get(key)  # type: ignore[arg-type]  # that is the test


def test_objects_are_let_go_of_when_replaced_deleted_or_left_with_the_trie() -> None:
    trie: InMemoryTrie[Thing] = InMemoryTrie()
    things = [Thing() for _ in range(3)]
    watched = [weakref.ref(thing) for thing in things]
    trie.put(b"a", things.pop(0))
    trie.put(b"b", things.pop(0))
    trie.put(b"ab", things.pop(0))
    trie.put(b"a", Thing())
    assert [watch() is None for watch in watched] == [True, False, False]
    trie.delete(b"b")
    assert [watch() is None for watch in watched] == [True, True, False]
    del trie
    gc.collect()
    assert [watch() is None for watch in watched] == [True, True, True]


def test_a_deleted_object_lives_as_long_as_a_cursor_can_come_by() -> None:
    trie: InMemoryTrie[Thing] = InMemoryTrie()
    trie.put(b"k", Thing())
    watch = weakref.ref(trie.get(b"k"))
    cursor = trie.cursor()
    cursor.advance()
    trie.delete(b"k")
    assert cursor.content() is watch() is not None
    cursor.close()
    trie.recycle()
    assert watch() is None


def test_a_destructor_may_write_to_the_trie() -> None:
    trie: InMemoryTrie[object] = InMemoryTrie()

    class Avenger:
        def __del__(self) -> None:
            trie.put(b"revenge", 1)

    trie.put(b"replaced", Avenger())
    trie.put(b"replaced", 1)
    assert trie.delete(b"revenge")
    trie.put(b"deleted", Avenger())
    trie.delete(b"deleted")
    assert trie.get(b"revenge") == 1
    check(trie)


# ---- the size limit: a put beyond it raises before anything is changed


KEYS = [b"%d.%d" % (number * 7919 % 10_000, number) for number in range(10_000)]


def put_all(trie: InMemoryTrie[int], put: dict[bytes, int]) -> None:
    for number, key in enumerate(KEYS):
        trie.put(key, number)
        put[key] = number


def test_a_full_trie_refuses_and_is_as_it_was() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie(max_bytes=4096)
    put: dict[bytes, int] = {}
    with pytest.raises(TrieFull, match="4,096 bytes"):
        put_all(trie, put)
    assert len(put) > 40
    assert {key: trie.get(key) for key in check(trie).contents} == put
    assert trie.usage().cell_bytes <= 4096


def test_a_full_trie_takes_new_values_and_deletions() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie(max_bytes=4096)
    put: dict[bytes, int] = {}
    with pytest.raises(TrieFull):
        put_all(trie, put)
    trie.put(KEYS[0], 7)
    assert trie.get(KEYS[0]) == 7
    for key in put:
        assert trie.delete(key)
    assert trie.root == 0
    for key in put:
        trie.put(key, 1)


def test_a_key_longer_than_the_trie_is_refused() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie(max_bytes=4096)
    with pytest.raises(TrieFull):
        trie.put(bytes(5000), 1)
    assert trie.root == 0


@pytest.mark.parametrize("wrong", [{"max_bytes": 31}, {"max_bytes": -1}, {"garbage_bytes_max": -1}])
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        InMemoryTrie(**wrong)


def test_a_small_trie_is_cheap() -> None:
    """A trie of ten keys takes at most 2 KiB, since each of thousands of streams has one."""
    trie: InMemoryTrie[int] = InMemoryTrie()
    for number in range(10):
        trie.put(b"orders.%d" % number, number)
    usage = trie.usage()
    assert usage.cell_bytes <= 1024
    assert usage.cell_bytes + usage.slot_bytes + usage.bookkeeping_bytes <= 2048
