"""The dump of a trie as text."""

from natsd.trie.dump import dump
from natsd.trie.in_memory import InMemoryTrie
from natsd.trie.views import subtrie
from tests.trie.test_trie_cursor import trie_of

SAMPLE = {b"car": 1, b"ox": 2, b"oxen": 3}


def test_a_line_for_each_node_and_chains_in_one() -> None:
    lines = dump(trie_of(SAMPLE)).splitlines()
    without_pointers = [" ".join(w for w in line.split(" ") if "0x" not in w) for line in lines]
    assert without_pointers == [
        "Sparse",
        "  c Chain",
        "    ar Leaf ~0 = 1",
        "  o Chain",
        "    x Prefix Chain = 2",
        "      en Leaf ~2 = 3",
    ]


def test_a_view_has_transitions_and_contents() -> None:
    assert dump(subtrie(trie_of(SAMPLE), b"d")).splitlines() == [
        "",
        "  o",
        "    x = 2",
        "      en = 3",
    ]


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert dump(trie_of({b"\x00\xff": 1})).splitlines()[-1].startswith("  \\x00\\xff Leaf")


def test_a_dump_is_bounded() -> None:
    trie = trie_of({b"%d" % i: i for i in range(100)})
    lines = dump(trie, lines_max=5).splitlines()
    assert (len(lines), lines[-1]) == (6, "…")


def test_nothing() -> None:
    assert dump(InMemoryTrie()) == "NONE"
