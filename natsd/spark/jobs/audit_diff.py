"""Comparison of an audit: messages that differ between the replicas of a stream.

    chunks   digests that differ between replicas: which 65,536 sequences
    rows     of those chunks, grouped by sequence ─▶ replicas, fields that differ ─▶ runs

Promise
- The sequences of a run are consecutive and differ alike: the same replicas have them, the same
  fields differ.
- If a replica lacks a message, the finding says why as far as known: removed there, damaged, before
  its first or behind its last message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs import audit_tasks
from natsd.spark.jobs.audit_findings import (
    DAMAGE,
    DIFFERENT,
    MISSING,
    ONLY_IN,
    Audited,
    AuditFinding,
)
from natsd.spark.ranges import RangeRequest
from natsd.spark.stored.reading import CHUNK_BITS
from natsd.spark.stored.store_read import read_store
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.codec.records import checksum
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS: Final = (("b", "time"), ("c", "subject"), ("d", "headers"), ("e", "data"))

Plans = Mapping[int, StoredStreamPlan]


def without_message(plan: StoredStreamPlan) -> SequenceSet:
    """Return the sequences, from the first to the last, that have no message."""
    gone = SequenceSet()
    gone.add_range(plan.first_sequence, plan.last_sequence)
    for part in plan.blocks:
        live = SequenceSet()
        live.add_range(part.first, part.last)
        live.difference_update(SequenceSet.decode(part.dead))
        gone.difference_update(live)
    return gone


def lost_of(replica: str, plan: StoredStreamPlan, findings: Sequence[AuditFinding]) -> SequenceSet:
    """Return the sequences that should have a message, according to the findings."""
    lost = SequenceSet()
    for found in findings:
        if found.kind not in (DAMAGE, MISSING) or not found.first:
            continue
        if found.replica == replica and found.stream == plan.stream:
            first = max(found.first, plan.first_sequence)
            lost.add_range(first, min(found.last or found.first, plan.last_sequence))
    return lost


def note_lacking(
    stream: str, plans: Plans, lacking: Sequence[str], names: Sequence[str], audited: Audited
) -> None:
    """Add a finding that names the replicas without the stream."""
    if lacking:
        what = f"the stream is in {_named(plans, names)}, not in {', '.join(lacking)}"
        audited.add(AuditFinding(ONLY_IN, "", stream, 0, 0, what))


def note_ends(stream: str, plans: Plans, names: Sequence[str], audited: Audited) -> tuple[int, int]:
    """Add findings for the messages before or behind the range that all replicas cover.

    Returns that range: first and last sequence.
    """
    first = max(plan.first_sequence for plan in plans.values())
    last = min(plan.last_sequence for plan in plans.values())
    for number, plan in plans.items():
        before = plan.first_sequence, min(first - 1, plan.last_sequence)
        behind = max(last + 1, first, plan.first_sequence), plan.last_sequence
        for span in (before, behind):
            _note_end(stream, names[number], *span, plan, audited)
    return first, last


def _note_end(
    stream: str, name: str, first: int, last: int, plan: StoredStreamPlan, audited: Audited
) -> None:
    live = SequenceSet()
    for part in plan.blocks:
        if part.first <= last and part.last >= first:
            here = SequenceSet()
            here.add_range(max(first, part.first), min(last, part.last))
            here.difference_update(SequenceSet.decode(part.dead))
            live.union_update(here)
    if live.first is not None and live.last is not None:
        what = f"{live.count:,} messages that not all have, in {name}"
        audited.add(AuditFinding(ONLY_IN, "", stream, live.first, live.last, what), live.count)


def differing_chunks(
    found: DataFrame, stream: str, replicas: list[int], first: int, last: int
) -> SequenceSet:
    """Return the numbers of the chunks that differ, or that not all replicas have."""
    from pyspark.sql import functions as F

    whole = found.where((F.col("kind") == audit_tasks.CHUNK) & (F.col("stream") == stream))
    chunks = whole.groupBy("replica", "a").agg(
        F.sum("b").alias("n"), F.expr("bit_xor(c)").alias("x")
    )
    alike = chunks.groupBy("a").agg(
        F.count("*").alias("replicas"),
        F.min("n").alias("n1"),
        F.max("n").alias("n2"),
        F.min("x").alias("x1"),
        F.max("x").alias("x2"),
    )
    rows = alike.where((F.col("replicas") < len(replicas)) | F.expr("n1 != n2 OR x1 != x2"))
    lowest, highest = first >> CHUNK_BITS, last >> CHUNK_BITS
    numbers = [row.a for row in rows.select("a").collect()]
    return SequenceSet(sorted(number for number in numbers if lowest <= number <= highest))


def take_rows(
    rows: DataFrame,
    plans: Mapping[str, Plans],
    names: Sequence[str],
    audited: Audited,
    limit: int,
) -> None:
    """Compare the rows, and add findings for the runs that differ."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    unread = rows.where(F.col("kind") == audit_tasks.UNREAD).select("replica", "stream", "text")
    rows = rows.where(F.col("kind") == audit_tasks.ROW)
    together = rows.groupBy("stream", "a").agg(
        F.expr("bit_or(shiftleft(1L, replica))").alias("mask"),
        *[F.expr(f"min({name}) != max({name})").alias(title) for name, title in FIELDS],
    )
    full = F.lit(0).cast("bigint")
    for stream, having in plans.items():
        mask = sum(1 << number for number in having)
        full = F.when(F.col("stream") == stream, F.lit(mask).cast("bigint")).otherwise(full)
    titles = [title for _, title in FIELDS]
    differing = together.where((F.col("mask") != full) | F.expr(" OR ".join(titles)))
    alike = Window.partitionBy("stream", "mask", *titles).orderBy("a")
    islands = differing.withColumn("island", F.col("a") - F.row_number().over(alike))
    runs = (
        islands.groupBy("stream", "mask", *titles, "island")
        .agg(F.min("a").alias("first"), F.max("a").alias("last"), F.count("*").alias("n"))
        .persist()
    )
    try:
        for row in unread.collect():
            audited.unread.append(f"{names[row.replica]}: {row.stream}: {row.text}")
        _count(runs, plans, audited)
        for row in runs.orderBy("stream", "first").limit(limit).collect():
            audited.findings.append(_finding(row, plans[row.stream], names, audited.findings))
    finally:
        runs.unpersist()


def _count(runs: DataFrame, plans: Mapping[str, Plans], audited: Audited) -> None:
    from pyspark.sql import functions as F

    for row in runs.groupBy("stream", "mask").agg(F.sum("n").alias("n")).collect():
        is_full = row.mask == sum(1 << number for number in plans[row.stream])
        audited.counts[DIFFERENT if is_full else ONLY_IN] += row.n


def _finding(
    row: Any, plans: Plans, names: Sequence[str], findings: Sequence[AuditFinding]
) -> AuditFinding:
    missing = [number for number in plans if not row.mask >> number & 1]
    fields = [title for _, title in FIELDS if row[title]]
    told = f"{', '.join(fields)} {'differs' if len(fields) == 1 else 'differ'}" if fields else ""
    if not missing:
        what = f"{told}: {_shown(plans, names, row.first)}"
        return AuditFinding(DIFFERENT, "", row.stream, row.first, row.last, what)
    having = _named([number for number in plans if number not in missing], names)
    lacking = ", ".join(
        f"{names[number]} ({_why_not(plans[number], names[number], row.first, findings)})"
        for number in missing
    )
    what = f"in {having}, not in {lacking}{'; ' + told if told else ''}"
    return AuditFinding(ONLY_IN, "", row.stream, row.first, row.last, what)


def _named(numbers: Any, names: Sequence[str]) -> str:
    return ", ".join(names[number] for number in numbers)


def _why_not(
    plan: StoredStreamPlan, name: str, sequence: int, findings: Sequence[AuditFinding]
) -> str:
    if sequence in lost_of(name, plan, findings):
        return "damaged"
    return "removed"


def _shown(plans: Plans, names: Sequence[str], sequence: int) -> str:
    """Return a text with the message of each replica, without its data."""
    return "; ".join(
        f"{names[number]}: {_message(plan, sequence)}" for number, plan in plans.items()
    )


def _message(plan: StoredStreamPlan, sequence: int) -> str:
    request = RangeRequest(plan.stream, sequence, sequence, fail_on_data_loss=False)
    for store_range in plan.ranges(request):
        for batch in read_store(store_range, ("subject", "time_ns", "headers", "data")):
            row = batch.to_pylist()[0]
            data, headers = row["data"], dict(row["headers"] or ())
            named = f", headers {', '.join(headers)}" if headers else ""
            return (
                f"{row['subject']} at {row['time_ns']} ns{named}, {len(data)} bytes"
                f" of XXH64 {checksum(data):016x}"
            )
    return "gone"
