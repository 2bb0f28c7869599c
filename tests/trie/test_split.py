"""Split nodes: a small trie of cells for the upper 2, the middle 3 and the lower 3 bits.

Source: Cassandra's InMemoryTrie design, "Split nodes" and "Adding a new child to Split".
"""

import pytest

from natsd.trie.in_memory import InMemoryTrie
from tests.trie.plain_reader import check, linked_from, words

SEVEN = "CA5BP3Q"  # the six of Cassandra's example, and Q


def trie_of(transitions: str) -> InMemoryTrie[str]:
    trie: InMemoryTrie[str] = InMemoryTrie()
    for transition in transitions:
        trie.put(transition.encode("latin-1"), transition)
    return trie


def test_head_mid_and_end_cells_are_the_documents() -> None:
    trie = trie_of(SEVEN)
    leaf = {transition: ~index for index, transition in enumerate(SEVEN)}
    assert trie.root & 31 == 0x1C
    head = words(trie.cell(trie.root))
    assert head[:4] == [0, 0, 0, 0]
    mid00, mid01, mid10, mid11 = head[4:]
    assert (mid10, mid11) == (0, 0)
    assert mid00 & 31 == mid01 & 31 == 0x1C
    ((middle, end00110),) = linked_from(trie, mid00, 0)
    assert middle == 0b110
    assert words(trie.cell(end00110)) == [0, 0, 0, leaf["3"], 0, leaf["5"], 0, 0]
    ends = dict(linked_from(trie, mid01, 0))
    assert sorted(ends) == [0b000, 0b010]
    assert words(trie.cell(ends[0])) == [0, leaf["A"], leaf["B"], leaf["C"], 0, 0, 0, 0]
    assert words(trie.cell(ends[2])) == [leaf["P"], leaf["Q"], 0, 0, 0, 0, 0, 0]


def test_a_new_end_cell_is_linked_at_one_place() -> None:
    """A new end cell changes one pointer in one mid cell, as for Cassandra's x: 01 111."""
    trie = trie_of(SEVEN)
    cells = {offset: trie.cell(offset) for offset in check(trie).cells}
    mid01 = words(trie.cell(trie.root))[5]
    trie.put(b"x", "x")
    after = {offset: trie.cell(offset) for offset in cells}
    assert [offset for offset in cells if cells[offset] != after[offset]] == [mid01 & ~31]
    assert words(after[mid01 & ~31])[:7] == words(cells[mid01 & ~31])[:7]
    end = words(after[mid01 & ~31])[7]
    assert words(trie.cell(end)) == [~7, 0, 0, 0, 0, 0, 0, 0]  # x is 01 111 000


def test_a_new_mid_cell_is_linked_in_the_head() -> None:
    trie = trie_of(SEVEN)
    root, before = trie.root, words(trie.cell(trie.root))
    trie.put(b"\xff", "ff")
    after = words(trie.cell(trie.root))
    assert trie.root == root
    assert after[:7] == before[:7]
    assert before[7] == 0
    ((seven, end),) = linked_from(trie, after[7], 0)
    assert seven == 7
    assert words(trie.cell(end)) == [0, 0, 0, 0, 0, 0, 0, ~7]


def test_a_child_where_its_cells_exist_changes_one_pointer() -> None:
    trie = trie_of(SEVEN)
    cells = {offset: trie.cell(offset) for offset in check(trie).cells}
    trie.put(b"4", "4")
    changed = [offset for offset in cells if cells[offset] != trie.cell(offset)]
    assert len(changed) == 1
    assert words(trie.cell(changed[0])) == [0, 0, 0, ~5, ~7, ~2, 0, 0]


def test_all_256_children_take_37_cells() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    for transition in range(256):
        trie.put(bytes([transition]), transition)
    assert len(check(trie).cells) == 37
    assert all(trie.get(bytes([transition])) == transition for transition in range(256))


@pytest.mark.parametrize("order", [range(256), range(255, -1, -1)])
def test_cells_go_with_their_last_child(order: range) -> None:
    """An end or mid cell is removed with its last child; `check` fails if one is left empty."""
    trie: InMemoryTrie[int] = InMemoryTrie()
    for transition in range(256):
        trie.put(bytes([transition]), transition)
    left = set(order)
    for transition in order:
        assert trie.delete(bytes([transition]))
        left.remove(transition)
        assert {key[0] for key in check(trie).contents} == left


def test_removal_is_in_place_until_six_are_left() -> None:
    trie = trie_of(SEVEN + "x")
    root = trie.root
    trie.delete(b"x")
    assert trie.root == root
    cursor = trie.cursor()
    head = trie.cell(root)
    trie.delete(b"Q")
    assert trie.root & 31 == 0x1E
    assert trie.cell(root) == head
    assert trie.cell(trie.root)[0x18:0x1E] == b"35ABCP"
    cursor.close()
    trie.recycle()
    assert trie.usage().cells == 1
