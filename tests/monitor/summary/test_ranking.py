"""The few of many rows that are shown, and rates from counters."""

import pytest

from natsd.monitor.summary.meter import STALE_NS, Meter, rounded
from natsd.monitor.summary.ranking import TEXT_MAX, Ranking, shown

SECOND_NS = 1_000_000_000


def test_few_items_are_all_chosen() -> None:
    ranking: Ranking[str] = Ranking(2, 3)
    for name in "abc":
        ranking.add(name, (0, 0))
    assert sorted(ranking.chosen()) == ["a", "b", "c"]


def test_of_many_items_the_largest_by_each_measure_are_chosen_once() -> None:
    ranking: Ranking[int] = Ranking(2, 5)
    for number in range(1000):
        ranking.add(number, (number, -number if number % 7 else 10_000 - number))
    chosen = ranking.chosen()
    assert ranking.total == 1000
    assert chosen[:5] == [999, 998, 997, 996, 995]
    assert set(chosen[5:]) == {0, 7, 14, 21, 28}


def test_there_are_rows_even_if_nothing_happens() -> None:
    ranking: Ranking[int] = Ranking(2, 5)
    for number in range(1000):
        ranking.add(number, (0, 0))
    assert len(ranking.chosen()) == 10


def test_a_long_text_is_cut() -> None:
    assert shown("short") == "short"
    assert shown("x" * 65536) == "x" * (TEXT_MAX - 1) + "…"


def test_a_text_is_always_valid_as_utf_8() -> None:
    assert shown("a\ud800b") == "a?b"


def test_a_rate_is_the_growth_per_second_between_two_looks() -> None:
    meter = Meter()
    meter.look(10 * SECOND_NS)
    assert meter.rates("a", (100, 5)) is None
    meter.look(12 * SECOND_NS)
    assert meter.rates("a", (300, 5)) == (100, 0)
    assert meter.rates("b", (7,)) is None


@pytest.mark.parametrize("forgets", [True, False])
def test_an_old_look_gives_no_rates(forgets: bool) -> None:
    meter = Meter()
    meter.look(SECOND_NS)
    meter.rates("a", (100,))
    if forgets:
        meter.forget()
    meter.look(SECOND_NS + (SECOND_NS if forgets else STALE_NS))
    assert meter.rates("a", (300,)) is None


def test_a_counter_that_began_anew_has_no_negative_rate() -> None:
    meter = Meter()
    meter.look(SECOND_NS)
    meter.rates("a", (100,))
    meter.look(2 * SECOND_NS)
    assert meter.rates("a", (1,)) == (0,)


def test_rates_are_rounded() -> None:
    assert [rounded(each) for each in (None, 0.04, 1.26, 1234.5)] == [None, 0.0, 1.3, 1234]
