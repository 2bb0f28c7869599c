"""SequenceSet against a Python set, at page borders, in its encoding and in its memory."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from natsd.store.errors import DamagedEncoding
from natsd.store.sequence_set import SequenceSet

PAGE = 1 << 16
LAST = (1 << 64) - 1

near_borders = st.builds(
    lambda page, place: max(0, page * PAGE + place), st.integers(0, 4), st.integers(-4, 4)
)
sequences = st.one_of(near_borders, st.integers(0, 5 * PAGE), st.integers(1, 40))


def of_runs(*runs: tuple[int, int]) -> SequenceSet:
    made = SequenceSet()
    for first, last in runs:
        made.add_range(first, last)
    return made


class Model(RuleBasedStateMachine):
    """The same calls on a SequenceSet and on a set of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = SequenceSet()
        self.model: set[int] = set()

    @rule(sequence=sequences)
    def add(self, sequence: int) -> None:
        assert self.ours.add(sequence) == (sequence not in self.model)
        self.model.add(sequence)

    @rule(sequence=sequences)
    def discard(self, sequence: int) -> None:
        assert self.ours.discard(sequence) == (sequence in self.model)
        self.model.discard(sequence)

    @rule(one=sequences, other=sequences)
    def add_range(self, one: int, other: int) -> None:
        added = set(range(min(one, other), max(one, other) + 1)) - self.model
        assert self.ours.add_range(min(one, other), max(one, other)) == len(added)
        self.model |= added

    @rule(one=sequences, other=sequences)
    def discard_range(self, one: int, other: int) -> None:
        removed = {each for each in self.model if min(one, other) <= each <= max(one, other)}
        assert self.ours.discard_range(min(one, other), max(one, other)) == len(removed)
        self.model -= removed

    @rule(first=sequences, count=st.integers(1, 3000), step=st.integers(2, 5), add=st.booleans())
    def comb(self, first: int, count: int, step: int, add: bool) -> None:
        """Add or remove every `step`-th sequence, often enough to turn a page into a bitmap."""
        for sequence in range(first, first + count * step, step):
            if add:
                self.ours.add(sequence)
                self.model.add(sequence)
            else:
                self.ours.discard(sequence)
                self.model.discard(sequence)

    @rule(
        runs=st.lists(st.tuples(sequences, st.integers(0, PAGE)), max_size=4),
        how=st.sampled_from("|&-"),
    )
    def combine(self, runs: list[tuple[int, int]], how: str) -> None:
        other = of_runs(*((first, first + length) for first, length in runs))
        theirs = set(other)
        if how == "|":
            self.ours.union_update(other)
            self.model |= theirs
        elif how == "&":
            self.ours.intersection_update(other)
            self.model &= theirs
        else:
            self.ours.difference_update(other)
            self.model -= theirs
        assert set(other) == theirs

    @rule(sequence=sequences)
    def search(self, sequence: int) -> None:
        absent = sequence
        while absent in self.model:
            absent += 1
        assert (sequence in self.ours) == (sequence in self.model)
        assert self.ours.next_absent(sequence) == absent
        assert self.ours.rank(sequence) == sum(each <= sequence for each in self.model)

    @rule()
    def decode_and_copy(self) -> None:
        decoded = SequenceSet.decode(self.ours.encode())
        assert decoded == self.ours == self.ours.copy()
        assert decoded.encode() == self.ours.encode()

    @invariant()
    def same(self) -> None:
        assert self.ours.count == len(self.ours) == len(self.model)
        assert bool(self.ours) == bool(self.model)
        assert self.ours.first == min(self.model, default=None)
        assert self.ours.last == max(self.model, default=None)

    @invariant()
    def runs_are_apart(self) -> None:
        before = -2
        for first, last in self.ours.runs():
            assert first > before + 1 and last >= first
            before = last

    def teardown(self) -> None:
        assert list(self.ours) == sorted(self.model)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_purged_billion_is_one_entry() -> None:
    dead = SequenceSet()
    assert dead.add_range(1, 10**9) == 10**9
    assert dead.memory_bytes <= 64
    assert len(dead.encode()) <= 20
    assert dead.discard(500_000_000)
    assert list(dead.runs()) == [(1, 499_999_999), (500_000_001, 10**9)]
    assert dead.rank(500_000_000) == 499_999_999


def test_alternating_deletes_take_two_bits_each() -> None:
    dead = SequenceSet(range(1, 2_000_001, 2))
    assert len(dead) == 1_000_000
    assert dead.memory_bytes <= 1_000_000 * 2 // 8 * 1.1
    assert len(dead.encode()) <= 1_000_000 * 2 // 8 * 1.1


def test_a_lone_delete_takes_sixteen_bytes() -> None:
    dead = SequenceSet([7])
    assert dead.memory_bytes == 16
    assert len(dead.encode()) <= 8


def test_random_deletes_take_at_most_sixteen_bytes_a_run() -> None:
    drawn = random.Random(1)
    for share in (10_000, 1_000, 100, 10):
        dead = SequenceSet(drawn.randrange(10_000_000) for _ in range(10_000_000 // share // 10))
        runs = sum(1 for _ in dead.runs())
        assert dead.memory_bytes <= 16 * runs + 64 * 160


def test_the_whole_range_of_sequences() -> None:
    everything = SequenceSet()
    everything.add_range(1, LAST)
    assert everything.next_absent(1) is None
    assert everything.last == LAST
    assert LAST in everything and 0 not in everything
    assert everything.discard(LAST)
    assert everything.next_absent(5) == LAST
    assert SequenceSet.decode(everything.encode()) == everything
    assert list(everything.runs()) == [(1, LAST - 1)]


def test_what_is_no_sequence_is_not_in_it() -> None:
    dead = SequenceSet([1])
    assert -1 not in dead
    assert 1 << 64 not in dead
    assert "1" not in dead
    with pytest.raises(OverflowError):
        dead.add(-1)


def test_an_empty_range_changes_nothing() -> None:
    dead = SequenceSet([5])
    assert dead.add_range(9, 8) == dead.discard_range(9, 4) == 0
    assert list(dead) == [5]
    assert repr(of_runs((1, 3), (5, 5))) == "SequenceSet(1-3, 5)"


def test_a_set_with_itself() -> None:
    dead = of_runs((1, 3), (9, 9))
    dead.union_update(dead)
    dead.intersection_update(dead)
    assert list(dead) == [1, 2, 3, 9]
    dead.difference_update(dead)
    assert not dead
    dead.add(4)
    dead.clear()
    assert dead == SequenceSet() and dead.first is None and dead.last is None


@given(st.binary(max_size=60))
@example(b"\x01\x01\x00\x00\x00")
@example(b"\x01\x02\x00\x01\x01\xff\xff\x03\x00\x00\x00\x01")
def test_any_bytes_decode_or_raise(data: bytes) -> None:
    try:
        decoded = SequenceSet.decode(data)
    except DamagedEncoding:
        return
    assert SequenceSet.decode(decoded.encode()) == decoded


@pytest.mark.parametrize("step", [2, 3, 40, 70])
def test_equal_sets_have_equal_encodings(step: int) -> None:
    """Equal sets have equal encodings, also if one of them had more runs before."""
    over_limit = SequenceSet(range(0, 4 * PAGE, step))
    over_limit.discard_range(1000 * step, 4 * PAGE)
    assert over_limit.encode() == SequenceSet(range(0, 1000 * step, step)).encode()


def test_a_cut_encoding_is_refused() -> None:
    encoded = SequenceSet([*range(1, 9000, 2), *range(100_000, 300_000), 900_000]).encode()
    for length in range(0, len(encoded), 7):
        with pytest.raises(DamagedEncoding):
            SequenceSet.decode(encoded[:length])
    with pytest.raises(DamagedEncoding):
        SequenceSet.decode(encoded + b"\0")
