"""`natsd pipeline replay`: an archive's messages into a stream.

    from natsd.spark.jobs.replay import replay
    replay(spark, "/data/orders", {"stream": "AGAIN"}, mappings={"orders.>": "again.orders.>"})

Promise
- Messages of one subject are sent in the order of their sequences by one task; with a single task
  all messages are.
- A message that the stream has is not sent again: each message carries its origin, and the stream's
  messages are read first. So a killed replay continues, and a repeated one sends only what its
  archive has gained. Messages that the stream has lost since, by a limit, a purge or a work queue's
  acknowledgement, are sent again.
- `Nats-Original-Stream`, `-Sequence` and `-Time` (RFC 3339) name the origin of a message. Other
  `Nats-` headers of the original become `Nats-Original-…`, because they were requests to a server
  that were carried out once. Only the reason of a delete marker is kept, for readers of a bucket.
- A dry run reads, maps and counts, and sends nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.core.routing import SubjectTransform
from natsd.core.subject_mapping import InvalidMapping
from natsd.spark.jobs.archive_table import ArchiveTable
from natsd.spark.jobs.arguments import (
    add_connection,
    add_storage,
    connection_of,
    options_of,
    pairs,
    storage_of,
)
from natsd.spark.jobs.delta_log import has_log
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.progress import Advance
from natsd.spark.jobs.table_files import TableFiles
from natsd.spark.options import ConnectionSettings
from natsd.spark.session import activate
from natsd.spark.subjects import pattern_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME: Final = "replay"
HELP: Final = "an archive's messages into a stream, in order, with what they carried; resumable"
ORIGINAL_STREAM: Final = "Nats-Original-Stream"
ORIGINAL_SEQUENCE: Final = "Nats-Original-Sequence"
ORIGINAL_TIME: Final = "Nats-Original-Time"
NEEDED: Final = ("stream", "seq", "subject", "time_ns", "headers", "data")
SHOWN_SUBJECTS: Final = 20


@dataclass(slots=True)
class ReplaySummary:
    """Result of a replay: the messages that were sent, or in a dry run would be sent.

    `size_bytes`: bytes of their payloads; `subjects`: the mapped subjects with the most messages,
    and their counts; `there_before`: messages that the stream had already.
    """

    stream: str
    sent: int
    there_before: int
    size_bytes: int
    subjects: dict[str, int]
    is_dry: bool
    seconds: float

    exit_code = 0

    def text(self) -> str:
        """Return a line of counts; a dry run has a line for each subject too."""
        verb = "would be sent" if self.is_dry else "sent"
        rate = f" ({self.sent / self.seconds:,.0f}/s)" if self.seconds and not self.is_dry else ""
        lines = [
            f"{self.sent:,} messages, {self.size_bytes:,} bytes of payload {verb} to {self.stream} "
            f"in {self.seconds:.1f} s{rate}"
        ]
        if self.there_before:
            lines.append(f"{self.there_before:,} were there before")
        if self.is_dry:
            lines += [f"{count:>12,}  {subject}" for subject, count in self.subjects.items()]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def replay(
    spark: SparkSession,
    path: str,
    target: Mapping[str, str],
    *,
    mappings: Mapping[str, str] | None = None,
    where: str | None = None,
    subject: str | None = None,
    rate: float | None = None,
    tasks: int | None = None,
    is_dry: bool = False,
    storage: Mapping[str, str] | None = None,
) -> ReplaySummary:
    """Send the messages of an archive, or of Parquet files with its columns, to a stream.

    `target` holds the data source's options, with `stream`. `mappings` are subject mappings as in a
    server's configuration; the first that matches a subject is applied. `where` is SQL over the
    archive's columns; `subject` is a filter that may have wildcards. `rate` limits the messages per
    second of all tasks together. `storage` is as for `archive`. Blocks until the end. Raises
    JobError.
    """
    from pyspark.sql import functions as F

    if "stream" not in target:
        raise JobError("replay: say which stream, with --stream")
    began = time.monotonic()
    activate(spark)
    number = tasks or spark.sparkContext.defaultParallelism
    rows = _selected(_read(spark, path, storage or {}), where, subject)
    there = _there(spark, target).persist()  # persisted: counting and sending need the headers
    missing = rows.join(there, on=["stream", "seq"], how="left_anti")
    mapped = _mapped(missing, mappings or {})
    try:
        total = rows.count()
        counts = mapped.groupBy("subject").agg(F.count("seq"), F.sum(F.octet_length("data")))
        found = sorted((tuple(row) for row in counts.collect()), key=lambda row: (-row[1], row[0]))
        if not is_dry and found:
            ordered = mapped.repartition(number, "subject").sortWithinPartitions("stream", "seq")
            _send(ordered, target, None if rate is None else rate / number)
    except Exception as error:
        raise JobError(f"replay into {target['stream']}: {reason_of(error)}") from error
    finally:
        there.unpersist()
    sent = sum(row[1] for row in found)
    return ReplaySummary(
        target["stream"],
        sent,
        total - sent,
        sum(row[2] or 0 for row in found),
        {row[0]: row[1] for row in found[:SHOWN_SUBJECTS]},
        is_dry,
        time.monotonic() - began,
    )


def _read(spark: SparkSession, path: str, storage: Mapping[str, str]) -> DataFrame:
    files = TableFiles(spark, path)
    if has_log(files.root, storage):
        rows = ArchiveTable(spark, path, storage).read()
    elif files.exists(""):
        rows = spark.read.parquet(files.root)
    else:
        raise JobError(f"{files.root}: there is nothing to replay")
    lacking = [name for name in NEEDED if name not in rows.columns]
    if lacking:
        raise JobError(f"{files.root}: no column {lacking[0]}; replay needs {', '.join(NEEDED)}")
    return rows


def _selected(rows: DataFrame, where: str | None, subject: str | None) -> DataFrame:
    if where is not None:
        rows = rows.where(where)
    if subject is not None:
        rows = rows.where(rows["subject"].rlike(pattern_of(subject)))
    return rows.select(*NEEDED)


def _there(spark: SparkSession, target: Mapping[str, str]) -> DataFrame:
    """Return stream and sequence of the archived messages that the target already has."""
    from pyspark.sql import functions as F

    known = {name.lower() for name in ConnectionSettings.names()}
    reading = {name: value for name, value in target.items() if name.lower() in known}
    reading |= {"stream": target["stream"], "columns": "headers"}
    headers = spark.read.format("jetstream").options(**reading).load()
    stream = F.col("headers")[ORIGINAL_STREAM][0]
    sequence = F.col("headers")[ORIGINAL_SEQUENCE][0].cast("bigint")
    return headers.select(stream.alias("stream"), sequence.alias("seq")).where("seq is not null")


def _send(rows: DataFrame, target: Mapping[str, str], rate_per_task: float | None) -> None:
    from pyspark.sql import functions as F

    out = rows.select(
        "subject",
        "data",
        _carried_headers().alias("headers"),
        F.concat_ws(":", "stream", "seq").alias("id"),
    )
    options = {
        **target,
        **({} if rate_per_task is None else {"maxMsgsPerSecond": str(rate_per_task)}),
    }
    out.write.format("jetstream").options(**options).mode("append").save()


def _carried_headers() -> Column:
    """Return the headers to send: the message's own and its origin.

    Requests to the server are renamed to `Nats-Original-…`.
    """
    from pyspark.sql import functions as F

    name = "CASE WHEN lower(k) LIKE 'nats-%' AND lower(k) <> 'nats-marker-reason'"
    own = F.expr(
        "transform_keys(coalesce(headers, cast(map() AS map<string,array<string>>)), "
        f"(k, v) -> {name} AND lower(k) NOT LIKE 'nats-original-%' "
        "THEN concat('Nats-Original-', substr(k, 6)) ELSE k END)"
    )
    time_text = F.expr(
        "concat(date_format(timestamp_seconds(floor(time_ns / 1000000000)), "
        "\"yyyy-MM-dd'T'HH:mm:ss\"), '.', lpad(cast(time_ns % 1000000000 AS string), 9, '0'), 'Z')"
    )
    origin = F.create_map(
        F.lit(ORIGINAL_STREAM),
        F.array("stream"),
        F.lit(ORIGINAL_SEQUENCE),
        F.array(F.col("seq").cast("string")),
        F.lit(ORIGINAL_TIME),
        F.array(time_text),
    )
    keep = F.map_filter(
        own, lambda k, _: ~k.isin(ORIGINAL_STREAM, ORIGINAL_SEQUENCE, ORIGINAL_TIME)
    )
    return F.map_concat(keep, origin)


def _mapped(rows: DataFrame, mappings: Mapping[str, str]) -> DataFrame:
    """Map the subjects, each by the first mapping that matches it."""
    from pyspark.sql import functions as F

    for source, destination in mappings.items():
        try:
            SubjectTransform(source, destination)
        except InvalidMapping as error:
            raise JobError(f"--map {source}={destination}: {error}") from None
    if not mappings:
        return rows
    # A row-wise function: Spark's Arrow functions need pandas, and one string per row is fast
    # enough.
    mapped = F.udf(_Mapped(tuple(mappings.items())), "string", useArrow=False)
    return rows.withColumn("subject", mapped("subject"))


class _Mapped:
    """A subject mapping that is sent to executors, which build the transforms."""

    def __init__(self, mappings: tuple[tuple[str, str], ...]) -> None:
        self._mappings = mappings
        self._transforms: list[SubjectTransform] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_mappings": self._mappings, "_transforms": None}

    def __call__(self, subject: str) -> str:
        if self._transforms is None:
            self._transforms = [SubjectTransform(*mapping) for mapping in self._mappings]
        return next(
            (to for one in self._transforms if (to := one.map(subject)) is not None), subject
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "table", metavar="TABLE", help="an archive, or a directory of Parquet files"
    )
    parser.add_argument("--stream", required=True, help="the stream to send to")
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FROM=TO",
        help="subject mapping, as in a server's configuration; may be repeated, the first holds",
    )
    parser.add_argument("--subject", help="only messages of this subject; may have wildcards")
    parser.add_argument("--where", metavar="SQL", help="only messages for which this holds")
    parser.add_argument("--rate", type=float, metavar="N", help="no more messages in a second")
    parser.add_argument(
        "--tasks", type=int, metavar="N", help="tasks that send; 1 keeps the order of all subjects"
    )
    parser.add_argument("--dry-run", action="store_true", help="count, and send nothing")
    add_storage(parser)
    add_connection(parser)


def run(
    spark: SparkSession,
    arguments: argparse.Namespace,
    advance: Callable[[Advance], None] | None = None,
) -> ReplaySummary:
    """Run the command. Raises JobError."""
    if (arguments.rate is not None and arguments.rate <= 0) or (arguments.tasks or 1) < 1:
        raise JobError("--rate and --tasks: more than 0")
    return replay(
        spark,
        arguments.table,
        {**connection_of(arguments), **options_of(arguments), "stream": arguments.stream},
        mappings=pairs(arguments.map, "--map"),
        where=arguments.where,
        subject=arguments.subject,
        rate=arguments.rate,
        tasks=arguments.tasks,
        is_dry=arguments.dry_run,
        storage=storage_of(arguments),
    )
