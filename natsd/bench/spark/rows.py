"""The Spark rows and their goals: a table.

A goal is a bound on natsd's median: on the value itself, or on its ratio to the median of another
row. A row in which no server takes part has its value in the column "Spark alone".
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from natsd.bench.report import value_text
from natsd.bench.rows import Metric
from natsd.bench.spark.fetching import Fetch
from natsd.bench.spark.memory import ReaderMemory
from natsd.bench.spark.reading import Growth, NetworkRead, ParquetRead, StoreRead
from natsd.bench.spark.scenario import SparkScenario
from natsd.bench.spark.streaming import StreamRead
from natsd.bench.spark.writing import Write

ROWS = Metric("k rows/s", higher_is_better=True, divisor=1e3, digits=0)
MESSAGES = Metric("k msg/s", higher_is_better=True, divisor=1e3, digits=0)
MEMORY = Metric("MB", higher_is_better=False, divisor=1e6, digits=0)


@dataclass(frozen=True)
class Goal:
    """A bound: on the ratio to the row `of`, or on the value itself if `of` is empty."""

    bound: float
    of: str = ""
    of_title: str = ""


@dataclass(frozen=True)
class SparkRow:
    """One line of the table."""

    key: str
    title: str
    scenario: SparkScenario
    value: str
    metric: Metric
    goal: Goal | None = None

    @property
    def goal_text(self) -> str:
        """The goal as the table shows it; empty: there is none."""
        if self.goal is None:
            return ""
        sign = "≥" if self.metric.higher_is_better else "≤"
        if self.goal.of:
            return f"{sign} {self.goal.bound:g} × {self.goal.of_title}"
        return f"{sign} {value_text(self.goal.bound, self.metric)}"

    def meets_goal(self, ratio: float) -> bool:
        """Return whether the ratio, to the other row or to the bound itself, meets the goal."""
        if self.goal is None:
            return True
        bound = self.goal.bound if self.goal.of else 1.0
        return ratio >= bound if self.metric.higher_is_better else ratio <= bound


@dataclass(frozen=True)
class SparkScale:
    """The numbers of messages of the rows."""

    read: int = 1_000_000
    fetched: int = 50_000
    streamed: int = 5_000_000
    written: int = 1_000_000
    grown: tuple[int, int, int] = (100_000, 1_000_000, 10_000_000)


QUICK = SparkScale(20_000, 5_000, 60_000, 20_000, (2_000, 20_000, 100_000))
PARTITIONS = (1, 2, 4)


def all_rows(scale: SparkScale) -> list[SparkRow]:
    """Return every row, in the order of the table."""
    return [
        *read_rows(scale, "128", "128 B", 128),
        *read_rows(scale, "1k", "1 KiB", 1024),
        *stream_rows(scale),
        *memory_rows(scale),
        *growth_rows(scale),
    ]


def read_rows(scale: SparkScale, key: str, size: str, payload_bytes: int) -> list[SparkRow]:
    """Return the rows that read a stream as a table in different ways."""
    count = f"{scale.read:,} × {size}"
    network = NetworkRead(scale.read, payload_bytes)
    parquet = ParquetRead(scale.read, payload_bytes)
    store = StoreRead(scale.read, payload_bytes)
    fetch = Fetch(scale.fetched, payload_bytes)
    wanted = {"128": Goal(1.5e6), "1k": Goal(20.0, "fetch-1k", "nats-py")}
    half = Goal(0.5, f"parquet-{key}", "Parquet")
    return [
        rate(f"fetch-{key}", f"nats-py, pull fetch into a list, {size}", fetch),
        rate(f"read-{key}", f"network read of {count}", network, wanted[key]),
        rate(f"parquet-{key}", f"Parquet (snappy) of {count}, column data", parquet),
        rate(f"store-{key}", f"storeDir read of {count}, column data", store, half),
    ]


def stream_rows(scale: SparkScale) -> list[SparkRow]:
    """Return the rows of micro-batches, and of writing to a stream."""
    sustained = StreamRead(scale.streamed, scale.read, 128)
    written = Write(scale.written, 128)
    return [
        rate(
            "stream-128",
            f"streaming read, warm micro-batches of {scale.read:,} × 128 B",
            sustained,
            Goal(0.7, "read-128", "network read"),
        ),
        SparkRow(
            "write-128",
            f"exactly-once write of {scale.written:,} × 128 B, file",
            written,
            "rate",
            MESSAGES,
            Goal(500e3),
        ),
    ]


def memory_rows(scale: SparkScale) -> list[SparkRow]:
    """Return the rows of a task's peak memory, which must not grow with its range."""
    scenario = ReaderMemory(scale.grown, 128)
    few, *more = scale.grown
    bounded = Goal(1.25, f"memory-{few}", f"{few:,} rows")
    return [
        SparkRow(
            f"memory-{count}",
            f"peak memory of a task that reads {count:,} rows",
            scenario,
            str(count),
            MEMORY,
            bounded if count in more else None,
        )
        for count in scale.grown
    ]


def growth_rows(scale: SparkScale) -> list[SparkRow]:
    """Return the rows of network reads, by number of rows and of partitions."""
    return [
        rate(
            f"grow-{parts}-{count}",
            f"network read of {count:,} × 128 B, {parts} partition{'s' if parts > 1 else ''}",
            Growth(count, parts, scale.grown[-1], 128),
        )
        for count in scale.grown
        for parts in PARTITIONS
    ]


def rate(key: str, title: str, scenario: SparkScenario, goal: Goal | None = None) -> SparkRow:
    """Return a row that shows rows per second."""
    return SparkRow(key, title, scenario, "rate", ROWS, goal)


def select(rows: Iterable[SparkRow], patterns: list[str]) -> list[SparkRow]:
    """Return the rows whose key matches, and the rows these are compared with; no pattern: all."""
    every = list(rows)
    if not patterns:
        return every
    chosen = {
        row.key for row in every if any(fnmatch.fnmatch(row.key, pattern) for pattern in patterns)
    }
    chosen |= {row.goal.of for row in every if row.goal is not None and row.key in chosen}
    return [row for row in every if row.key in chosen]
