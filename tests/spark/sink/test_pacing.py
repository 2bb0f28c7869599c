"""Rows at a rate, with the test's own clock: natsd/spark/sink/pacing.py."""

import pyarrow as pa
import pytest

from natsd.spark.sink.pacing import paced


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(count))})


def test_each_row_once_and_in_time() -> None:
    clock = Clock()
    times, found = [], []
    for part in paced([rows(250), rows(50)], 1000, clock, clock.sleep):
        times.append(clock.now - 100)
        found += part["n"].to_pylist()

    assert found == [*range(250), *range(50)]
    assert times == pytest.approx([0, 0.1, 0.2, 0.25])


def test_a_pause_is_not_made_up_for_in_a_burst() -> None:
    clock = Clock()
    parts = paced([rows(30)], 100, clock, clock.sleep)
    next(parts)
    clock.sleep(60)
    times = [clock.now for _ in parts]

    assert times[1] - times[0] == pytest.approx(0, abs=0.011)
    assert len(times) == 2


def test_slower_than_one_in_a_tenth_of_a_second() -> None:
    clock = Clock()
    sizes = [(part.num_rows, clock.now - 100) for part in paced([rows(3)], 2, clock, clock.sleep)]

    assert sizes == [(1, 0.0), (1, 0.5), (1, 1.0)]
