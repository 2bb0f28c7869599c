"""The rows and goals are the agreed ones; a row comes with the row of its comparison."""

import pytest

from natsd.bench.spark.rows import QUICK, SparkRow, SparkScale, all_rows, select

AGREED = """
nats-py, pull fetch into a list, 128 B
network read of 1,000,000 × 128 B                        ≥ 1,500 k rows/s
Parquet (snappy) of 1,000,000 × 128 B, column data
storeDir read of 1,000,000 × 128 B, column data          ≥ 0.5 × Parquet
nats-py, pull fetch into a list, 1 KiB
network read of 1,000,000 × 1 KiB                        ≥ 20 × nats-py
Parquet (snappy) of 1,000,000 × 1 KiB, column data
storeDir read of 1,000,000 × 1 KiB, column data          ≥ 0.5 × Parquet
streaming read, warm micro-batches of 1,000,000 × 128 B  ≥ 0.7 × network read
exactly-once write of 1,000,000 × 128 B, file            ≥ 500 k msg/s
peak memory of a task that reads 100,000 rows
peak memory of a task that reads 1,000,000 rows          ≤ 1.25 × 100,000 rows
peak memory of a task that reads 10,000,000 rows         ≤ 1.25 × 100,000 rows
network read of 100,000 × 128 B, 1 partition
network read of 100,000 × 128 B, 2 partitions
network read of 100,000 × 128 B, 4 partitions
network read of 1,000,000 × 128 B, 1 partition
network read of 1,000,000 × 128 B, 2 partitions
network read of 1,000,000 × 128 B, 4 partitions
network read of 10,000,000 × 128 B, 1 partition
network read of 10,000,000 × 128 B, 2 partitions
network read of 10,000,000 × 128 B, 4 partitions
"""


def row(key: str) -> SparkRow:
    return next(row for row in all_rows(SparkScale()) if row.key == key)


def test_the_rows_are_the_agreed_ones() -> None:
    shown = [f"{row.title:<57}{row.goal_text}".rstrip() for row in all_rows(SparkScale())]
    assert shown == AGREED.strip().splitlines()


@pytest.mark.parametrize("scale", [SparkScale(), QUICK])
def test_keys_are_unique_and_every_goal_names_a_row(scale: SparkScale) -> None:
    rows = all_rows(scale)
    keys = {row.key for row in rows}
    assert len(keys) == len(rows)
    assert all(row.goal is None or row.goal.of in keys | {""} for row in rows)


def test_a_row_comes_with_what_it_is_compared_with() -> None:
    every = all_rows(SparkScale())
    assert [row.key for row in select(every, ["stream-*"])] == ["read-128", "stream-128"]
    assert [row.key for row in select(every, ["fetch-1k"])] == ["fetch-1k"]
    assert select(every, ["no-such-row"]) == []
    assert select(every, []) == every


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("read-1k", 20.0, 19.9),
        ("read-128", 1.0, 0.9),
        ("write-128", 1.0, 0.9),
        ("memory-1000000", 1.25, 1.3),
    ],
)
def test_goals(key: str, good: float, bad: float) -> None:
    assert row(key).meets_goal(good)
    assert not row(key).meets_goal(bad)
    assert row("fetch-128").meets_goal(0.0)
