"""Chain nodes: their layout, in-place changes and copies.

Source: Cassandra's InMemoryTrie design, "Chain nodes".
"""

import pytest

from natsd.trie.in_memory import InMemoryTrie
from tests.trie.plain_reader import check, pointer_at, words


def trie_of(*keys: bytes) -> InMemoryTrie[bytes]:
    trie: InMemoryTrie[bytes] = InMemoryTrie()
    for key in keys:
        trie.put(key, key)
    return trie


def test_one_transition_stands_at_1b_before_its_child_pointer() -> None:
    trie = trie_of(b"A")
    assert trie.root == 0x1B
    assert trie.cell(0x1B)[0x1B:] == b"A\xff\xff\xff\xff"  # points to the leaf of content 0


def test_transitions_share_a_cell() -> None:
    """The transitions C, H and A share a cell; each has a valid pointer.

    The chain is 0x139 in Cassandra's drawing; 0x13A and 0x13B are valid pointers too.
    """
    trie = trie_of(b"CHA")
    assert trie.root == 0x19
    assert trie.cell(0)[0x19:] == b"CHA\xff\xff\xff\xff"


@pytest.mark.parametrize("length", [1, 27, 28, 29, 55, 56, 57, 1000])
def test_a_long_key_fills_cells_from_its_end(length: int) -> None:
    key = bytes(i % 251 for i in range(length))
    trie = trie_of(key)
    reading = check(trie)
    assert list(reading.contents) == [key]
    assert reading.kinds["chain"] <= length // 28 + 2


@pytest.mark.parametrize("length", [28, 56])
def test_no_chain_of_28_stands_in_cell_0(length: int) -> None:
    """No chain of 28 transitions is in cell 0, since its pointer would be 0, which is NONE."""
    trie = trie_of(bytes(length))
    assert trie.root != 0
    assert trie.get(bytes(length)) == bytes(length)


def test_no_transition_is_written_in_front_of_a_full_chain_in_cell_0() -> None:
    """A chain in cell 0 is not extended to 28 transitions, also if its upper part comes later.

    Content in the middle of the chain makes its upper part in a second step.
    """
    trie = trie_of(bytes(30))
    trie.put(bytes(2), b"two")
    trie.put(bytes(1), b"one")
    assert {key: trie.get(key) for key in check(trie).contents} == {
        bytes(30): bytes(30),
        bytes(2): b"two",
        bytes(1): b"one",
    }


def test_a_chains_child_pointer_is_changed_in_place() -> None:
    """The child pointer at 1C is the only part of a Chain that is changed in place."""
    trie = trie_of(*(b"CHA" + bytes([c]) for c in b"123456"))  # a chain CHA to a Sparse of six
    root, before = trie.root, trie.cell(trie.root)
    assert before[root & 31 :][:3] == b"CHA"
    trie.put(b"CHA7", b"7")  # makes the Sparse a Split
    assert trie.root == root
    assert trie.cell(root)[:0x1C] == before[:0x1C]
    assert pointer_at(before, 0x1C) & 31 == 0x1E
    assert pointer_at(trie.cell(root), 0x1C) & 31 == 0x1C


def test_a_fork_inside_a_chain_copies_what_is_above_and_shares_the_tail() -> None:
    """A fork inside a Chain copies the transitions above it and shares those below it.

    The pointers inside a Chain are implicit, so a new node must replace them.
    """
    trie = trie_of(b"tractor")
    cursor = trie.cursor()  # keeps obsolete cells
    before = trie.cell(0)
    trie.put(b"trie", b"trie")
    assert trie.cell(0) == before
    assert trie.root & ~31 != 0
    upper = trie.cell(trie.root)
    assert upper[trie.root & 31 : 0x1C] == b"tr"
    sparse = trie.cell(pointer_at(upper, 0x1C))
    assert sparse[0x18:0x1A] == b"ai"
    assert words(sparse)[0] == 0x15 + 3  # the tail behind `tra` in the old cell
    check(trie)
    cursor.close()


def test_a_cell_is_free_only_when_no_tail_of_it_is_in_use() -> None:
    trie = trie_of(b"tractor")
    trie.put(b"trie", b"trie")
    trie.recycle()
    assert 0 in check(trie).cells  # the tail `ctor` is still in it
    trie.delete(b"tractor")
    trie.recycle()
    assert trie.usage().cells == len(check(trie).cells) == 1  # the one chain `trie`
    assert trie.cell(trie.root)[trie.root & 31 : 0x1C] == b"trie"


def test_deleting_the_only_key_leaves_nothing() -> None:
    trie = trie_of(b"x" * 100)
    assert trie.delete(b"x" * 100)
    trie.recycle()
    assert trie.root == 0
    assert trie.usage().cells == trie.usage().slots == 0


def test_chains_that_a_deletion_leaves_behind_are_joined() -> None:
    trie = trie_of(b"abcdef", b"abc", b"abxyz")
    trie.delete(b"abc")
    trie.delete(b"abxyz")
    assert check(trie).kinds == {"chain": 1, "leaf": 1}
    assert trie.cell(trie.root)[trie.root & 31 : 0x1C] == b"abcdef"


def test_chains_too_long_for_a_cell_are_not_joined() -> None:
    left, right = b"l" * 20, b"r" * 20
    trie = trie_of(left + right, left)
    trie.delete(left)
    assert check(trie).kinds == {"chain": 2, "leaf": 1}
