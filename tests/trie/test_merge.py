"""`apply`: one trie is merged into another.

Source: Cassandra's InMemoryTrie design, "Merging a branch using apply" and "Handling prefix nodes".
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.trie.errors import ConcurrentWrite, TrieFull
from natsd.trie.in_memory import InMemoryTrie, RecordTrie
from tests.trie.model import DictTrie
from tests.trie.plain_reader import check, pointer_at, read

Content = dict[bytes, Any]


def trie_of(content: Content) -> InMemoryTrie[Any]:
    trie: InMemoryTrie[Any] = InMemoryTrie()
    for key, value in content.items():
        trie.put(key, value)
    return trie


def content_of(trie: InMemoryTrie[Any]) -> Content:
    return {key: trie.get(key) for key in check(trie).contents}


def newer(existing: Any, update: Any) -> Any:
    return update


SAMPLE: Content = {b"tractor": 0, b"tree": 1, b"trie": 2}


def test_the_documents_traverse_and_truck() -> None:
    trie = trie_of(SAMPLE)
    trie.apply(trie_of({b"traverse": 3, b"truck": 4}), newer)
    assert content_of(trie) == {**SAMPLE, b"traverse": 3, b"truck": 4}


def test_the_documents_trees() -> None:
    """In Cassandra's example `trees`, the content of `tree` moves from a leaf to a prefix.

    The prefix is embedded in the cell of the new chain `s`.
    """
    trie = trie_of(SAMPLE)
    index = check(trie).contents[b"tree"]
    trie.apply(trie_of({b"trees": 3}), newer)
    reading = check(trie)
    assert reading.contents[b"tree"] == index
    assert reading.kinds["embedded prefix"] == 1


def test_branches_attach_in_place_one_by_one() -> None:
    """Branches are attached in place one by one, so a merge is not atomic for readers.

    The transformer of the second branch sees the first one attached.
    """
    trie = trie_of(SAMPLE)
    root = trie.root
    seen = []

    def look(existing: Any, update: Any) -> Any:
        seen.append((trie.get(b"traverse"), trie.get(b"truck")))
        return update

    trie.apply(trie_of({b"traverse": 3, b"truck": 4}), look)
    assert seen == [(None, None), (3, None)]
    assert trie.root == root


def test_what_is_copied_is_attached_when_all_its_children_are_merged() -> None:
    """A copied node is attached only once all of its children are merged.

    The copy here is that of a root Sparse that overflows.
    """
    trie = trie_of({bytes([c]): c for c in b"ABCDE"})
    seen = []

    def look(existing: Any, update: Any) -> Any:
        seen.append([key for key in (b"X", b"Y", b"Z") if key in trie])
        return update

    trie.apply(trie_of({b"X": 1, b"Y": 2, b"Z": 3}), look)
    assert seen == [[], [b"X"], [b"X"]]  # X fitted into the Sparse, Y made a copy
    assert [key for key in (b"X", b"Y", b"Z") if key in trie] == [b"X", b"Y", b"Z"]
    check(trie)


def test_what_readers_stand_in_stays() -> None:
    trie = trie_of(SAMPLE)
    with trie.cursor():
        old_root = trie.root
        trie.apply(trie_of({b"tractors": 3, b"tr": 4, b"t": 5, b"": 6, b"zebra": 7}), newer)
        assert read(trie, old_root).contents.keys() >= SAMPLE.keys()
    check(trie)


def test_contents_of_both_go_through_the_transformer() -> None:
    trie = trie_of({b"": "a", b"k": "b", b"kk": "c"})
    trie.apply(
        trie_of({b"": "1", b"k": "2", b"kkk": "3"}), lambda existing, update: (existing, update)
    )
    assert content_of(trie) == {
        b"": ("a", "1"),
        b"k": ("b", "2"),
        b"kk": "c",
        b"kkk": (None, "3"),
    }


def test_none_from_the_transformer_leaves_a_key_as_it_is() -> None:
    trie = trie_of({b"k": 1})
    trie.apply(trie_of({b"k": 2, b"new": 3, b"kk": 4}), lambda existing, update: None)
    assert content_of(trie) == {b"k": 1}


def test_nothing_merged_with_nothing() -> None:
    trie = trie_of({})
    trie.apply(trie_of({}), newer)
    assert trie.root == 0


def test_anything_that_can_be_walked_can_be_merged() -> None:
    """`apply` merges anything that has a cursor."""
    trie = trie_of(SAMPLE)
    trie.apply(DictTrie({b"traverse": 3, b"": 4, b"tractors": 5}), newer)
    assert content_of(trie) == {**SAMPLE, b"traverse": 3, b"": 4, b"tractors": 5}


def test_records_are_merged_through_the_same_door() -> None:
    trie, other = RecordTrie(2), RecordTrie(2)
    trie.put(b"k", b"ab")
    other.put(b"k", b"xy")
    other.put(b"kk", b"zz")
    trie.apply(other, lambda existing, update: update if existing is None else existing)
    assert (trie.get(b"k"), trie.get(b"kk")) == (b"ab", b"zz")
    with pytest.raises(ValueError, match="2 bytes"):
        trie.apply(other, lambda existing, update: b"xxx")


def fail_at(key_value: Any) -> Callable[[Any, Any], Any]:
    """Return a transformer that raises ZeroDivisionError for this update."""

    def transform(existing: Any, update: Any) -> Any:
        if update == key_value:
            raise ZeroDivisionError
        return update

    return transform


@settings(deadline=None)
@given(
    st.dictionaries(st.binary(max_size=6), st.integers(0, 9)),
    st.dictionaries(st.binary(max_size=6), st.integers(0, 99), min_size=1),
    st.data(),
)
def test_a_merge_that_fails_keeps_what_was_merged_and_is_whole(
    base: Content, mutation: Content, data: st.DataObject
) -> None:
    trie = trie_of(base)
    ordered = sorted(mutation)
    stop = data.draw(st.integers(0, len(ordered) - 1))
    numbered = {key: 1000 + index for index, key in enumerate(ordered)}
    with pytest.raises(ZeroDivisionError):
        trie.apply(trie_of(numbered), fail_at(1000 + stop))
    assert content_of(trie) == {**base, **{key: numbered[key] for key in ordered[:stop]}}
    trie.put(b"writable", 1)


def test_a_merge_that_finds_no_room_keeps_what_was_merged_and_is_whole() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie(max_bytes=16 * 1024)
    mutation = {b"%d.%d" % (number * 7919 % 10_000, number): number for number in range(2000)}
    with pytest.raises(TrieFull):
        trie.apply(trie_of(mutation), newer)
    merged = content_of(trie)
    assert 50 < len(merged) < 2000
    assert merged.items() <= mutation.items()
    assert sorted(merged) == sorted(mutation)[: len(merged)]


def test_the_transformer_must_not_write() -> None:
    trie = trie_of({})

    def meddle(existing: Any, update: Any) -> Any:
        trie.put(b"x", 1)

    with pytest.raises(ConcurrentWrite):
        trie.apply(trie_of({b"k": 1}), meddle)
    assert content_of(trie) == {}


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c.", b"\0", b"\xff", b"orders."]), max_size=6).map(
    b"".join
) | st.binary(max_size=40)


@settings(deadline=None)
@given(
    st.dictionaries(KEYS, st.integers(), max_size=40),
    st.dictionaries(KEYS, st.integers(), max_size=40),
)
def test_apply_is_what_a_dict_does(base: Content, mutation: Content) -> None:
    trie = trie_of(base)
    with trie.cursor():
        trie.apply(trie_of(mutation), newer)
        assert content_of(trie) == {**base, **mutation}
    trie.recycle()
    assert trie.usage().waiting == 0
    check(trie)


@settings(deadline=None)
@given(st.lists(st.dictionaries(KEYS, st.binary(min_size=4, max_size=4), max_size=30), max_size=5))
def test_tries_of_blocks_are_merged_without_the_interpreter(blocks: list[Content]) -> None:
    """Recovery merges one trie per block, in order, with the same result as dicts."""
    whole = RecordTrie(4)
    expected: Content = {}
    for block in blocks:
        part = RecordTrie(4)
        for key, record in block.items():
            part.put(key, record)
        whole.update(part)
        expected |= block
    assert {key: whole.get(key) for key in check(whole).contents} == expected


def test_a_merged_chain_shares_its_cell_as_a_put_one_does() -> None:
    trie = trie_of({})
    trie.apply(trie_of({b"tractor": 0}), newer)
    assert trie.cell(trie.root)[trie.root & 31 : 0x1C] == b"tractor"
    assert pointer_at(trie.cell(trie.root), 0x1C) == ~0
