"""Rows no faster than the rate: natsd/spark/pacing.py."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from natsd.spark.pacing import paced


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    row = 0
    for size in sizes:
        yield pa.record_batch({"n": list(range(row, row + size))})
        row += size


@pytest.mark.parametrize("rate", [0.5, 3.0, 40.0, 1000.0])
def test_the_same_rows_no_second_with_more_than_the_rate(rate: float) -> None:
    time = Time()
    rows: list[int] = []
    times: list[float] = []
    for batch in paced(batches(7, 100, 1), rate, time.clock, time.sleep):
        rows += batch["n"].to_pylist()
        times += [time.now] * batch.num_rows
    assert rows == list(range(108))
    together = max(1, int(rate / 10))
    for n, at in enumerate(times):
        in_a_second = sum(at <= other < at + 1 for other in times[n:])
        assert in_a_second <= rate + 2 * together
    assert times[-1] - times[0] >= (108 - 2 * together) / rate * 0.99


def test_who_was_late_makes_up_for_a_slice_only() -> None:
    time = Time()
    rows = paced(batches(1000), 100.0, time.clock, time.sleep)
    next(rows)
    time.now += 1000.0
    at = time.now
    in_time = [part.num_rows for part in rows if time.now < at + 0.99]
    assert sum(in_time) == 110
