"""NATS patterns over a trie find the keys that natsd.core.routing matches, without visiting all.

`*` matches one token, `>` matches one or more at the end, and no token is empty, as in
nats-server's `IsValidSubject` and `matchLiteral`.
"""

from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.routing import InvalidSubject, matches
from natsd.trie.errors import StaleCursor
from natsd.trie.in_memory import InMemoryTrie, Pattern, PatternCursor, RecordTrie
from tests.trie.test_trie_cursor import trie_of

TOKENS = ["a", "b", "ab", "abcdefghijklmnopqrstuvwxyz-0123456789", "*", ">", ""]
SUBJECTS = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5).map(".".join)
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "ab", TOKENS[3], "*", "a*", ">b"]), min_size=1, max_size=4),
    st.sampled_from([[], [], [">"]]),
).map(lambda parts: ".".join([*parts[0], *parts[1]])) | st.just(">")


def automaton_matches(pattern: Pattern, subject: bytes) -> bool:
    """Return whether the automaton accepts the subject, byte by byte."""
    state = pattern.start
    for byte in subject:
        literal = pattern.literal(state)
        state_after = pattern.step(state, byte)
        assert literal < 0 or (state_after >= 0) == (literal == byte)
        if state_after < 0:
            return False
        state = state_after
    return pattern.accepts(state)


@settings(deadline=None)
@given(PATTERNS, SUBJECTS)
def test_the_automaton_reads_what_the_pattern_matches(pattern: str, subject: str) -> None:
    assert automaton_matches(Pattern(pattern), subject.encode()) == matches(subject, pattern)


@pytest.mark.parametrize("pattern", ["", ".", "a.", ".a", "a..b", ">.a", "a b"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSubject):
        Pattern(pattern)
    with pytest.raises(InvalidSubject):
        PatternCursor(InMemoryTrie(), pattern)


def expected(content: dict[bytes, Any], pattern: str) -> list[tuple[bytes, Any]]:
    return sorted((key, value) for key, value in content.items() if matches(key, pattern))


@settings(deadline=None)
@given(st.dictionaries(SUBJECTS.map(str.encode), st.integers(), max_size=40), PATTERNS)
def test_matches_are_found_in_order(content: dict[bytes, int], pattern: str) -> None:
    trie = trie_of(content)
    assert list(PatternCursor(trie, pattern)) == expected(content, pattern)
    assert PatternCursor(trie, pattern).count() == len(expected(content, pattern))


ORDERS = {
    f"orders.{region}.{order}.item.{item:02}".encode(): (region, order, item)
    for region, order, item in product(["eu", "us", "asia"], range(30), range(10))
}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("orders.>", 900),
        (">", 900),
        ("orders.*.*.item.*", 900),
        ("orders.*.7.>", 30),
        ("orders.*.*.item.07", 90),
        ("orders.asia.29.item.03", 1),
        ("orders.asia.29.item", 0),
        ("*.eu.*.item.*", 300),
        ("orders.*", 0),
        ("orders.eu.*.item.07.>", 0),
    ],
)
def test_subjects_of_a_stream(pattern: str, count: int) -> None:
    trie = trie_of(ORDERS)
    found = list(PatternCursor(trie, pattern))
    assert (len(found), found) == (count, expected(ORDERS, pattern))


@settings(deadline=None)
@given(st.dictionaries(st.binary(max_size=4), st.integers()), st.integers(0, 5))
def test_no_pattern_matches_every_key(content: dict[bytes, int], slice_size: int) -> None:
    cursor = PatternCursor(trie_of(content), None)
    found = list(islice(cursor, slice_size))
    cursor.resume()
    assert found + list(cursor) == sorted(content.items())


def test_records_come_as_copies() -> None:
    trie = RecordTrie(4)
    trie.put(b"a.b", b"1234")
    assert list(PatternCursor(trie, "a.*")) == [(b"a.b", b"1234")]


def test_counting_in_slices() -> None:
    cursor = PatternCursor(trie_of(ORDERS), "orders.eu.>")
    assert [cursor.count(120) for _ in range(4)] == [120, 120, 60, 0]
    assert cursor.last_key == b"orders.eu.9.item.09"


SLICES = st.lists(st.integers(0, 200), min_size=1, max_size=4)
STREAM_PATTERNS = st.sampled_from(["orders.>", "orders.*.*.item.*", "orders.*.7.>", ">"])


def write_some(
    trie: InMemoryTrie[Any], now: dict[bytes, Any], data: st.DataObject, doomed: list[bytes]
) -> None:
    """Delete random keys and the `doomed` ones, and put others."""
    gone = data.draw(st.lists(st.sampled_from(sorted(now)), max_size=30))
    for key in {*gone, *doomed} & now.keys():
        trie.delete(key)
        del now[key]
    for key in data.draw(st.lists(SUBJECTS.map(str.encode), max_size=10)):
        trie.put(key, 0)
        now[key] = 0


@settings(max_examples=60, deadline=None)
@given(SLICES, STREAM_PATTERNS, st.booleans(), st.data())
def test_a_cursor_resumes_behind_its_last_match(
    slices: list[int], pattern: str, close: bool, data: st.DataObject
) -> None:
    """A resumed cursor finds nothing up to its last match again, and all current keys behind it."""
    trie, now = trie_of(ORDERS), dict(ORDERS)
    cursor = PatternCursor(trie, pattern)
    found: list[bytes] = []
    behind = expected(now, pattern)
    for size in slices:
        found += [key for key, _ in islice(cursor, size)]
        if close:
            cursor.close()
        write_some(trie, now, data, doomed=found[-1:] if data.draw(st.booleans()) else [])
        cursor.resume()
        behind = [entry for entry in expected(now, pattern) if not found or entry[0] > found[-1]]
    assert found == sorted(found)
    assert list(cursor) == behind


@settings(max_examples=60, deadline=None)
@given(SLICES, STREAM_PATTERNS, st.data())
def test_a_cursor_goes_on_while_keys_come_and_go(
    slices: list[int], pattern: str, data: st.DataObject
) -> None:
    """A cursor finds each key at most once and in order, and all keys that were always there."""
    trie, now = trie_of(ORDERS), dict(ORDERS)
    always, ever = set(now), set(now)
    cursor = PatternCursor(trie, pattern)
    found: list[bytes] = []
    for size in slices:
        found += [key for key, _ in islice(cursor, size)]
        write_some(trie, now, data, doomed=[])
        always &= now.keys()
        ever |= now.keys()
    found += [key for key, _ in cursor]
    assert found == sorted(set(found))
    assert {key for key in always if matches(key, pattern)} <= set(found)
    assert set(found) <= {key for key in ever if matches(key, pattern)}


def test_a_cursor_that_rested_too_long_says_so_until_it_resumes() -> None:
    trie: InMemoryTrie[Any] = InMemoryTrie(garbage_bytes_max=0)
    for key in ORDERS:
        trie.put(key, 0)
    cursor = PatternCursor(trie, "orders.eu.>")
    first = [key for key, _ in islice(cursor, 100)]
    for key in list(ORDERS)[150:600]:
        trie.delete(key)
    for _ in range(2):
        with pytest.raises(StaleCursor):
            next(cursor)
        with pytest.raises(StaleCursor):
            cursor.count()
    cursor.resume()
    assert first + [key for key, _ in cursor] == sorted(
        {key for key in ORDERS if key.startswith(b"orders.eu.") and key in trie} | set(first)
    )
