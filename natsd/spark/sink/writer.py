"""The writers behind `df.write` and `df.writeStream` to streams; they only append.

    driver     batch_writer, stream_writer ─▶ pickled ─▶ write(batches) in each task, on executors
    driver     commit: raise the fence, remove begin records     abort: keep them for a retry

Promise
- Writes are exactly once, as write_task.py describes: a streaming query by its id and batch, a
  batch write by `txnAppId` and `txnVersion`. A batch write without these two is exactly once for
  the attempts of its tasks; repeated, it is another write. If such a write is killed, its records
  are useless: the next write without a name removes them when they are KEPT_S old.
- A commit raises the fence before it removes records: a late attempt finds one or the other.
- The commit of a batch is refused if an earlier attempt began it in more partitions, unless the
  rows have an id column.

Source: PySpark's DataSource API; Delta's idempotent writes (txnAppId, txnVersion).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from natsd.spark.sink.begin_records import WriteError, WriteJob, raise_fence
from natsd.spark.sink.state_bucket import StateBucket
from natsd.spark.sink.write_task import RowsDiffer, Task, WriteOptions, Written, write_task
from natsd.spark.sink.written_columns import NotWritable, WrittenColumns
from natsd.spark.wire.client import NatsClient

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType
    from pyspark.taskcontext import TaskContext

__all__ = ["WriteOptions", "batch_writer", "stream_writer"]

UNNAMED: Final = re.compile(r"write-(\d{10})-[0-9a-f]{16}")
KEPT_S: Final = 7 * 86_400
"""Age in seconds at which records of a killed unnamed write are removed; no write lasts so long."""
QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"

ContextOf: TypeAlias = "Callable[[], TaskContext | None]"


@dataclass
class Committed(WriterCommitMessage):
    """The message of a successful task to the driver."""

    written: Written


def current_context() -> TaskContext | None:
    """Return Spark's context of the running task; None: outside of a task."""
    from pyspark.taskcontext import TaskContext

    return TaskContext.get()


def batch_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the batch writer. Raises NotWritable."""
    refuse_overwrite(overwrite)
    return BatchWriter(options, WrittenColumns.of(schema))


def stream_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the streaming writer. Raises NotWritable."""
    refuse_overwrite(overwrite)
    return StreamWriter(options, WrittenColumns.of(schema))


def refuse_overwrite(overwrite: bool) -> None:
    """Raise NotWritable for an overwriting write."""
    if overwrite:
        raise NotWritable(
            'a stream is only appended to: use mode("append") or outputMode("append"), '
            "and purge the stream first if its messages are to go"
        )


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("jetstream")`."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WrittenColumns,
        context: ContextOf = current_context,
    ) -> None:
        self.options = options
        self.columns = columns
        self.run = secrets.token_hex(8)
        self.is_named = options.application is not None
        unnamed = f"write-{seconds_now()}-{self.run}"
        self.job = WriteJob(options.application or unnamed, options.version or 0)
        self._context = context

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        """Write the rows of one task, on an executor. Raises WriteError, ClientError."""
        context = context_of(self._context)
        task = Task(self.job, context.partitionId(), context.attemptNumber(), self.run)
        return Committed(write_task(self.options, self.columns, task, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Complete the write after all tasks. Raises WriteError, ClientError."""
        job = job_of(messages) or self.job
        with NatsClient(self.options.connect) as client:
            bucket = StateBucket(client, self.options.state_bucket)
            finish(bucket, job, messages, self.is_named)
            if not self.is_named:
                remove_killed(bucket, seconds_now() - KEPT_S)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the records of an unnamed write, which nothing can retry. Raises ClientError."""
        if self.is_named:
            return
        with NatsClient(self.options.connect) as client:
            job = job_of(messages) or self.job
            StateBucket(client, self.options.state_bucket).purge(f"{job.key}.>")


def seconds_now() -> int:
    """Return the seconds since the epoch."""
    return time.time_ns() // 10**9


def remove_killed(bucket: StateBucket, began_before: int) -> None:
    """Remove the records of unnamed writes that began before this time and did not end.

    `began_before` is seconds since the epoch. Raises ClientError.
    """
    applications = {key.partition(".")[0] for key in bucket.keys("begin")}
    for application in applications:
        unnamed = UNNAMED.fullmatch(application)
        if unnamed is not None and int(unnamed[1]) < began_before:
            bucket.purge(f"begin.{application}.>")


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("jetstream")`."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WrittenColumns,
        context: ContextOf = current_context,
    ) -> None:
        self.options = options
        self.columns = columns
        self.run = secrets.token_hex(8)
        self._context = context

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        """Write the rows of one task, on an executor. Raises WriteError, ClientError."""
        context = context_of(self._context)
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or not batch:
            raise WriteError(
                "Spark tells this task neither query nor batch: exactly once needs "
                "PySpark 4.2 or newer"
            )
        job = WriteJob(query, int(batch))
        task = Task(job, context.partitionId(), context.attemptNumber(), self.run)
        return Committed(write_task(self.options, self.columns, task, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Complete the batch after all tasks. Raises WriteError, ClientError."""
        job = job_of(messages)
        if job is None:
            return
        with NatsClient(self.options.connect) as client:
            finish(StateBucket(client, self.options.state_bucket), job, messages, True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Keep the begin records for the next attempt."""


def context_of(get: ContextOf) -> TaskContext:
    """Return Spark's context of the running task."""
    context = get()
    assert context is not None, "writes happen in tasks"
    return context


def written_of(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the results of the tasks."""
    return [message.written for message in messages if isinstance(message, Committed)]


def job_of(messages: Sequence[WriterCommitMessage | None]) -> WriteJob | None:
    """Return the job that the tasks wrote; None: no task reported one."""
    return next((written.task.job for written in written_of(messages)), None)


def finish(
    bucket: StateBucket,
    job: WriteJob,
    messages: Sequence[WriterCommitMessage | None],
    is_named: bool,
) -> None:
    """Complete the job: raise the fence and remove its records. Raises WriteError, ClientError."""
    written = written_of(messages)
    if not any(task.was_done for task in written):
        keys = bucket.keys(job.key)
        begun = {int(key) for key in keys if key.isdigit()}
        came = {task.task.partition for task in written if task.rows}
        if not begun <= came and "ids" not in keys:
            raise RowsDiffer(
                f"{job} was begun in partitions {sorted(begun - came)}, which have no rows now: "
                "start it again with the parallelism it had"
            )
    if is_named:
        raise_fence(bucket, job)
        bucket.purge(f"begin.{job.key.split('.')[1]}.>")
    else:
        bucket.purge(f"{job.key}.>")
