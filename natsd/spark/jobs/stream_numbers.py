"""Numbers of a report, computed by Spark from rows with the data source's columns.

Promise
- Each table is small for any number of messages: windows, subjects and gaps are limited, and
  `totals` has their full counts.
- A gap is a run of sequences without a message between a stream's first and last one in the rows.
  Its messages were removed, by a user or a limit, or they are lost; `natsd pipeline audit` can tell
  which.
- Latency is the difference of two known times: for an archive's rows from `time` (when the server
  stored the message) to `archived_at`; with a header of the publisher, from the header's time to
  `time`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Rows = list[dict[str, Any]]

WINDOWS_MAX: Final = 2_000
GAPS_MAX: Final = 200
_GAP_BUCKET: Final = 1 << 20
"""Sequences in which one task searches for gaps."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Numbers:
    """All tables of a report, as rows; times are UTC, sizes are bytes, latencies are milliseconds.

    `window` is the Spark interval of `windows`; `latency` names the two times, None: unknown.
    """

    totals: Rows
    windows: Rows
    subjects: Rows
    sizes: Rows
    gaps: Rows
    window: str
    latency: str | None

    def tables(self) -> dict[str, Rows]:
        """Return the tables by name."""
        names = ("totals", "windows", "subjects", "sizes", "gaps")
        return {name: getattr(self, name) for name in names}


def compute(
    rows: DataFrame, *, window: str | None, top: int, latency: tuple[str, Column] | None
) -> Numbers:
    """Compute all tables.

    `window` is a Spark interval, None: one that fits. `top` is the number of subjects. `latency` is
    the name of the two times, and a column of milliseconds.
    """
    from pyspark.sql import functions as F

    size = F.octet_length(F.coalesce("data", F.lit(b"")))
    rows = rows.withColumns(
        {"size": size, "latency_ms": F.lit(None).cast("double") if latency is None else latency[1]}
    )
    rows = rows.select("stream", "seq", "subject", "time", "size", "latency_ms").persist()
    try:
        totals = _totals(rows)
        chosen = window or fitting_window(totals)
        return Numbers(
            totals,
            _windows(rows, chosen),
            _subjects(rows, top),
            _sizes(rows),
            _gaps(rows),
            chosen,
            None if latency is None else latency[0],
        )
    finally:
        rows.unpersist()


def fitting_window(totals: Rows) -> str:
    """Return the shortest usual window of which at most 200 cover the streams' time."""
    known = [row for row in totals if row["first_time"] is not None]
    if not known:
        return "1 minute"
    first, last = min(row["first_time"] for row in known), max(row["last_time"] for row in known)
    seconds = (last - first).total_seconds()
    usual = ((1, "1 second"), (10, "10 seconds"), (60, "1 minute"), (300, "5 minutes"))
    longer = ((900, "15 minutes"), (3600, "1 hour"), (21600, "6 hours"), (86400, "1 day"))
    return next((name for step, name in (*usual, *longer) if seconds / step <= 200), "7 days")


def _totals(rows: DataFrame) -> Rows:
    from pyspark.sql import functions as F

    found = rows.groupBy("stream").agg(
        F.count("seq").alias("messages"),
        F.sum("size").alias("bytes"),
        F.approx_count_distinct("subject").alias("subjects"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        (F.max("seq") - F.min("seq") + 1 - F.count("seq")).alias("missing"),
        F.min("time").alias("first_time"),
        F.max("time").alias("last_time"),
        *_quantiles("size"),
        *_quantiles("latency_ms"),
    )
    return _rows(found.orderBy("stream"))


def _windows(rows: DataFrame, window: str) -> Rows:
    from pyspark.sql import functions as F

    found = rows.groupBy("stream", F.window("time", window)["start"].alias("start")).agg(
        F.count("seq").alias("messages"),
        F.sum("size").alias("bytes"),
        *_quantiles("size"),
        *_quantiles("latency_ms"),
    )
    last = found.orderBy(F.desc("start"), "stream").limit(WINDOWS_MAX)
    return _rows(last.orderBy("start", "stream"))


def _subjects(rows: DataFrame, top: int) -> Rows:
    from pyspark.sql import functions as F

    found = rows.groupBy("stream", "subject").agg(
        F.count("seq").alias("messages"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("longest"),
        F.max("time").alias("last_time"),
    )
    return _rows(found.orderBy(F.desc("messages"), "stream", "subject").limit(top))


def _sizes(rows: DataFrame) -> Rows:
    """Count the payloads of up to 1, 2, 4, 8 … bytes."""
    from pyspark.sql import functions as F

    bucket = F.pow(F.lit(2), F.ceil(F.log2(F.greatest(F.col("size"), F.lit(1))))).cast("bigint")
    found = rows.groupBy("stream", F.when(F.col("size") == 0, 0).otherwise(bucket).alias("up_to"))
    return _rows(found.agg(F.count("seq").alias("messages")).orderBy("stream", "up_to"))


def _gaps(rows: DataFrame) -> Rows:
    """Find the longest runs of missing sequences.

    Gaps inside a bucket of sequences are found within it, gaps between buckets from their ends.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    bucketed = rows.select(
        "stream", "seq", "time", F.floor(F.col("seq") / _GAP_BUCKET).alias("bucket")
    )
    inside = _gaps_of(bucketed, Window.partitionBy("stream", "bucket").orderBy("seq"))
    ends = bucketed.groupBy("stream", "bucket").agg(
        F.min_by(F.struct("seq", "time"), "seq").alias("low"),
        F.max_by(F.struct("seq", "time"), "seq").alias("high"),
    )
    before = F.lag("high").over(Window.partitionBy("stream").orderBy("bucket"))
    between = _as_gaps(
        ends.select("stream", before.alias("before"), F.col("low").alias("behind")),
        F.col("before.seq"),
        F.col("before.time"),
        F.col("behind.seq"),
        F.col("behind.time"),
    )
    longest = inside.unionByName(between).orderBy(F.desc("missing"), "stream", "first_missing")
    return _rows(longest.limit(GAPS_MAX))


def _gaps_of(rows: DataFrame, order: Any) -> DataFrame:
    from pyspark.sql import functions as F

    pairs = rows.select(
        "stream",
        "seq",
        "time",
        F.lag("seq").over(order).alias("seq_before"),
        F.lag("time").over(order).alias("time_before"),
    )
    return _as_gaps(pairs, F.col("seq_before"), F.col("time_before"), F.col("seq"), F.col("time"))


def _as_gaps(
    rows: DataFrame, seq_before: Column, time_before: Column, seq: Column, time: Column
) -> DataFrame:
    return rows.where(seq > seq_before + 1).select(
        "stream",
        (seq_before + 1).alias("first_missing"),
        (seq - 1).alias("last_missing"),
        (seq - seq_before - 1).alias("missing"),
        time_before.alias("behind"),
        time.alias("before"),
    )


def _quantiles(column: str) -> Sequence[Column]:
    from pyspark.sql import functions as F

    names = [f"{column}_p{round(quantile * 100)}" for quantile in _QUANTILES]
    return [
        *(
            F.percentile_approx(column, quantile, 1_000).alias(name)
            for quantile, name in zip(_QUANTILES, names, strict=True)
        ),
        F.max(column).alias(f"{column}_max"),
    ]


def _rows(found: DataFrame) -> Rows:
    """Return plain rows, with times in UTC.

    Times are collected as numbers, because Spark converts timestamps to the time zone of the
    process.
    """
    from pyspark.sql import functions as F

    times = [name for name, kind in found.dtypes if kind == "timestamp"]
    rows = [
        row.asDict() for row in found.withColumns({t: F.unix_micros(t) for t in times}).collect()
    ]
    for row, name in product(rows, times):
        if row[name] is not None:
            row[name] = _EPOCH + dt.timedelta(microseconds=row[name])
    return rows
