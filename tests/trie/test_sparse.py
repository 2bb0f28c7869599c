"""Sparse nodes: their cells and order words, and their changes.

Source: Cassandra's InMemoryTrie design, "Sparse nodes" and "Adding a new child to Sparse".
"""

from itertools import permutations

import pytest

from natsd.trie.in_memory import InMemoryTrie
from tests.trie.plain_reader import check, order_digits, order_word, words


def trie_of(transitions: str) -> InMemoryTrie[str]:
    """Return a trie whose root has these children, added in that order: child i has content i."""
    trie: InMemoryTrie[str] = InMemoryTrie()
    for transition in transitions:
        trie.put(transition.encode(), transition)
    return trie


def chars(trie: InMemoryTrie[str]) -> bytes:
    return trie.cell(trie.root)[0x18:0x1E]


# Cassandra's example has C and A, and grows by 5, B, P and 3.
@pytest.mark.parametrize(
    ("transitions", "stored", "order", "word"),
    [
        ("CA", b"AC\0\0\0\0", "10", 0x0006),
        ("CA5", b"AC5\0\0\0", "102", 0x0026),
        ("CA5x", b"AC5x\0\0", "3102", 0x02AE),
        ("CA5BP3", b"AC5BP3", "413025", 0x8129),
    ],
)
def test_characters_and_order_word_are_the_documents(
    transitions: str, stored: bytes, order: str, word: int
) -> None:
    trie = trie_of(transitions)
    assert trie.root & 31 == 0x1E
    assert chars(trie) == stored
    assert order_word(trie.cell(trie.root)) == word == int(order, 6)


def test_a_child_is_inserted_into_the_order_word() -> None:
    """An insertion of j between a@4 f@0 g@2 k@1 q@3 changes the order word 31204 to 315204."""
    trie = trie_of("fkgqa")
    assert chars(trie)[:5] == b"fkgqa"
    assert order_word(trie.cell(trie.root)) == int("31204", 6)
    trie.put(b"j", "j")
    assert order_word(trie.cell(trie.root)) == int("315204", 6)


def test_two_children_stand_in_order_however_they_came() -> None:
    for transitions in ("AC", "CA"):
        trie = trie_of(transitions)
        assert chars(trie)[:2] == b"AC"
        assert order_word(trie.cell(trie.root)) == 6


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_every_order_of_arrival_gives_a_valid_word(count: int) -> None:
    for transitions in permutations("abcdef"[:count]):
        trie = trie_of("".join(transitions))
        word = order_word(trie.cell(trie.root))
        digits = order_digits(word)
        assert len(digits) == count  # the word has no leading zero
        assert bytes(chars(trie)[digit] for digit in digits) == b"abcdef"[:count]


def test_a_new_child_takes_the_next_free_place_and_nothing_else_moves() -> None:
    """A new child changes in place only its character, its pointer and the order word."""
    trie = trie_of("CA5")
    before, root = trie.cell(trie.root), trie.root
    trie.put(b"x", "x")
    after = trie.cell(trie.root)
    assert trie.root == root
    assert after[:0x0C] == before[:0x0C]
    assert words(after)[3] == ~3
    assert after[0x10:0x18] == before[0x10:0x18]
    assert after[0x18:0x1B] == before[0x18:0x1B]


def test_a_childs_pointer_is_replaced_in_place() -> None:
    trie = trie_of("CA5")
    before, root = trie.cell(trie.root), trie.root
    trie.put(b"Cx", "Cx")  # C was a leaf and becomes a prefix before a chain
    after = trie.cell(trie.root)
    assert trie.root == root
    assert words(before)[1] < 0 < words(after)[1]
    assert before[:4] + before[8:] == after[:4] + after[8:]


def test_a_seventh_child_makes_a_copy() -> None:
    trie = trie_of("CA5BP3")
    cursor = trie.cursor()
    root, before = trie.root, trie.cell(trie.root)
    trie.put(b"Q", "Q")
    assert trie.root & 31 == 0x1C
    assert trie.cell(root) == before  # a reader may still be in it
    cursor.close()


@pytest.mark.parametrize("gone", "CA5BP3")
def test_a_child_is_removed_by_a_copy_in_order(gone: str) -> None:
    """The copy that removes a child has the others in order, without a gap.

    A lookup stops at the first NONE, so no NONE may be between children.
    """
    trie = trie_of("CA5BP3")
    cursor = trie.cursor()
    root, before = trie.root, trie.cell(trie.root)
    trie.delete(gone.encode())
    assert trie.cell(root) == before
    assert trie.root & 31 == 0x1E and trie.root != root
    assert chars(trie)[:5] == "".join(sorted(set("CA5BP3") - {gone})).encode()
    assert order_word(trie.cell(trie.root)) == int("43210", 6)
    check(trie)
    cursor.close()


def test_with_one_child_left_it_becomes_a_chain_with_what_follows() -> None:
    trie: InMemoryTrie[int] = InMemoryTrie()
    for index, key in enumerate([b"ab-long-tail", b"ax", b"ay"]):
        trie.put(key, index)
    trie.delete(b"ax")
    trie.delete(b"ay")
    assert check(trie).kinds == {"chain": 1, "leaf": 1}
    assert trie.cell(trie.root)[trie.root & 31 : 0x1C] == b"ab-long-tail"
