"""`natsd pipeline archive`: streams into a Delta Lake table, each message once.

    from natsd.spark.jobs.archive import archive
    archive(spark, {"stream": "ORDERS"}, "/data/orders", tokens={"region": 2})

Promise
- A streaming query reads the messages since the last run in batches, and each batch is added
  atomically (archive_table.py). If it is killed at any point, the next run continues without a gap
  or a repetition, with or without the query's checkpoint.
- The table has all columns of the source, and `archived_at`; its partitions are the day of `time`
  in UTC, and below it the chosen subject tokens.
- Without `follow` the job ends when it has archived the messages that the streams had at its start.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.spark.jobs.archive_table import KEEP_HOURS, TARGET_FILE_BYTES, ArchiveTable
from natsd.spark.jobs.arguments import (
    add_connection,
    add_storage,
    add_subject,
    add_trigger,
    pairs,
    source_of,
    storage_of,
)
from natsd.spark.jobs.delta_log import StreamRange
from natsd.spark.jobs.errors import JobError, reason_of
from natsd.spark.jobs.progress import Advance, following, shown_bytes, trigger_of
from natsd.spark.rows.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME: Final = "archive"
HELP: Final = "streams into a Delta Lake table, each message once; resumable"
ARCHIVED_AT: Final = "archived_at"
COLUMNS: Final = f"{ddl()}, {ARCHIVED_AT} TIMESTAMP"
MSGS_PER_BATCH: Final = 1_000_000
COMPACT_EVERY: Final = 32
"""Changes after which small files are compacted, while the job follows."""
_IDENTITY: Final = ("stream", "streams", "streamsPattern", "subject", "subjects", "domain")


@dataclass(slots=True)
class Archived:
    """Result of one run: the added messages by stream, and the table's totals."""

    table: str
    streams: dict[str, StreamRange]
    files: int
    size_bytes: int
    rows: int
    compacted: int
    seconds: float

    exit_code = 0

    @property
    def added(self) -> int:
        """Number of added messages."""
        return sum(stream.rows for stream in self.streams.values())

    def text(self) -> str:
        """Return a line for each stream, and one for the table."""
        lines = [
            f"{name}: {new.rows:,} messages, sequences {new.first:,} to {new.last:,}"
            for name, new in sorted(self.streams.items())
        ]
        rate = f" ({self.added / self.seconds:,.0f}/s)" if self.seconds else ""
        lines.append(f"{self.added:,} messages in {self.seconds:.1f} s{rate}")
        if self.compacted:
            lines.append(f"{self.compacted:,} small files compacted")
        size = shown_bytes(self.size_bytes)
        lines.append(f"{self.table}: {self.rows:,} messages, {self.files:,} files, {size}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "streams"}
        ranges = {
            name: {"first": new.first, "last": new.last, "rows": new.rows}
            for name, new in self.streams.items()
        }
        return {**values, "added": self.added, "streams": ranges}


def archive(
    spark: SparkSession,
    source: Mapping[str, str],
    path: str,
    *,
    tokens: Mapping[str, int] | None = None,
    follow: bool = False,
    interval: str = "10 seconds",
    target_file_bytes: int = TARGET_FILE_BYTES,
    keep_hours: int = KEEP_HOURS,
    storage: Mapping[str, str] | None = None,
    advance: Callable[[Advance], None] | None = None,
) -> Archived:
    """Archive streams into the table at `path`, which is created if it does not exist.

    `source` holds the data source's options; `tokens` maps column names to subject tokens, counted
    from 1. With `follow` the job continues, with a batch each `interval`, until the query is
    stopped (SIGINT, SIGTERM). Files that compaction replaced are kept for `keep_hours`, for time
    travel. `storage` holds options of the table's file system for Delta's log, as the package
    deltalake names them. `advance` is called with the progress. Blocks until the end. Raises
    JobError.
    """
    began = time.monotonic()
    table = ArchiveTable.create(
        spark,
        path,
        source={name: value for name, value in source.items() if name in _IDENTITY},
        columns=COLUMNS,
        tokens=tokens or {},
        storage=storage,
        keep_hours=keep_hours,
    )
    batch_writer = _BatchWriter(table, target_file_bytes if follow else None)
    try:
        try:
            following(_start(spark, source, batch_writer, follow, interval), advance)
        finally:
            batch_writer.end()
        compacted = batch_writer.compacted + table.compact(target_file_bytes)
    except Exception as error:
        reason = reason_of(error).removeprefix(f"{table.root}: ")
        raise JobError(f"{table.root}: {reason}") from error
    files = table.log.files()
    return Archived(
        table.root,
        table.added,
        len(files),
        sum(file.size_bytes for file in files),
        sum(file.rows for file in files),
        compacted,
        time.monotonic() - began,
    )


def read_archive(
    spark: SparkSession, path: str, storage: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the current messages of an archive, each once. Raises JobError if there is none."""
    return ArchiveTable(spark, path, storage).read()


class _BatchWriter:
    """Writer of batches, called by the query in a thread of its own.

    Stopping a query interrupts the JVM calls of that thread at any step.
    """

    def __init__(self, table: ArchiveTable, compact_to: int | None) -> None:
        self.table = table
        self.compacted = 0
        self._compact_to = compact_to
        self._has_ended = False
        self._in_batch = threading.Lock()

    def __call__(self, batch: DataFrame, number: int) -> None:
        with self._in_batch:
            if self._has_ended:
                raise JobError("the query has been stopped")
            self._add(batch, number)

    def _add(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        rows = batch.withColumn(ARCHIVED_AT, F.current_timestamp())
        self.table.append(rows)
        if self._compact_to is not None and number % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compacted += self.table.compact(self._compact_to)

    def end(self) -> None:
        """Refuse further batches, and wait for the end of the current one."""
        with self._in_batch:
            self._has_ended = True


def _start(
    spark: SparkSession,
    source: Mapping[str, str],
    batch_writer: _BatchWriter,
    follow: bool,
    interval: str,
) -> StreamingQuery:
    table = batch_writer.table
    options = {"startingOffsets": "earliest", "maxMsgsPerTrigger": str(MSGS_PER_BATCH), **source}
    if not table.has_checkpoint and table.log.streams:
        held = {name: table.log.last(name) + 1 for name in table.log.streams}
        options["startingOffsets"] = json.dumps(held)
    rows = spark.readStream.format("jetstream").options(**options).load()
    writer = rows.writeStream.foreachBatch(batch_writer).option(
        "checkpointLocation", table.checkpoint
    )
    writer = writer.queryName("natsd archive")
    return writer.trigger(**trigger_of(follow, interval)).start()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("stream", metavar="STREAM", help="name of a stream, or several by commas")
    parser.add_argument(
        "table", metavar="TABLE", help="directory of the table; any that Spark opens"
    )
    add_subject(parser)
    parser.add_argument(
        "--token",
        action="append",
        default=[],
        metavar="NAME=N",
        help="partition by the N-th token of the subject, below the day; may be repeated",
    )
    add_trigger(parser)
    parser.add_argument(
        "--file-mb", type=int, default=TARGET_FILE_BYTES >> 20, help="what small files grow to"
    )
    parser.add_argument(
        "--keep-hours",
        type=int,
        default=KEEP_HOURS,
        metavar="N",
        help=f"how long replaced files are kept, for time travel ({KEEP_HOURS})",
    )
    add_storage(parser)
    add_connection(parser)


def run(
    spark: SparkSession,
    arguments: argparse.Namespace,
    advance: Callable[[Advance], None] | None = None,
) -> Archived:
    """Run the command. Raises JobError."""
    if arguments.keep_hours < 0:
        raise JobError("--keep-hours: 0 or more")
    return archive(
        spark,
        source_of(arguments, arguments.stream),
        arguments.table,
        tokens=_tokens(arguments.token),
        follow=arguments.follow,
        interval=arguments.interval,
        target_file_bytes=arguments.file_mb << 20,
        keep_hours=arguments.keep_hours,
        storage=storage_of(arguments),
        advance=advance,
    )


def _tokens(given: list[str]) -> dict[str, int]:
    tokens = {}
    for name, number in pairs(given, "--token").items():
        if not name.isidentifier() or not number.isdecimal() or int(number) < 1:
            raise JobError(f"--token {name}={number}: write it as NAME=N, N from 1")
        tokens[name] = int(number)
    return tokens
