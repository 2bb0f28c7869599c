"""The rows have the agreed loads and goals."""

import pytest

from natsd.bench.rows import GOALS, QUICK, Scale, all_rows, select
from natsd.bench.scenarios import PubSub, Sharing, spread_numbers
from tests.bench.fakes import row

AGREED = """
publish only, 16 B                                      ≥ 1.5
publish only, 128 B                                     ≥ 1.4
1 → 1, 16 B                                             ≥ 2.8
1 → 1, 128 B                                            ≥ 2.5
1 → 1, 1 KiB                                            ≥ 1.4
1 → 1, 16 KiB                                           ≥ 1.2
1 → 8, 128 B (deliveries)                               ≥ 2.7
4 → 4, 128 B (deliveries)                               ≥ 2.2
1 → queue group of 4, 128 B                             ≥ 2.0
request/reply, 16 B, p50                                ≤ 0.8
request/reply, 16 B, p99                                ≤ 1.0
100,000 wildcard subscriptions, 10,000 subjects, 128 B  ≥ 1.5
connect+SUB+PING, 10,000 clients                        ≥ 1.5
memory per idle connection, 10,000 clients              ≤ 0.4
start to first connection
1 → 1, 128 B, TLS                                       ≥ 2.0
connect with user and password                          ≥ 2.0
connect with JWT and nkey                               ≥ 1.0
rate with 50 allow and 50 deny rules, of that without   ≥ 95.0 %
1 → 1, 128 B, into another account                      ≥ 3.0
1 → 1, 128 B, mapped subject                            ≥ 3.0
reload of 10,000 users                                  ≤ 1.0
memory per idle TLS connection, 2,000 clients           ≤ 0.5
1 → 1 across a route, 128 B                             ≥ 2.0
1 → queue group of 4 across a route, 128 B
request/reply across a route, p50                       ≤ 0.7
request/reply across a route, p99
100,000 subscriptions, until the other server delivers  ≤ 0.5
"""


def test_the_standard_rows_are_the_agreed_ones() -> None:
    shown = [f"{row.title:<56}{row.goal_text}" for row in select(all_rows(Scale()), [])]
    assert [line.rstrip() for line in shown] == AGREED.strip().splitlines()


def test_every_goal_has_its_row() -> None:
    keys = [row.key for row in all_rows(Scale())]
    assert len(set(keys)) == len(keys)
    assert set(GOALS) <= set(keys)


def test_rows_are_chosen_by_pattern() -> None:
    keys = [row.key for row in select(all_rows(Scale()), ["1-1-*", "connect"])]
    assert keys == ["1-1-16", "1-1-128", "1-1-1k", "1-1-16k", "connect"]


@pytest.mark.parametrize(("ratio", "met"), [(1.39, False), (1.4, True), (3.0, True)])
def test_more_messages_are_better(ratio: float, met: bool) -> None:
    assert row(goal=1.4).meets_goal(ratio) is met


@pytest.mark.parametrize(("ratio", "met"), [(0.81, False), (0.8, True), (0.1, True)])
def test_less_latency_is_better(ratio: float, met: bool) -> None:
    assert row(goal=0.8, metric="latency").meets_goal(ratio) is met


def test_the_goal_of_a_share_is_in_percent() -> None:
    assert row(goal=95.0, metric="share").goal_text == "≥ 95.0 %"


@pytest.mark.parametrize("scale", [Scale(), QUICK])
def test_the_subjects_of_the_wildcard_row_are_distinct_and_spread(scale: Scale) -> None:
    fleet = PubSub(1, 4, 128, Sharing.FLEET, scale.subscriptions, scale.subjects)
    numbers = spread_numbers(fleet)
    assert len(set(numbers)) == scale.subjects
    assert 0 <= min(numbers) < max(numbers) < scale.subscriptions
    for remainder in range(4):  # each of four subscribers, and both forms of wildcard
        share = sum(number % 4 == remainder for number in numbers) / len(numbers)
        assert 0.2 <= share <= 0.3
