"""The moves of a cursor that follow from `advance`.

The trie is the one drawn in `natsd/trie/cursor.pyx`: car, ox, oxen. Source: Cassandra's
InMemoryTrie design, "Cursors over InMemoryTrie".
"""

from tests.trie.model import DictTrie, shown

SAMPLE = DictTrie({b"car": 1, b"ox": 2, b"oxen": 3})


def test_a_walk_shows_every_node_before_its_children() -> None:
    assert shown(SAMPLE.cursor()) == [
        (0, -1, b"", None),
        (1, ord("c"), b"c", None),
        (2, ord("a"), b"ca", None),
        (3, ord("r"), b"car", 1),
        (1, ord("o"), b"o", None),
        (2, ord("x"), b"ox", 2),
        (3, ord("e"), b"oxe", None),
        (4, ord("n"), b"oxen", 3),
    ]


def test_a_reverse_walk_shows_siblings_the_other_way_round() -> None:
    keys = [key for _, _, key, _ in shown(SAMPLE.cursor(reverse=True))]
    assert keys == [b"", b"o", b"ox", b"oxe", b"oxen", b"c", b"ca", b"car"]


def test_the_end_is_final() -> None:
    cursor = DictTrie().cursor()
    assert cursor.depth == 0
    assert [cursor.advance(), cursor.advance_multiple(bytearray()), cursor.skip_children()] == [
        -1
    ] * 3
    assert (cursor.depth, cursor.incoming_transition, cursor.content()) == (-1, -1, None)


def test_advance_to_content_passes_what_has_none() -> None:
    cursor = SAMPLE.cursor()
    assert [cursor.advance_to_content() for _ in range(4)] == [3, 2, 4, -1]


def test_skip_children_leaves_out_what_is_below() -> None:
    cursor = SAMPLE.cursor()
    cursor.advance()
    assert (cursor.skip_children(), cursor.key()) == (1, b"o")
    assert cursor.skip_children() == -1


def test_skip_to_goes_to_the_position_or_the_first_behind_it() -> None:
    cursor = SAMPLE.cursor()
    assert (cursor.skip_to(1, ord("d")), cursor.key()) == (1, b"o")
    assert (cursor.skip_to(2, ord("a")), cursor.key()) == (2, b"ox")
    assert cursor.skip_to(2, 256) == -1

    cursor = SAMPLE.cursor(reverse=True)
    assert (cursor.skip_to(1, ord("d")), cursor.key()) == (1, b"c")


def test_a_closed_cursor_is_past_the_end() -> None:
    with SAMPLE.cursor() as cursor:
        cursor.advance()
    assert cursor.depth == -1
