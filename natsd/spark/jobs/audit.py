"""`natsd pipeline audit`: checks of store directories and snapshots, and comparison of replicas.

It finds damaged and missing messages, duplicate ids, and times out of order.

    from natsd.spark.jobs.audit import audit
    outcome = audit(spark, ["/backup/n1", "/backup/n2", "/backup/n3"], streams=["ORDERS"])

    plans (driver) ─▶ tasks, a run of blocks each ─▶ damage, counts, ids, digests of chunks
    chunks that differ between replicas ─▶ tasks for those alone ─▶ digests of rows ─▶ runs of rows

Promise
- Every checksum is verified: those of blocks by tasks that Spark distributes; those of the journal,
  keys, configurations, indexes and consumers by the driver. Nothing is written.
- Deleted and missing messages are distinguished as far as a store can: a message is missing if a
  damaged or lost record, block or index says so; every other sequence without a message was
  removed.
- An id is a duplicate if it occurs twice within the stream's duplicate window; mirrors and streams
  with sources are not checked for this. A time is out of order if a message is older than the one
  before it on its subject.
- Replicas are compared from the highest of their first sequences to the lowest of their last: by
  digests of 65,536 sequences, and row by row where those differ. The messages before or behind that
  range, which only some replicas have, are one finding per replica and side. No payload leaves a
  task, and none is shown.
- Lists are cut at `limit` findings of each kind and stream; `counts` has all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.spark.jobs import audit_diff, audit_tasks
from natsd.spark.jobs.audit_findings import (
    DAMAGE,
    DUPLICATE_ID,
    MISSING,
    TIME_ORDER,
    Audited,
    AuditFinding,
    ReplicaStreamState,
)
from natsd.spark.jobs.audit_replica import Replica, names_of, plan_replica
from natsd.spark.jobs.audit_tasks import AuditTask
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.progress import Advance
from natsd.spark.stored.stored_ranges import (
    NO_KEYS,
    StoreKeys,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.sequence_set import SequenceSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "audit"
HELP: Final = "verify store directories or snapshots, and compare replicas"
LIMIT: Final = 100
TASK_BYTES: Final = 256 << 20
ALL_CHUNKS: Final = (1 << 48) - 1


def audit(
    spark: SparkSession,
    directories: Sequence[str | Path],
    *,
    streams: Iterable[str] | None = None,
    account: str = "$G",
    keys: StoreKeys = NO_KEYS,
    limit: int = LIMIT,
    advance: Callable[[Advance], None] | None = None,
) -> Audited:
    """Audit replicas, each a store directory or a snapshot; `streams` None: all streams.

    `limit` is the number of listed findings of each kind and stream; `advance` is called with the
    progress. Blocks until the end. Raises JobError if Spark fails.
    """
    began = time.monotonic()
    paths = [Path(each) for each in directories]
    audited = Audited(names_of(paths))
    chosen = None if streams is None else list(streams)
    replicas = [
        plan_replica(path, name, chosen, account, keys, audited)
        for path, name in zip(paths, audited.replicas, strict=True)
    ]
    for stream in chosen or ():
        if not any(stream in each.plans or stream in each.unread for each in replicas):
            audited.unread.append(f'no replica has a stream "{stream}" of account {account}')
    try:
        _Audit(spark, replicas, audited, limit, advance).run()
    except Exception as error:
        if isinstance(error, JobError | AssertionError):
            raise
        raise JobError(f"audit: {reason_of(error)}") from error
    audited.seconds = time.monotonic() - began
    return audited


class _Audit:
    """One run of an audit."""

    def __init__(
        self,
        spark: SparkSession,
        replicas: list[Replica],
        audited: Audited,
        limit: int,
        advance: Callable[[Advance], None] | None,
    ) -> None:
        self._spark = spark
        self._replicas = replicas
        self._audited = audited
        self._limit = limit
        self._advance = advance
        self._states: dict[tuple[int, str], ReplicaStreamState] = {}

    def run(self) -> None:
        """Run both passes."""
        self._note_states()
        tasks = self._tasks(lambda _number, _plan: None)
        self._report(0, 2)
        if tasks:
            found = self._run(tasks).persist()
            try:
                self._take_damage(found)
                self._take_summaries(found)
                self._take_ids(found)
                self._report(1, 1)
                self._compare(found)
            finally:
                found.unpersist()
        self._note_gaps()
        self._report(2, 0)

    def _report(self, done: int, waiting: int) -> None:
        if self._advance is not None:
            self._advance(Advance(done, waiting))

    # Tasks

    def _tasks(
        self,
        chunks: Callable[[int, StoredStreamPlan], tuple[int, int, bytes] | None],
        *,
        rows: bool = False,
    ) -> list[AuditTask]:
        """Return the tasks that read each plan.

        `chunks` returns for a plan (first sequence, last sequence, encoded chunk numbers), or None
        for all of it. With `rows` the tasks read only those chunks, and plans without chunks are
        skipped.
        """
        tasks = []
        for number, replica in enumerate(self._replicas):
            for stream, plan in replica.plans.items():
                asked = chunks(number, plan)
                if rows and asked is None:
                    continue
                request = replace(plan.request(), fail_on_data_loss=False)
                if asked is not None:
                    request = replace(request, first_sequence=asked[0], last_sequence=asked[1])
                window_ns = replica.windows_ns.get(stream, 0)
                tasks += [
                    AuditTask(number, blocks, window_ns, asked[2] if asked else None)
                    for blocks in plan.ranges(request, min_partitions=self._partitions(plan))
                ]
        return tasks

    def _partitions(self, plan: StoredStreamPlan) -> int:
        return max(self._spark.sparkContext.defaultParallelism, plan.size_bytes // TASK_BYTES)

    def _run(self, tasks: list[AuditTask]) -> DataFrame:
        from natsd.spark.jobs.audit_source import rows_of

        return rows_of(self._spark, tasks)

    # The first pass

    def _note_states(self) -> None:
        for number, replica in enumerate(self._replicas):
            for stream, plan in replica.plans.items():
                state = ReplicaStreamState(
                    replica.name,
                    stream,
                    plan.first_sequence,
                    plan.last_sequence,
                    blocks=len(plan.blocks),
                )
                self._states[number, stream] = state
                self._audited.streams.append(state)

    def _take_damage(self, found: DataFrame) -> None:
        from pyspark.sql import functions as F

        rows = found.where(F.col("kind").isin(audit_tasks.DAMAGE, audit_tasks.UNREAD)).collect()
        for row in sorted(rows, key=lambda row: (row.replica, row.stream, row.a or 0)):
            name = self._replicas[row.replica].name
            if row.kind == audit_tasks.UNREAD:
                line = f"{name}: {row.stream}: {row.text}"
                if line not in self._audited.unread:  # all tasks of a machine may say the same
                    self._audited.unread.append(line)
                continue
            told = json.loads(row.text)
            kind = DAMAGE if told["file"] else MISSING
            known = {
                (each.file, each.offset, each.what)
                for each in self._audited.findings
                if each.replica == name and each.stream == row.stream
            }
            place = told["file"], told.get("offset", 0), told["what"]
            if place not in known:
                self._audited.add(
                    AuditFinding(
                        kind,
                        name,
                        row.stream,
                        told["first"],
                        told["last"],
                        told["what"],
                        told["file"],
                        told.get("offset", 0),
                        told.get("length", 0),
                    )
                )

    def _take_summaries(self, found: DataFrame) -> None:
        rows = found.where(found.kind == audit_tasks.SUMMARY).collect()
        suspects = set()
        last: dict[tuple[int, str], int] = {}
        for row in sorted(rows, key=lambda row: (row.replica, row.stream, row.a)):
            if not row.c:
                continue
            key = row.replica, row.stream
            state, times = self._states[key], json.loads(row.text)
            state.messages += row.c
            state.data_bytes += row.d
            if row.e or times["first_ns"] < last.get(key, times["first_ns"]):
                suspects.add(key)
            last[key] = times["last_ns"]
        if suspects:
            self._take_order(suspects)

    def _take_order(self, suspects: set[tuple[int, str]]) -> None:
        """Check streams whose times descend for times that descend within one subject."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        chunks = SequenceSet()
        chunks.add_range(0, ALL_CHUNKS)
        encoded = chunks.encode()
        tasks = self._tasks(
            lambda number, plan: (
                (plan.request().first_sequence, plan.last_sequence, encoded)
                if (number, plan.stream) in suspects
                else None
            ),
            rows=True,
        )
        rows = self._run(tasks).where(F.col("kind") == audit_tasks.ROW)
        before = Window.partitionBy("replica", "stream", "c").orderBy("a")
        older = (
            rows.select("replica", "stream", "a", "b", "c")
            .withColumn("before", F.lag("b").over(before))
            .withColumn("before_seq", F.lag("a").over(before))
            .where("b < before")
        )
        self._take_pairs(older, TIME_ORDER, "older by {} s than message {} of its subject")

    def _take_ids(self, found: DataFrame) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        before = Window.partitionBy("replica", "stream", "a").orderBy("b")
        twice = (
            found.where(F.col("kind") == audit_tasks.ID)
            .select("replica", "stream", "a", "b", "c", "d")
            .withColumn("before", F.lag("c").over(before))
            .withColumn("before_seq", F.lag("b").over(before))
            .where("c - before < d")
            .select(
                "replica",
                "stream",
                F.col("b").alias("a"),
                F.col("c").alias("b"),
                "before",
                "before_seq",
            )
        )
        self._take_pairs(twice, DUPLICATE_ID, "{} s after message {} with the same Nats-Msg-Id")

    def _take_pairs(self, pairs: DataFrame, kind: str, text: str) -> None:
        """Add a finding for each row that conflicts with an earlier one.

        The columns are sequence `a`, its time `b`, and time and sequence of the earlier message.
        """
        pairs = pairs.persist()
        try:
            total = pairs.count()
            for row in pairs.orderBy("replica", "stream", "a").limit(self._limit).collect():
                name = self._replicas[row.replica].name
                what = text.format(abs(row.b - row.before) / 10**9, row.before_seq)
                self._audited.findings.append(
                    AuditFinding(kind, name, row.stream, row.a, row.a, what)
                )
        finally:
            pairs.unpersist()
        if total:
            self._audited.counts[kind] += total

    def _note_gaps(self) -> None:
        """Count the sequences without a message: missing as the findings say, otherwise removed."""
        for number, replica in enumerate(self._replicas):
            for stream, plan in replica.plans.items():
                state = self._states[number, stream]
                lost = audit_diff.lost_of(replica.name, plan, self._audited.findings)
                gone = audit_diff.without_message(plan)
                state.missing = lost.count
                gone.difference_update(lost)
                state.deleted = gone.count
                runs = gone.runs()
                state.deleted_runs = [run for run, _ in zip(runs, range(self._limit), strict=False)]

    # The second pass

    def _compare(self, found: DataFrame) -> None:
        if len(self._replicas) < 2:
            return
        plans: dict[str, dict[int, StoredStreamPlan]] = {}
        for number, replica in enumerate(self._replicas):
            for stream, plan in replica.plans.items():
                plans.setdefault(stream, {})[number] = plan
        names = [replica.name for replica in self._replicas]
        asked: dict[str, tuple[int, int, bytes]] = {}
        for stream, having in sorted(plans.items()):
            lacking = [each.name for each in self._replicas if each.lacks(stream)]
            audit_diff.note_lacking(stream, having, lacking, names, self._audited)
            first, last = audit_diff.note_ends(stream, having, names, self._audited)
            if len(having) < 2 or last < first:
                continue
            self._audited.compared += last - first + 1
            chunks = audit_diff.differing_chunks(found, stream, list(having), first, last)
            if chunks:
                asked[stream] = first, last, chunks.encode()
        tasks = self._tasks(lambda _number, plan: asked.get(plan.stream), rows=True)
        if tasks:
            rows = self._run(tasks)
            audit_diff.take_rows(rows, plans, names, self._audited, self._limit)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "directory",
        nargs="+",
        metavar="DIR",
        help="a store directory that no server uses, or a snapshot; several are replicas",
    )
    parser.add_argument(
        "--stream", action="append", metavar="STREAM", help="only this one; may be repeated"
    )
    parser.add_argument("--account", default="$G", help="whose streams ($G)")
    parser.add_argument("--key-file", default="", metavar="FILE", help="key of encrypted streams")
    parser.add_argument(
        "--prev-key-file", default="", metavar="FILE", help="the key before the last rotation"
    )
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help="findings listed of each kind"
    )


def run(
    spark: SparkSession,
    arguments: argparse.Namespace,
    advance: Callable[[Advance], None] | None = None,
) -> Audited:
    """Run the command. Raises JobError."""
    return audit(
        spark,
        arguments.directory,
        streams=arguments.stream,
        account=arguments.account,
        keys=StoreKeys(arguments.key_file, arguments.prev_key_file),
        limit=arguments.limit,
        advance=advance,
    )
