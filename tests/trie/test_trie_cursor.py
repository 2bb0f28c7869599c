"""Cursors over cells: every kind of node, forward and reverse, against the plain walk of a dict.

Source: Cassandra's InMemoryTrie design, "Cursors over InMemoryTrie", "Pointers and node types" and
"Content Prefix".
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.trie.in_memory import InMemoryTrie, RecordTrie, TrieCursor
from natsd.trie.views import entries
from tests.trie.model import DictCursor, DictTrie, lies_ahead, shown

EVERY_BYTE = [bytes([byte]) for byte in range(256)]
SAMPLES: dict[str, dict[bytes, Any]] = {
    "nothing": {},
    "a leaf at the root": {b"": 0},
    "one chain": {b"abc": 1},
    "a chain as long as a cell": {b"a" * 28: 1},
    "a chain over several cells": {b"abcdefg" * 12: 1},
    "content along a chain": {b"abc"[:length]: length for length in range(4)},
    "two children": {b"xa": 1, b"xb": 2},
    "six children": {b"x" + bytes([byte]): byte for byte in b"PA5C3B"},
    "six children with content above": {b"": 9} | {bytes([byte]): byte for byte in b"PA5C3B"},
    "seven children": {bytes([byte]): byte for byte in b"PA5C3BQ"},
    "seven children with content above": {b"": 9} | {bytes([byte]): byte for byte in b"PA5C3BQ"},
    "first and last of every Split cell": {
        bytes([byte]): byte for byte in (0, 7, 8, 63, 64, 127, 128, 191, 192, 248, 255)
    },
    "all bytes": {key: key[0] for key in EVERY_BYTE},
    "all bytes, twice deep": {a + b"-" + b: 1 for a in EVERY_BYTE[::9] for b in EVERY_BYTE[::5]},
    "Split, Sparse, Chain": {
        b"%d.%s.tail-of-%d" % (i, b"abcdef"[j : j + 1], i): i for i in range(12) for j in range(3)
    },
}


def trie_of(content: Mapping[bytes, Any]) -> InMemoryTrie[Any]:
    trie: InMemoryTrie[Any] = InMemoryTrie()
    for key, value in content.items():
        trie.put(key, value)
    return trie


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_walk_shows_every_node(name: str, reverse: bool) -> None:
    content = SAMPLES[name]
    assert shown(trie_of(content).cursor(reverse)) == shown(DictCursor(content, reverse))


def follow(cursor: TrieCursor, plain: DictCursor, move: str, depth: int, transition: int) -> None:
    """Make one move with both cursors; the plain one takes single steps along a chain."""
    if move == "skip_to":
        cursor.skip_to(depth, transition)
        plain.skip_to(depth, transition)
        return
    passed = bytearray()
    before = cursor.depth
    getattr(cursor, move)(*([passed] if move == "advance_multiple" else []))
    if move == "advance_multiple":
        for byte in passed:
            assert (plain.advance(), plain.incoming_transition) == (before + 1, byte)
            assert plain.content() is None
            before += 1
        plain.advance()
    else:
        getattr(plain, move)()


MOVES = ["advance", "advance_multiple", "advance_to_content", "skip_children", "skip_to"]
KEYS = st.lists(st.sampled_from(b"\x00\x07\x08\x40ab\x80\xc0\xff"), max_size=5).map(bytes)
CONTENTS = (
    st.dictionaries(KEYS, st.integers())
    | st.dictionaries(st.binary(max_size=3), st.integers(), max_size=40)
    | st.sampled_from(sorted(SAMPLES)).map(SAMPLES.__getitem__)
)


@settings(deadline=None)
@given(CONTENTS, st.booleans(), st.data())
def test_every_move_is_that_of_the_plain_walk(
    content: dict[bytes, int], reverse: bool, data: st.DataObject
) -> None:
    cursor = trie_of(content).cursor(reverse)
    plain = DictCursor(content, reverse)
    moves = data.draw(st.lists(st.sampled_from(MOVES), max_size=30))
    for move in moves:
        if plain.depth < 0:
            break
        depth = transition = 0
        if move == "skip_to":
            depth = data.draw(st.integers(1, plain.depth + 1))
            past = -1 if reverse else 256
            transition = data.draw(st.just(past) | st.integers(0, 255))
            if not lies_ahead(plain, depth, transition):
                continue
        follow(cursor, plain, move, depth, transition)
        assert (cursor.depth, cursor.incoming_transition, cursor.content()) == (
            plain.depth,
            plain.incoming_transition,
            plain.content(),
        )
        if plain.depth >= 0:
            assert cursor.key() == plain.key()


def test_advance_multiple_takes_a_chain_in_one_step() -> None:
    cursor = trie_of({b"tractor": 1}).cursor()
    passed = bytearray()
    assert cursor.advance_multiple(passed) == 7
    assert (passed, cursor.incoming_transition, cursor.content()) == (b"tracto", ord("r"), 1)


def test_a_chain_of_several_cells_takes_a_step_for_each() -> None:
    cursor = trie_of({b"a" * 70: 1}).cursor()
    depths = [cursor.advance_multiple(bytearray()) for _ in range(3)]
    assert depths == [70 - 28 - 27, 70 - 27, 70]  # a cell holds 28 transitions, cell 0 holds 27


def test_skip_to_within_a_split_looks_at_one_cell_only() -> None:
    cursor = trie_of(SAMPLES["all bytes"]).cursor()
    assert cursor.skip_to(1, 0x83) == 1
    assert cursor.incoming_transition == 0x83
    assert [cursor.advance() for _ in range(3)] == [1, 1, 1]
    assert cursor.incoming_transition == 0x86
    assert cursor.skip_to(1, 0xFF) == 1
    assert cursor.advance() == -1


def test_a_cursor_says_what_it_stands_on() -> None:
    """A cursor has the kind, pointer and prefix of its node, which `dump` shows."""
    cursor = trie_of({b"car": 1, b"ox": 2, b"oxen": 3}).cursor()
    seen = {}
    while cursor.depth >= 0:
        seen[cursor.key()] = (cursor.kind, cursor.has_prefix, cursor.pointer < 0)
        cursor.advance()
    assert seen == {
        b"": ("Sparse", False, False),
        b"c": ("Chain", False, False),
        b"ca": ("Chain", False, False),
        b"car": ("Leaf", False, True),
        b"o": ("Chain", False, False),
        b"ox": ("Chain", True, False),
        b"oxe": ("Chain", False, False),
        b"oxen": ("Leaf", False, True),
    }


def test_contents_of_records_are_copies_of_them() -> None:
    trie = RecordTrie(8)
    trie.put(b"a.b", b"12345678")
    trie.put(b"a", b"abcdefgh")
    assert list(entries(trie)) == [(b"a", b"abcdefgh"), (b"a.b", b"12345678")]


def test_a_cursor_keeps_its_trie() -> None:
    cursor = trie_of({b"a": 1}).cursor()
    assert (cursor.advance(), cursor.content()) == (1, 1)


def test_a_closed_cursor_is_past_the_end() -> None:
    cursor = trie_of({b"a": 1, b"b": 2}).cursor()
    cursor.advance()
    cursor.close()
    assert [
        cursor.advance(),
        cursor.advance_multiple(bytearray()),
        cursor.advance_to_content(),
        cursor.skip_children(),
        cursor.skip_to(1, 0),
    ] == [-1] * 5
    assert (cursor.content(), cursor.key(), cursor.kind) == (None, b"", "Leaf")


def test_a_cursor_is_of_a_trie() -> None:
    with pytest.raises(TypeError):
        TrieCursor(DictTrie())  # type: ignore[arg-type]  # a trie without cells is refused
