"""A cursor that stands still, and the writes that it sees.

The example is a trie of tractor, tree and trie, to which traverse, trespass and truck are added:

    t─r─┬─a─c─t─o─r          tr is a Sparse node, tra a Chain to tractor's leaf
        ├─e─e
        └─i─e

Source: Cassandra's InMemoryTrie design, "Adding a new key -> value mapping", "In-place
modifications" and "Merging a branch".
"""

import gc
from typing import Any

import pytest

from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, TrieCursor
from natsd.trie.views import entries, with_content
from tests.trie.test_trie_cursor import trie_of

TR = b"tr"


def sample() -> InMemoryTrie[int]:
    return trie_of({b"tractor": 0, b"tree": 1, b"trie": 2})


def stalled_at(trie: InMemoryTrie[Any], key: bytes, reverse: bool = False) -> TrieCursor:
    """Return a cursor that stands still on this key."""
    cursor = trie.cursor(reverse)
    while cursor.key() != key:
        cursor.advance()
    return cursor


def rest_of(cursor: TrieCursor) -> list[bytes]:
    """Return the keys with content that are ahead of the cursor."""
    return [key for key, _ in with_content(cursor)]


def test_a_forward_cursor_below_the_change_goes_on_in_what_was() -> None:
    trie = sample()
    cursor = stalled_at(trie, b"tra")
    trie.put(b"traverse", 3)
    assert rest_of(cursor) == [b"tractor", b"tree", b"trie"]
    assert rest_of(trie.cursor()) == [b"tractor", b"traverse", b"tree", b"trie"]


def test_a_forward_cursor_above_the_change_sees_it() -> None:
    trie = sample()
    cursor = stalled_at(trie, TR)
    trie.put(b"traverse", 3)
    assert rest_of(cursor) == [b"tractor", b"traverse", b"tree", b"trie"]


def test_the_later_of_two_writes_may_be_the_only_one_seen() -> None:
    """A cursor may see only the later of two writes, if only that one lies ahead of its walk."""
    trie = sample()
    cursor = stalled_at(trie, b"tra")
    trie.put(b"traverse", 3)
    trie.put(b"trespass", 4)
    assert rest_of(cursor) == [b"tractor", b"tree", b"trespass", b"trie"]


def test_a_reverse_cursor_to_the_right_of_the_change_sees_it() -> None:
    trie = sample()
    cursor = stalled_at(trie, b"tri", reverse=True)
    trie.put(b"traverse", 3)
    assert rest_of(cursor) == [b"trie", b"tree", b"traverse", b"tractor"]


def test_a_reverse_cursor_below_the_change_goes_on_in_what_was() -> None:
    trie = sample()
    cursor = stalled_at(trie, b"tra", reverse=True)
    trie.put(b"traverse", 3)
    assert rest_of(cursor) == [b"tractor"]


def test_a_new_child_of_a_sparse_node_that_was_entered_is_not_seen() -> None:
    """A cursor in a Sparse node does not see a new child, since it read the order word on entry.

    Cassandra's section on merging lets such a reader see `truck`. By its rules for Sparse nodes,
    which this trie follows, the reader cannot.
    """
    trie = sample()
    entered, before = stalled_at(trie, b"tree"), stalled_at(trie, b"t")
    trie.put(b"truck", 5)
    assert rest_of(entered) == [b"tree", b"trie"]
    assert rest_of(before) == [b"tractor", b"tree", b"trie", b"truck"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_new_child_of_a_split_node_is_seen_if_it_lies_ahead(reverse: bool) -> None:
    """A cursor in a Split sees new children ahead, also in new cells.

    It reads the cells when the walk comes back to them.
    """
    trie = trie_of({bytes([byte]): byte for byte in range(0x40, 0x50)})
    cursor = stalled_at(trie, b"\x48", reverse)
    for byte in (0x00, 0x3F, 0x50, 0x7F, 0x80, 0xFF):
        trie.put(bytes([byte]), byte)
    ahead = [*range(0x48, 0x51), 0x7F, 0x80, 0xFF]
    behind = [*range(0x48, 0x3E, -1), 0x00]
    assert [key[0] for key in rest_of(cursor)] == (behind if reverse else ahead)


def test_content_put_on_the_way_is_seen_above_and_not_below() -> None:
    """New content is seen by a cursor above its node, but not by one on the node.

    A Prefix is one more node above: the parent's pointer leads to the Prefix or to the old node.
    """
    trie = sample()
    above, on = stalled_at(trie, b"t"), stalled_at(trie, TR)
    trie.put(TR, 9)
    assert rest_of(above) == [TR, b"tractor", b"tree", b"trie"]
    assert rest_of(on) == [b"tractor", b"tree", b"trie"]


def test_what_is_deleted_ahead_is_gone_what_was_entered_stays() -> None:
    trie = sample()
    entered, before = stalled_at(trie, b"tra"), stalled_at(trie, b"t")
    trie.delete(b"tractor")
    assert rest_of(entered)[0] == b"tractor"
    assert rest_of(before) == [b"tree", b"trie"]


def test_what_is_deleted_from_a_node_that_was_entered() -> None:
    """A cursor in a Sparse node still sees a deleted child; one in a Split does not.

    A Sparse node loses a child by a copy, a Split by clearing a slot.
    """
    trie = sample()
    cursor = stalled_at(trie, b"tra")
    trie.delete(b"trie")
    assert rest_of(cursor) == [b"tractor", b"tree", b"trie"]

    trie = trie_of({bytes([byte]): byte for byte in range(0x40, 0x50)})
    cursor = stalled_at(trie, b"\x48")
    trie.delete(b"\x4a")
    assert [key[0] for key in rest_of(cursor)] == [0x48, 0x49, *range(0x4B, 0x50)]


def test_an_object_stays_as_long_as_a_cursor_stands_on_it() -> None:
    trie = sample()
    value = object()
    trie.put(b"tree", value)
    cursor = stalled_at(trie, b"tree")
    trie.delete(b"tree")
    trie.recycle()
    assert cursor.content() is value


def test_content_changed_in_place_is_seen() -> None:
    trie = sample()
    cursor = stalled_at(trie, b"tra")
    trie.put(b"tractor", 10)
    assert next(with_content(cursor)) == (b"tractor", 10)


def test_a_cursor_that_rested_too_long_is_stale() -> None:
    """Above the garbage limit a resting cursor becomes stale and holds nothing back any more."""
    trie: InMemoryTrie[int] = InMemoryTrie(garbage_bytes_max=0)
    keys = [b"key.%d" % i for i in range(200)]
    for key in keys:
        trie.put(key, 0)
    cursor = stalled_at(trie, keys[100])
    for key in keys:
        trie.delete(key)
    for move in (
        cursor.content,
        cursor.advance,
        cursor.advance_to_content,
        cursor.skip_children,
        lambda: cursor.advance_multiple(bytearray()),
        lambda: cursor.skip_to(1, 0),
    ):
        with pytest.raises(StaleCursor):
            move()
    assert cursor.key() == keys[100]
    cursor.close()
    assert cursor.advance() == -1


def test_a_cursor_gives_back_what_it_held() -> None:
    """A cursor holds nothing back after its end, its `close` or its collection."""
    trie = trie_of({b"key.%d" % i: i for i in range(200)})
    at_its_end, closed, collected = trie.cursor(), trie.cursor(), trie.cursor()
    half = entries(trie)
    next(half)
    for i in range(200):
        trie.delete(b"key.%d" % i)
    trie.recycle()
    assert trie.usage().waiting > 0
    while at_its_end.advance() >= 0:
        pass
    closed.close()
    del collected, half
    trie.recycle()
    assert trie.usage().waiting == 0


def test_a_cursor_in_a_cycle_is_collected_before_its_trie() -> None:
    """A cursor in a reference cycle is collected safely; its lease points into the trie."""

    class Knot(TrieCursor):
        me: Any

    trie = trie_of({b"key.%d" % i: i for i in range(20)})
    knot = Knot(trie)
    knot.me = knot
    del knot, trie
    gc.collect()

    trie = sample()
    knot = Knot(trie)
    knot.me = knot
    trie.delete(b"tree")
    del knot
    gc.collect()
    trie.recycle()
    assert trie.usage().waiting == 0
