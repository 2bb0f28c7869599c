"""Prefixes, the content of nodes with children: standalone and embedded ones.

Source: Cassandra's InMemoryTrie design, "Content Prefix".
"""

from natsd.trie.in_memory import InMemoryTrie
from tests.trie.plain_reader import check, pointer_at, words


def trie_of(*keys: bytes) -> InMemoryTrie[bytes]:
    trie: InMemoryTrie[bytes] = InMemoryTrie()
    for key in keys:
        trie.put(key, key)
    return trie


def test_before_a_sparse_node_it_stands_alone() -> None:
    """The prefix of a Sparse node has a cell of its own, and pointer offset 1F.

    The cell holds the content index, the flag FF in one byte, and the linked node at 1C.
    """
    trie = trie_of(b"A", b"C")
    sparse = trie.root
    trie.put(b"", b"root")
    assert trie.root & 31 == 0x1F
    cell = trie.cell(trie.root)
    assert pointer_at(cell, 0) == 2
    assert cell[4] == 0xFF
    assert pointer_at(cell, 0x1C) == sparse
    assert check(trie).kinds == {"standalone prefix": 1, "sparse": 1, "leaf": 2}


def test_in_a_split_head_it_is_embedded() -> None:
    """The prefix of a Split is in its head's cell.

    Both pointers are valid: 1C is the plain Split, and 1F the one with content.
    """
    trie = trie_of(*(bytes([c]) for c in b"CA5BP3Q"))
    split, before = trie.root, trie.cell(trie.root)
    trie.put(b"", b"root")
    assert (split & 31, trie.root) == (0x1C, split | 0x1F)
    after = trie.cell(split)
    assert pointer_at(after, 0) == 7
    assert after[4] == 0x1C
    assert after[5:] == before[5:]
    trie.delete(b"")
    assert trie.root == split


def test_in_a_new_chains_cell_it_is_embedded() -> None:
    """The prefix of a new Chain is in the Chain's cell: content 1 for `tree`, then `trees`.

    These are 0x0BB and 0x0BF in Cassandra's drawing.
    """
    trie = trie_of(b"tree", b"trees")
    assert check(trie).kinds == {"chain": 2, "embedded prefix": 1, "leaf": 1}
    prefix = pointer_at(trie.cell(trie.root), 0x1C)
    cell = trie.cell(prefix)
    assert prefix & 31 == 0x1F
    assert pointer_at(cell, 0) == 0
    assert cell[4] == 0x1B
    assert cell[0x1B:0x1C] == b"s"
    assert pointer_at(cell, 0x1C) == ~1


def test_a_chain_that_was_there_is_copied_for_it() -> None:
    """An existing Chain is copied to get a prefix.

    The bytes before the Chain's first transition may be in use by readers.
    """
    trie = trie_of(b"orders.eu")
    cursor = trie.cursor()
    before = trie.cell(0)
    trie.put(b"orders", b"orders")
    assert trie.cell(0) == before
    assert check(trie).kinds == {"chain": 2, "embedded prefix": 1, "leaf": 1}
    cursor.close()
    trie.recycle()
    assert trie.usage().cells == 2


def test_a_chain_without_room_gets_one_that_stands_alone() -> None:
    trie = trie_of(b"z", b"a" + b"x" * 28)
    assert check(trie).kinds == {"sparse": 1, "chain": 1, "leaf": 2}
    trie.put(b"a", b"a")
    assert check(trie).kinds == {"sparse": 1, "chain": 1, "standalone prefix": 1, "leaf": 2}


def test_a_standalone_link_is_changed_in_place() -> None:
    trie = trie_of(b"z", b"a", b"a" + b"x" * 28, b"ay")
    root, before = trie.root, trie.cell(trie.root)
    prefix = words(before)[0]
    link = words(trie.cell(prefix))[7]
    trie.delete(b"ay")  # leaves a Chain of 28, which has no room
    assert (trie.root, trie.cell(root)) == (root, before)
    assert trie.cell(prefix)[4] == 0xFF
    assert words(trie.cell(prefix))[7] != link
    assert check(trie).kinds == {"sparse": 1, "chain": 1, "standalone prefix": 1, "leaf": 2}


def test_it_moves_into_a_chain_that_its_sparse_node_becomes() -> None:
    trie = trie_of(b"a", b"aA", b"aC")
    assert check(trie).kinds == {"chain": 1, "standalone prefix": 1, "sparse": 1, "leaf": 2}
    trie.delete(b"aC")
    assert check(trie).kinds == {"chain": 2, "embedded prefix": 1, "leaf": 1}


def test_it_moves_into_the_head_when_its_sparse_node_becomes_a_split() -> None:
    trie = trie_of(b"", *(bytes([c]) for c in b"CA5BP3"))
    assert check(trie).kinds["standalone prefix"] == 1
    trie.put(b"Q", b"Q")
    assert check(trie).kinds == {"split": 1, "embedded prefix": 1, "leaf": 7}
    trie.delete(b"A")
    assert check(trie).kinds == {"sparse": 1, "standalone prefix": 1, "leaf": 6}


def test_with_its_last_child_it_becomes_a_leaf_again() -> None:
    trie = trie_of(b"tree", b"trees")
    trie.delete(b"trees")
    assert check(trie).kinds == {"chain": 1, "leaf": 1}
    assert trie.get(b"tree") == b"tree"


def test_the_content_index_outlives_every_change_of_structure() -> None:
    trie = trie_of(b"k")
    for step in (b"k1", b"k2", b"k3", b"k4", b"k5", b"k6", b"k7", b"k", b"", b"kkkkk"):
        trie.put(step, step)
        assert check(trie).contents[b"k"] == 0
    for step in (b"k1", b"k2", b"k3", b"k4", b"k5", b"k6", b"k7", b"", b"kkkkk"):
        trie.delete(step)
        assert check(trie).contents[b"k"] == 0


def test_the_empty_key_is_the_roots_content() -> None:
    trie = trie_of(b"")
    assert trie.root == ~0
    trie.put(b"a", b"a")
    assert trie.get(b"") == b""
    trie.delete(b"a")
    assert trie.root == ~0
    trie.delete(b"")
    assert trie.root == 0
