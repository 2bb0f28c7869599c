"""The log in memory against the simplest model of it, and its edges."""

from hypothesis import given
from hypothesis import strategies as st

from natsd.raft.entry import Entry, EntryKind, Snapshot, first_snapshot
from natsd.raft.log import Log
from tests.raft.group import entries_of

START = first_snapshot(frozenset({1}))


def log_of(*terms: int) -> Log:
    return Log(START, entries_of(*terms), 0)


@given(st.lists(st.integers(1, 4)), st.lists(st.integers(1, 6)), st.integers(0, 20))
def test_merge_takes_the_leaders_entries(own: list[int], more: list[int], at: int) -> None:
    """The leader's log agrees up to some index, and goes its own way from there."""
    own.sort()
    agreeing = min(at, len(own))
    last_term = max(own, default=1)
    leaders = own[:agreeing] + [last_term + 1 + extra for extra in sorted(more)]
    log = log_of(*own)
    for begin in {0, agreeing // 2, agreeing}:
        sent = tuple(entries_of(*leaders))[begin:]
        log.merge(1 + begin, sent)
        expected = leaders if more else own
        held = [log.term_at(index) for index in range(2, log.last_index + 1)]
        assert held == expected
        assert log.payload_bytes == sum(len(e.data) for e in entries_of(*expected))


@given(st.lists(st.integers(1, 5), min_size=1), st.integers(0, 60), st.integers(0, 6))
def test_last_with_term_up_to(terms: list[int], index: int, term: int) -> None:
    terms.sort()
    log = log_of(*terms)
    held = {1: 1, **dict(enumerate(terms, 2))}
    fitting = [i for i, t in held.items() if i <= index and t <= term]
    found = log.last_with_term_up_to(index, term)
    assert found == max(fitting) if fitting else found <= 1


def test_a_slice_is_shared_and_bounded() -> None:
    log = Log(START, [Entry(i, 1, EntryKind.NORMAL, b"x" * 10) for i in range(2, 12)], 0)
    entries, size = log.slice(2, log.last_index, 35)
    assert ([entry.index for entry in entries], size) == ([2, 3, 4], 30)
    assert log.slice(2, log.last_index, 35)[0] is entries
    assert len(log.slice(5, log.last_index, 1)[0]) == 1  # one entry goes even if it is too large


def test_compaction_keeps_what_followers_lack() -> None:
    log = Log(START, [Entry(i, 1, EntryKind.NORMAL, b"x" * 10) for i in range(2, 12)], 0)
    log.commit_to(10)
    log.take_committed()
    log.compact(Snapshot(9, 1, START.membership, b""), needed_from=6, trailing_bytes_max=100)
    assert (log.base, log.snapshot.index, log.payload_bytes) == (5, 9, 20)
    log.compact(Snapshot(10, 1, START.membership, b""), needed_from=6, trailing_bytes_max=20)
    assert (log.base, log.payload_bytes) == (8, 10)


def test_a_write_that_is_overtaken_does_not_count() -> None:
    log = log_of()
    log.merge(1, tuple(entries_of(1, 1, 1)))
    log.take_unsaved()
    log.write_begun(1)
    log.merge(2, tuple(entries_of(2, first=3)))  # indexes 3 and 4 are cut off
    assert [entry.term for entry in log.take_unsaved()] == [2]
    log.write_begun(2)
    log.write_finished(1)
    assert log.stable == 2
    log.write_finished(2)
    assert log.stable == 3


def test_what_the_application_has_already_is_not_given_again() -> None:
    log = Log(START, entries_of(1, 1, 1), applied=3)
    log.commit_to(4)
    assert [entry.index for entry in log.take_committed()] == [4]
