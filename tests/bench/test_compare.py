"""Servers take turns; runs that lose messages are void; the best other server is the measure."""

from dataclasses import replace

import pytest

from natsd.bench.compare import Cell, Comparison, Plan
from natsd.bench.measurement import Measurement
from tests.bench.fakes import FakeArm, FakeScenario, FreshScenario, result, row


def diary_of(scenario: type[FakeScenario], first_size: int | None) -> list[str]:
    """Return the events of two rounds with two servers."""
    diary: list[str] = []
    arms = [FakeArm("A", diary), FakeArm("B", diary)]
    plan = Plan(rounds=2, run_seconds=1.0)
    comparison = Comparison(arms, plan, report=lambda text: None)
    measured = replace(row(), scenario=scenario(diary, first_size))
    finished = list(comparison.run([measured]))
    assert [cell.values for cell in finished[0][0].cells] == [[1e6, 1e6], [1e6, 1e6]]
    return diary


def test_servers_are_calibrated_and_take_turns() -> None:
    assert diary_of(FakeScenario, 100_000) == [
        *("start A", "start B"),
        *("A 100000", "A 1000000", "B 100000", "B 1000000"),
        *("A 1000000", "B 1000000", "A 1000000", "B 1000000"),
        *("stop B", "stop A"),
    ]


def test_rows_of_fixed_size_that_need_a_fresh_server_get_one_each_time() -> None:
    turn_a, turn_b = ("start A", "A 0", "stop A"), ("start B", "B 0", "stop B")
    assert diary_of(FreshScenario, None) == [*turn_a, *turn_b, *turn_a, *turn_b]


def test_a_cell_is_the_median_of_its_runs() -> None:
    cell = Cell()
    for value in (3.0, 1.0, 2.0):
        cell.add(Measurement({"rate": value}), "rate")
    assert cell.median == 2.0


@pytest.mark.parametrize("bad", [Measurement({"rate": 9.0}, missing=1), Measurement(problem="x")])
def test_one_void_run_voids_the_cell(bad: Measurement) -> None:
    cell = Cell()
    cell.add(Measurement({"rate": 1.0}), "rate")
    cell.add(bad, "rate")
    assert cell.values == [1.0]
    assert cell.median is None


def test_the_ratio_is_against_the_best_other_server() -> None:
    assert result(6.0, 2.0, 3.0).ratio == 2.0
    assert result(6.0, 12.0, 24.0, metric="latency").ratio == 0.5
    assert result(6.0).ratio is None


def test_a_goal_is_missed_by_a_small_ratio_or_by_losing_messages() -> None:
    assert not result(6.0, 2.0, goal=2.8).misses_goal
    assert result(5.0, 2.0, goal=2.8).misses_goal
    assert result(6.0, 2.0, goal=2.8, missing=1).misses_goal
    assert not result(5.0, goal=2.8).misses_goal
    assert not result(1.0, 2.0).misses_goal


def test_a_share_misses_its_goal_by_itself_whatever_other_servers_reach() -> None:
    assert not result(95.1, goal=95.0, metric="share").misses_goal
    assert result(94.9, goal=95.0, metric="share").misses_goal
    assert result(94.9, 30.0, goal=95.0, metric="share").misses_goal
    assert result(99.0, goal=95.0, metric="share", missing=1).misses_goal
