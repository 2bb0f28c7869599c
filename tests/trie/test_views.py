"""Slices, unions and matches, also nested ones, against the dicts they are made from."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.trie.in_memory import Cursor
from natsd.trie.views import Trie, entries, matching, subtrie, union, values
from tests.trie.model import DictTrie, lies_ahead, nodes_of
from tests.trie.test_trie_cursor import trie_of

KEYS = st.lists(st.sampled_from(b"\x00ab\xff"), max_size=4).map(bytes)
TRIES = st.dictionaries(KEYS, st.integers(0, 9)).map(DictTrie)
BOUNDS = st.none() | KEYS
SUBJECTS = st.lists(st.sampled_from([b"a", b"b", b"ab", b"*", b">", b""]), max_size=4).map(
    b".".join
)
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "ab", "*", "a*"]), min_size=1, max_size=3).map(".".join),
    st.sampled_from(["", "", ".>"]),
).map("".join) | st.just(">")


def source(content: DictTrie, real: bool) -> Trie:
    """Return the model itself, or a real trie of the same content."""
    return trie_of(content) if real else content


def in_order(model: dict[bytes, Any], reverse: bool) -> list[tuple[bytes, Any]]:
    return sorted(model.items(), reverse=reverse)


@settings(deadline=None)
@given(TRIES, st.booleans(), st.booleans())
def test_entries_are_in_the_order_of_their_keys(
    content: DictTrie, real: bool, reverse: bool
) -> None:
    trie = source(content, real)
    assert list(entries(trie, reverse=reverse)) == in_order(content, reverse)
    assert list(values(trie, reverse=reverse)) == [v for _, v in in_order(content, reverse)]


def test_a_slice_has_its_left_bound_and_not_its_right() -> None:
    trie = DictTrie({b"": 0, b"a": 1, b"ab": 2, b"b": 3, b"bc": 4})
    assert list(values(subtrie(trie, b"a", b"b"))) == [1, 2]
    assert list(values(subtrie(trie, b"a", b"b", left_inclusive=False, right_inclusive=True))) == [
        2,
        3,
    ]
    assert list(values(subtrie(trie, b"aa", None))) == [2, 3, 4]
    assert list(values(subtrie(trie, None, b"a"))) == [0]
    assert list(values(subtrie(trie, b"b", b"a"))) == []


def between(
    model: dict[bytes, Any],
    left: bytes | None,
    right: bytes | None,
    with_left: bool,
    with_right: bool,
) -> DictTrie:
    """Return the part of the model between the bounds."""
    return DictTrie(
        {
            key: value
            for key, value in model.items()
            if (left is None or left < key or (with_left and left == key))
            and (right is None or key < right or (with_right and right == key))
        }
    )


@settings(deadline=None)
@given(TRIES, BOUNDS, BOUNDS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_slices(
    content: DictTrie,
    left: bytes | None,
    right: bytes | None,
    with_left: bool,
    with_right: bool,
    reverse: bool,
    real: bool,
) -> None:
    trie = source(content, real)
    view = subtrie(trie, left, right, left_inclusive=with_left, right_inclusive=with_right)
    expected = between(content, left, right, with_left, with_right)
    assert list(entries(view, reverse=reverse)) == in_order(expected, reverse)


@settings(deadline=None)
@given(st.lists(TRIES, max_size=4), st.booleans(), st.booleans())
def test_unions(contents: list[DictTrie], reverse: bool, real: bool) -> None:
    expected: dict[bytes, list[int]] = {}
    for content in contents:
        for key, value in content.items():
            expected.setdefault(key, []).append(value)
    view = union([source(content, real) for content in contents], resolve=list)
    found = {
        key: value if isinstance(value, list) else [value]
        for key, value in entries(view, reverse=reverse)
    }
    assert found == expected
    assert list(found) == sorted(expected, reverse=reverse)


@settings(deadline=None)
@given(
    st.dictionaries(SUBJECTS, st.integers()).map(DictTrie), PATTERNS, st.booleans(), st.booleans()
)
def test_matches(content: DictTrie, pattern: str, reverse: bool, real: bool) -> None:
    expected = {key: value for key, value in content.items() if matches(key, pattern)}
    view = matching(source(content, real), pattern)
    assert list(entries(view, reverse=reverse)) == in_order(expected, reverse)


VIEWS: dict[str, Callable[[Trie, Trie], Trie]] = {
    "slice": lambda trie, other: subtrie(trie, b"a", b"b\xff"),
    "slice to a prefix": lambda trie, other: subtrie(trie, None, b"a", right_inclusive=True),
    "union": lambda trie, other: union([trie, other], resolve=max),
    "slice of a union": lambda trie, other: subtrie(union([trie, other], resolve=max), b"a", b"b"),
    "union of slices": lambda trie, other: union(
        [subtrie(trie, None, b"a"), subtrie(other, b"ab")], resolve=max
    ),
    "match": lambda trie, other: matching(trie, "*"),
    "match of a union": lambda trie, other: matching(union([trie, other], resolve=max), "ab"),
}


def same_place(cursor: Cursor, plain: Cursor) -> bool:
    """Return whether both cursors have the same depth, key and content."""
    if cursor.depth < 0:
        return plain.depth < 0
    return (cursor.depth, cursor.key(), cursor.content()) == (
        plain.depth,
        plain.key(),
        plain.content(),
    )


@settings(deadline=None)
@given(st.sampled_from(sorted(VIEWS)), TRIES, TRIES, st.booleans(), st.booleans(), st.data())
def test_views_move_as_plain_tries_do(
    name: str, one: DictTrie, other: DictTrie, reverse: bool, real: bool, data: st.DataObject
) -> None:
    """Every move over a view ends at the same content as over a plain copy of the view.

    A view may show nodes without content that the copy does not have, so a move is compared by the
    next content.
    """
    view = VIEWS[name](source(one, real), source(other, real))
    copy = DictTrie(entries(view))
    cursor, plain = view.cursor(reverse), copy.cursor(reverse)
    while plain.depth >= 0:
        depth = data.draw(st.integers(0, plain.depth + 1))
        transition = data.draw(st.sampled_from([*b"\x00ab\xff", 256 if not reverse else -1]))
        move = data.draw(st.sampled_from(["advance_multiple", "skip_children", "skip_to"]))
        for each in (cursor, plain):
            if move == "advance_multiple":
                each.advance_multiple(bytearray())
            elif move == "skip_children":
                each.skip_children()
            elif depth > 0 and lies_ahead(plain, depth, transition):
                each.skip_to(depth, transition)
            if each.depth >= 0 and each.content() is None:
                each.advance_to_content()
        assert same_place(cursor, plain)


@settings(deadline=None)
@given(st.sampled_from(sorted(VIEWS)), TRIES, TRIES, TRIES)
def test_views_can_be_merged_into_a_trie(
    name: str, one: DictTrie, other: DictTrie, target: DictTrie
) -> None:
    view = VIEWS[name](trie_of(one), trie_of(other))
    trie = trie_of(target)
    trie.apply(view, lambda existing, update: (existing, update))
    merged = {key: (target.get(key), value) for key, value in entries(view)}
    assert dict(entries(trie)) == target | merged


def test_the_model_walks_every_prefix() -> None:
    assert nodes_of({b"ab": 1, b"b": 2}) == [b"", b"a", b"ab", b"b"]
    assert nodes_of({b"ab": 1, b"b": 2}, reverse=True) == [b"", b"b", b"a", b"ab"]
