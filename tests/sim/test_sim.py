"""A few hundred fresh seeds each time, and proof that the simulator sees what it looks for."""

import os

import pytest

from tests.sim.linearizability import FOREVER, Operation, is_linearizable
from tests.sim.mutations import MUTATIONS, hunt
from tests.sim.simulation import Simulation, simulate

pytestmark = pytest.mark.timeout(300)  # all of it computes: a busy machine only makes it slower

CASES = 15
SEEDS_PER_CASE = 20
HUNT_SEEDS_MAX = 300


@pytest.mark.parametrize("case", range(CASES))
def test_fresh_seeds_hold(case: int) -> None:
    first = int.from_bytes(os.urandom(6), "big")
    for seed in range(first, first + SEEDS_PER_CASE):
        result = simulate(seed)
        assert not result.violation, (
            f"{result.detail}\nreplay: python -m tests.sim --seed {seed} --trace"
        )


def test_a_learner_leads_if_it_alone_holds_the_entries_of_a_damaged_leader() -> None:
    """A candidate with another membership in its log needs the vote of the learner: in vain."""
    result = simulate(245268624178383)
    assert not result.violation, result.detail


def test_a_seed_is_a_history() -> None:
    first, second = Simulation(7, trace=True), Simulation(7, trace=True)
    assert first.run() == second.run()
    assert first.world.lines == second.world.lines


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bug_is_caught(name: str) -> None:
    result, tried = hunt(name, HUNT_SEEDS_MAX)
    assert result is not None, f"nothing caught it in {tried} seeds: {MUTATIONS[name].says}"
    without = Simulation(result.seed, focus=MUTATIONS[name].focus).run()
    assert not without.violation, "the same seed must hold without the bug"


# The checker of histories


def write(called_at: int, returned_at: int, value: int) -> Operation:
    return Operation(called_at, returned_at, "write", 0, value, 0)


def read(called_at: int, returned_at: int, value: int) -> Operation:
    return Operation(called_at, returned_at, "read", 0, value, value)


def cas(called_at: int, returned_at: int, expected: int, value: int, seen: int) -> Operation:
    return Operation(called_at, returned_at, "cas", expected, value, seen)


GOOD = {
    "empty": [],
    "one after the other": [write(1, 2, 5), read(3, 4, 5)],
    "a read beside a write may see either value": [write(1, 9, 5), read(2, 3, 0), read(4, 5, 5)],
    "a lost write happened": [write(1, FOREVER, 5), read(3, 4, 5)],
    "a lost write did not happen": [write(1, FOREVER, 5), read(3, 4, 0)],
    "a lost write happened late": [write(1, FOREVER, 5), read(3, 4, 0), read(5, 6, 5)],
    "compare-and-set": [write(1, 2, 5), cas(3, 4, 5, 6, 5), read(5, 6, 6)],
    "lost compare-and-sets happened, one after the other": [
        cas(1, FOREVER, 0, 5, 0),
        cas(3, FOREVER, 5, 6, 5),
        cas(5, 6, 6, 7, 6),
    ],
    "a refused compare-and-set": [write(1, 2, 5), cas(3, 4, 7, 6, 5), read(5, 6, 5)],
}
BAD = {
    "a stale read": [write(1, 2, 5), read(3, 4, 0)],
    "a value that nobody wrote": [read(1, 2, 5)],
    "a read goes back": [write(1, 9, 5), read(2, 3, 5), read(4, 5, 0)],
    "a lost write happens twice": [
        write(1, FOREVER, 5),
        read(2, 3, 5),
        write(4, 5, 6),
        read(6, 7, 6),
        read(8, 9, 5),
    ],
    "two succeed with the same expectation": [cas(1, 2, 0, 5, 0), cas(3, 4, 0, 6, 0)],
}


@pytest.mark.parametrize("name", GOOD)
def test_history_is_linearizable(name: str) -> None:
    assert is_linearizable(GOOD[name], 0)


@pytest.mark.parametrize("name", BAD)
def test_history_is_not_linearizable(name: str) -> None:
    assert not is_linearizable(BAD[name], 0)
