"""Write of one task's rows to their streams, exactly once over all attempts.

    check ─▶ plan ─▶ send ─▶ acknowledged        of batch after batch
      │       └ the begin record holds the number and the digest of all rows so far
      └ no row of a batch is sent if one of them cannot be sent

Guarantees and their conditions
- The message id of row n of the partition is `<application>:<version>:<partition>:<n>`; with an id
  column it is that id alone, as any other publisher would send it.
- An attempt that finds a begin record continues behind the acknowledged rows. It reads from the
  stream which later rows are stored, and sends only the missing ones. This needs no duplicate
  window, however long ago the earlier attempt was.
- Rows that are identified by number must come again in the same order. The record holds the digest
  of all planned rows: an attempt sends nothing until its own first rows have that digest, and
  raises RowsDiffer if they have another. Rows with an id column may come in any order and
  partition.
- Two attempts of one task never send at the same time, by their own clocks
  (begin_records.TaskLease). The stream's duplicate window handles the rest: messages of an
  interrupted attempt that are still in transit, at most `max_in_flight`, and attempts in other
  partitions of a batch with an id column.
- A version at or below the fence is complete: its rows are neither checked nor sent.
- For streams that remove messages (a work queue, limits), see stored_ids; the record's count of
  acknowledged rows holds there too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from natsd.spark.sink.begin_records import (
    LEASE_S,
    BeginRecord,
    StreamEnd,
    TaskLease,
    WriteError,
    WriteJob,
    batch_stream_ends,
    fence_of,
)
from natsd.spark.sink.pacing import paced
from natsd.spark.sink.publishing import FoundIds, RowBatch, RowProblem, SendWindow
from natsd.spark.sink.sending import LOST, Sender
from natsd.spark.sink.state_bucket import StateBucket
from natsd.spark.sink.stored_ids import ReadHeaders, read_headers, stored_ids
from natsd.spark.sink.targets import TargetStreams
from natsd.spark.sink.written_columns import WrittenColumns
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import ClientOptions

if TYPE_CHECKING:
    import pyarrow as pa

Answer = TypeVar("Answer")

MAX_IN_FLIGHT: Final = 4096
IN_FLIGHT_BYTES_MAX: Final = 8 << 20


class RowsDiffer(WriteError):
    """The rows, or their order, differ from those of an earlier attempt."""


@dataclass(frozen=True)
class WriteOptions:
    """The user's options of a write; times are seconds.

    `stream` None: the stream of each row is found by its subject. `application` and `version` are
    txnAppId and txnVersion; None: not given.
    """

    connect: ClientOptions = field(default_factory=ClientOptions)
    stream: str | None = None
    application: str | None = None
    version: int | None = None
    max_in_flight: int = MAX_IN_FLIGHT
    rate: float | None = None
    """Maximum messages per second that one task sends; None: unlimited."""
    ack_timeout_s: float = 30.0
    state_bucket: str = "natsd_spark"
    lease_s: float = LEASE_S


@dataclass(frozen=True)
class Task:
    """One attempt of one partition of a job; `run` identifies one execution of the job."""

    job: WriteJob
    partition: int
    attempt: int
    run: str


@dataclass(frozen=True)
class Written:
    """Result of a task: its rows, by what happened to them.

    `sent` rows were stored by this attempt, `found` rows by an earlier one; `duplicates` were sent
    but stored before. `was_done`: the job was complete already.
    """

    task: Task
    rows: int = 0
    sent: int = 0
    found: int = 0
    duplicates: int = 0
    was_done: bool = False


def write_task(
    options: WriteOptions,
    columns: WrittenColumns,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    read: ReadHeaders = read_headers,
) -> Written:
    """Write the rows of one task; return the counts.

    Blocks on the network. Raises WriteError, ClientError, whose texts are one line.
    """
    if options.rate is not None:
        batches = paced(batches, options.rate)
    rows = (columns.rows(batch) for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return Written(task)
    with NatsClient(options.connect) as client:
        attempt = Attempt(options, columns, task, client, read)
        return attempt.run(first, chain([first], rows))


class Attempt:
    """One attempt of one task."""

    def __init__(
        self,
        options: WriteOptions,
        columns: WrittenColumns,
        task: Task,
        client: NatsClient,
        read: ReadHeaders,
    ) -> None:
        self.options = options
        self.task = task
        self.client = client
        self.by_id = columns.id is not None
        self.bucket = StateBucket(client, options.state_bucket)
        self.targets = TargetStreams(client, options.stream)
        self._read = read
        self._sender: Sender | None = None
        self._base = 0
        self._digest = 0
        self._is_rerun = False

    def run(self, first: RowBatch, batches: Iterator[RowBatch]) -> Written:
        """Write all rows; `first` is the first of `batches`. Raises WriteError, ClientError."""
        if self._retry(self._is_fenced):
            return Written(self.task, was_done=True)
        self._retry(lambda: self._check(first))
        self.lease = self._begin(first)
        try:
            if self._retry(self._is_fenced):
                self.bucket.purge(self.lease.key)
                return Written(self.task, was_done=True)
            self._write(batches)
        except BaseException:
            self.lease.release(**(self._sender.state() if self._sender else {}))
            raise
        return self._written()

    def _is_fenced(self) -> bool:
        fence = fence_of(self.bucket, self.task.job)
        return fence is not None and self.task.job.version <= fence

    def _begin(self, first: RowBatch) -> TaskLease:
        """Create or take over the begin record, with `first` as the planned rows."""
        stream_ends = {name: target.stream_end for name, target in self.targets.found.items()}
        self._retry(lambda: self._batch_stream_ends(stream_ends))
        record = BeginRecord(
            owner=secrets.token_hex(8),
            attempt=self.task.attempt,
            run=self.task.run,
            by_id=self.by_id,
            planned=first.count,
            digest=self._hex(self._digest_of(first, 0, first.count, 0)),
            targets=stream_ends,
        )
        key = f"{self.task.job.key}.{self.task.partition}"
        lease = TaskLease(self.bucket, key, record, self.options.lease_s)
        self._retry(lease.begin)
        if lease.before is not None and lease.before.by_id != self.by_id:
            lease.release()
            raise RowsDiffer(
                f"partition {self.task.partition} of {self.task.job} was begun "
                f"{'with' if lease.before.by_id else 'without'} an id column: "
                "finish it so, and change it then"
            )
        return lease

    def _batch_stream_ends(self, stream_ends: dict[str, StreamEnd]) -> dict[str, StreamEnd]:
        """Return the stream ends; with an id column, those of the batch.

        With an id column any task may send any row.
        """
        if not self.by_id:
            return stream_ends
        known, self._is_rerun = batch_stream_ends(
            self.bucket, self.task.job, self.task.run, stream_ends
        )
        return known

    def _retry(self, question: Callable[[], Answer]) -> Answer:
        """Return the result of `question`, which is repeated after lost connections.

        A repetition is harmless.
        """
        for left in range(self.options.connect.retries, -1, -1):
            try:
                return question()
            except LOST as error:
                if self._sender is not None:
                    self._sender.resume(error)
                elif left:
                    self.client.reconnect()
                else:
                    raise
        raise WriteError(f"{self.client.server_address}: connections are lost again and again")

    # Rows

    def _write(self, batches: Iterator[RowBatch]) -> None:
        before = self.lease.before
        verify = before if before is not None and not self.by_id else None
        sender = self._sender = self._new_sender(verify)
        skipped = verify.rows if verify is not None else 0
        held: list[tuple[int, RowBatch]] = []
        for rows in batches:
            if self._base:
                self._retry(partial(self._check, rows))
            base, self._base = self._base, self._base + rows.count
            planned = verify.planned if verify is not None else 0
            if verify is not None and base < planned <= self._base:
                self._digest = self._digest_of(rows, 0, planned - base, self._digest)
                self._compare(verify)
                self._digest = self._digest_of(rows, planned - base, rows.count, self._digest)
            else:
                self._digest = self._digest_of(rows, 0, rows.count, self._digest)
            if self._base > skipped:
                held.append((base, rows))
            if self._base < planned:
                continue
            self._retry(self._plan)
            for start, kept in held:
                sender.add(start, kept)
            held.clear()
            sender.send_up_to(base)
        if verify is not None and self._base < verify.planned:
            raise self._differs(f"{self._base} rows instead of at least {verify.planned}")
        sender.drain()
        done = {"rows": self._base, "planned": self._base, "is_released": True}
        self._retry(lambda: self.lease.change(**{**sender.state(), **done}))

    def _plan(self) -> None:
        """Update the record so that it covers all rows so far."""
        record = self.lease.record
        stream_ends = {name: target.stream_end for name, target in self.targets.found.items()}
        digest = self._hex(self._digest)
        missing = any(name not in record.targets for name in stream_ends)
        if self._base <= record.planned and record.digest == digest and not missing:
            return
        self._batch_stream_ends(stream_ends)
        state = self._sender.state() if self._sender else {}
        self.lease.change(**{**state, "planned": self._base, "digest": digest})

    def _check(self, rows: RowBatch) -> None:
        try:
            rows.check(self.client.max_payload)
        except RowProblem as problem:
            raise WriteError(
                f"row {self._base + problem.row} of partition {self.task.partition}: {problem}"
            ) from None
        self.targets.cover(rows)

    def _digest_of(self, rows: RowBatch, first: int, last: int, digest: int) -> int:
        return 0 if self.by_id else rows.digest(first, last, digest)

    @staticmethod
    def _hex(digest: int) -> str:
        return f"{digest:016x}"

    def _compare(self, verify: BeginRecord) -> None:
        if self._hex(self._digest) != verify.digest:
            raise self._differs("other rows, or in another order")

    def _differs(self, how: str) -> RowsDiffer:
        return RowsDiffer(
            f"partition {self.task.partition} of {self.task.job} was begun with other rows than "
            f"come now ({how}), so that nobody can tell which are sent: their order is not "
            "deterministic (a shuffle?), or the parallelism changed; add a column id that names "
            "each row, or keep rows in order (no shuffle, or a sort within partitions)"
        )

    # Rows stored by earlier attempts

    def _new_sender(self, verify: BeginRecord | None) -> Sender:
        job, partition = self.task.job, self.task.partition
        prefix = b"" if self.by_id else f"{job}:{partition}:".encode()
        window = SendWindow(
            prefix,
            verify.rows if verify is not None else 0,
            max_rows=self.options.max_in_flight,
            max_bytes=IN_FLIGHT_BYTES_MAX,
        )
        sender = Sender(
            self.client,
            self.targets,
            self.lease,
            window,
            lambda: self._find(prefix),
            self.options.ack_timeout_s,
        )
        is_first = self.lease.before is None and not self._is_rerun and not self.task.attempt
        is_all_acknowledged = verify is not None and verify.rows >= verify.planned
        if not is_first and not is_all_acknowledged:
            sender.found = self._retry(lambda: self._find(prefix))
        return sender

    def _find(self, prefix: bytes) -> FoundIds:
        record = self.lease.record
        stream_ends = self._batch_stream_ends(record.targets)
        return stored_ids(
            self.targets,
            stream_ends,
            prefix,
            by_row=not self.by_id,
            refused=record.refused,
            read=self._read,
        )

    def _written(self) -> Written:
        assert self._sender is not None
        window = self._sender.window
        return Written(
            task=self.task,
            rows=self._base,
            sent=window.acknowledged - window.duplicates,
            found=self._base - window.acknowledged,
            duplicates=window.duplicates,
        )
