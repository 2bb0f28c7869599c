"""Percentiles are samples, by nearest rank."""

import pytest

from natsd.bench.statistics import median, percentile, spread


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]
)
def test_percentiles_of_one_to_a_hundred(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_percentiles_of_few_samples() -> None:
    assert percentile([7], 50) == percentile([7], 99) == 7
    assert percentile([1, 2], 50) == 1
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_spread_is_a_share_of_the_median() -> None:
    assert median([9, 10, 12]) == 10
    assert spread([9, 10, 12]) == pytest.approx(0.3)
    assert spread([0, 0]) == 0
