"""Begin records: the progress of a task where a later attempt finds it, with a lease.

    begin.<application>.<version>.<partition>   the record of one task
    begin.<application>.<version>.ids           the record of one batch with an id column
    fence.<application>                         the highest version that is complete

Application and version are a query id and its batch, or txnAppId and txnVersion.

Promise
- A task sends its first message only after its record is stored, and row n only after the record
  says that rows up to n, with this digest, are being sent (`planned`, `digest`).
- Only the record's owner sends. It updates the record by compare-and-set at least every third of
  LEASE_S, and sends nothing once LEASE_S have passed since its last update. Another attempt takes
  the record over if its owner released it, or did not update it for LEASE_S by the server's clock;
  the former owner notices at its next update, and stops (TakenOver).
- No record says that a task has no more rows: when Spark cancels a task, the input of its Python
  process ends as if it were complete.
- `rows` counts the first rows, all of them acknowledged; the other planned rows are, if they were
  stored, behind the sequences of `targets` in their streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from natsd.spark.errors import ClientError
from natsd.spark.sink.state_bucket import BucketEntry, StateBucket, token

LEASE_S: Final = 5.0
REFUSED_MAX: Final = 10_000


class WriteError(Exception):
    """Rows could not be written; the text says what, where, and what to do."""


class TakenOver(WriteError):
    """Another attempt of this task owns the record now."""


@dataclass(frozen=True)
class WriteJob:
    """A unit that is written once: a query's batch, or a version of a transaction."""

    application: str
    version: int

    @property
    def key(self) -> str:
        """Key of the batch's records, without the partition."""
        return f"begin.{token(self.application)}.{self.version}"

    @property
    def fence_key(self) -> str:
        """Key of the application's fence."""
        return f"fence.{token(self.application)}"

    def __str__(self) -> str:
        return f"{self.application}:{self.version}"


@dataclass(frozen=True)
class StreamEnd:
    """End of a stream when a task began: the task's rows can only be behind `sequence`.

    `created` is the stream's creation time, by which a recreated stream is detected.
    """

    sequence: int
    created: str


@dataclass(frozen=True)
class BeginRecord:
    """The record of one task, as the module's promise describes it.

    - `owner`: a random id of the attempt; `attempt`: Spark's number of it; `run`: a random id of
      the job's execution; `takeovers`: how often the owner changed.
    - `by_id`: rows have an id column; otherwise they are identified by number.
    - `rows`: number of acknowledged rows; `planned`: number of rows that may be sent; `digest`: of
      the planned rows, 16 hexadecimal digits.
    - `targets`: the end of each stream when the task began, or later if everything up to there is
      acknowledged; `refused`: numbers of rows that the server refused and that are to be sent
      again.
    """

    owner: str
    attempt: int
    run: str
    by_id: bool
    rows: int = 0
    planned: int = 0
    digest: str = ""
    targets: dict[str, StreamEnd] = field(default_factory=dict)
    refused: tuple[int, ...] = ()
    takeovers: int = 0
    is_released: bool = False

    def encode(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return asdict(self)

    @classmethod
    def decode(cls, value: dict[str, Any]) -> Self:
        """Return the record of a JSON object."""
        targets = {name: StreamEnd(**stream_end) for name, stream_end in value["targets"].items()}
        return cls(**{**value, "targets": targets, "refused": tuple(value["refused"])})


def fence_of(bucket: StateBucket, job: WriteJob) -> int | None:
    """Return the highest complete version; None: no version is. Raises ClientError."""
    entry = bucket.get(job.fence_key)
    return None if entry is None else int(entry.value["version"])


def raise_fence(bucket: StateBucket, job: WriteJob) -> None:
    """Mark this version, and all before it, as complete. Raises ClientError, WriteError."""
    value = {"version": job.version}
    for _ in range(10):
        entry = bucket.get(job.fence_key)
        if entry is not None and int(entry.value["version"]) >= job.version:
            return
        if entry is None:
            written = bucket.create(job.fence_key, value)
        else:
            written = bucket.update(job.fence_key, value, entry.revision)
        if written is not None:
            return
    raise WriteError(f'the fence of "{job.application}" changes all the time: is it used twice?')


class TaskLease:
    """The lease of a record, held by this attempt. Methods raise ClientError and TakenOver."""

    def __init__(
        self, bucket: StateBucket, key: str, record: BeginRecord, seconds: float = LEASE_S
    ) -> None:
        self.bucket = bucket
        self.key = key
        self.record = record
        self.seconds = seconds
        self.revision = 0
        self.before: BeginRecord | None = None
        """The record as the attempt before this one left it; None: this is the first attempt."""
        self._renewed = 0.0
        self._seen_revision, self._seen_at = 0, 0.0

    def begin(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Create the record, or take it over once its owner may no longer use it. Blocks."""
        while True:
            started = time.monotonic()
            revision = self.bucket.create(self.key, self.record.encode())
            if revision is not None:
                self._hold(revision, started)
                return
            entry = self.bucket.get(self.key)
            if entry is not None and self._take(entry, sleep):
                return

    def _take(self, entry: BucketEntry, sleep: Callable[[float], None]) -> bool:
        left = BeginRecord.decode(entry.value)
        if left.owner == self.record.owner:  # the answer to this write was lost
            self.confirm()
            return True
        if not left.is_released:
            wait = self._left_s(entry)
            if wait > 0:
                sleep(min(wait, 0.25))
                return False
        started = time.monotonic()
        record = replace(
            left,
            owner=self.record.owner,
            attempt=self.record.attempt,
            run=self.record.run,
            takeovers=left.takeovers + 1,
            is_released=False,
        )
        revision = self.bucket.update(self.key, record.encode(), entry.revision)
        if revision is None:
            return False
        self.before, self.record = left, record
        self._hold(revision, started)
        return True

    def _left_s(self, entry: BucketEntry) -> float:
        """Return the seconds that the owner may still use the record.

        If the server does not report its time, a full lease is counted from when the record was
        seen.
        """
        now = self.bucket.now_ns()
        if now is None:
            if self._seen_revision != entry.revision:
                self._seen_revision, self._seen_at = entry.revision, time.monotonic()
            return self.seconds - (time.monotonic() - self._seen_at)
        return self.seconds - (now - entry.written_ns) / 1e9

    def _hold(self, revision: int, started: float) -> None:
        self.revision = revision
        self._renewed = started

    @property
    def age_s(self) -> float:
        """Seconds since the start of the last successful update."""
        return time.monotonic() - self._renewed

    @property
    def is_due(self) -> bool:
        """Whether the lease should be renewed."""
        return self.age_s > self.seconds / 3

    def change(self, **changes: Any) -> None:
        """Update fields of the record, which renews the lease."""
        record = replace(self.record, **changes)
        started = time.monotonic()
        revision = self.bucket.update(self.key, record.encode(), self.revision)
        if revision is None:
            raise self._lost()
        self.record = record
        self._hold(revision, started)

    def confirm(self, **changes: Any) -> None:
        """Update the record after a reconnect, when the last update may or may not be stored."""
        entry = self.bucket.get(self.key)
        if entry is None or entry.value["owner"] != self.record.owner:
            raise self._lost()
        self.revision = entry.revision
        self.change(**changes)

    def release(self, **changes: Any) -> None:
        """Release the record; on an error, other attempts wait until the lease expires."""
        try:
            self.confirm(is_released=True, **changes)
        except (ClientError, TakenOver):
            return

    def _lost(self) -> TakenOver:
        return TakenOver(
            f"another attempt took over {self.key}: this one (attempt {self.record.attempt}) "
            "stops, and nothing is lost"
        )


def batch_stream_ends(
    bucket: StateBucket, job: WriteJob, run: str, stream_ends: dict[str, StreamEnd]
) -> tuple[dict[str, StreamEnd], bool]:
    """Return the stream ends of a batch with an id column, shared by all its tasks.

    Adds the ends of streams that no task has written to yet. Also returns whether an earlier run
    began the batch. Raises ClientError, WriteError.
    """
    key = f"{job.key}.ids"
    for _ in range(100):
        entry = bucket.get(key)
        known: dict[str, Any] = {} if entry is None else entry.value["targets"]
        missing = {
            name: asdict(stream_end)
            for name, stream_end in stream_ends.items()
            if name not in known
        }
        wanted = known | missing
        value = {"run": run if entry is None else entry.value["run"], "targets": wanted}
        if entry is None:
            written = bucket.create(key, value)
        elif missing:
            written = bucket.update(key, value, entry.revision)
        else:
            written = entry.revision
        if written is not None:
            targets = {name: StreamEnd(**stream_end) for name, stream_end in wanted.items()}
            return targets, value["run"] != run
    raise WriteError(f"the record {key} changes all the time: start the write again")
