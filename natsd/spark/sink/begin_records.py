"""What a task has begun and done, where a later attempt finds it: the begin record, and its lease.

    begin.<application>.<version>.<partition>   one task's record
    begin.<application>.<version>.ids           one batch's, where rows are known by an id column
    fence.<application>                         the highest version that is done

Application and version are a query and its batch, or txnAppId and txnVersion.

Promise
- A task sends its first message only when its record is there, and row n only when the record says
  that rows up to n, with this digest, are on their way (`planned`, `digest`).
- Only the record's owner sends. It changes the record by compare-and-set, at least every third of
  LEASE_S, and sends nothing once LEASE_S have passed since it did. Another attempt takes the record
  over when its owner gave it back, or left it alone for LEASE_S by the server's clock; the owner
  that lost it learns so when it next changes it, and stops (TakenOver).
- No record says that a task has no more rows: where Spark gives up a task, the input of its Python
  ends as if it were complete.
- `rows` are the first rows, all of them acknowledged; the rest of what was planned stands behind
  `targets`' sequences in its stream, if it was stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from natsd.spark.errors import ClientError
from natsd.spark.sink.state_bucket import Entry, StateBucket, token

LEASE_S: Final = 5.0
REFUSED_MAX: Final = 10_000


class WriteError(Exception):
    """Rows could not be written; the text says what, where, and what to do."""


class TakenOver(WriteError):
    """Another attempt of this task writes now."""


@dataclass(frozen=True)
class Job:
    """What is written once: a query's batch, or a version of a transaction."""

    application: str
    version: int

    @property
    def key(self) -> str:
        return f"begin.{token(self.application)}.{self.version}"

    @property
    def fence_key(self) -> str:
        return f"fence.{token(self.application)}"

    def __str__(self) -> str:
        return f"{self.application}:{self.version}"


@dataclass(frozen=True)
class Floor:
    """Of a stream, when a task began: rows of it can only stand behind `sequence`."""

    sequence: int
    created: str


@dataclass(frozen=True)
class BeginRecord:
    """One task's; see the promise. Digests are 16 hexadecimal digits."""

    owner: str
    attempt: int
    run: str
    by_id: bool
    rows: int = 0
    planned: int = 0
    digest: str = ""
    targets: dict[str, Floor] = field(default_factory=dict)
    refused: tuple[int, ...] = ()
    takeovers: int = 0
    is_released: bool = False

    def encode(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def decode(cls, value: dict[str, Any]) -> Self:
        targets = {name: Floor(**floor) for name, floor in value["targets"].items()}
        return cls(**{**value, "targets": targets, "refused": tuple(value["refused"])})


def fence_of(bucket: StateBucket, job: Job) -> int | None:
    """The highest version that is done. Raises ClientError."""
    entry = bucket.get(job.fence_key)
    return None if entry is None else int(entry.value["version"])


def raise_fence(bucket: StateBucket, job: Job) -> None:
    """This version is done, and so are all before it. Raises ClientError, WriteError."""
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


class Lease:
    """The record as its owner holds it. Methods raise ClientError, and TakenOver."""

    def __init__(
        self, bucket: StateBucket, key: str, record: BeginRecord, seconds: float = LEASE_S
    ) -> None:
        self.bucket = bucket
        self.key = key
        self.record = record
        self.seconds = seconds
        self.revision = 0
        self.before: BeginRecord | None = None
        """What an attempt before this one had left."""
        self._renewed = 0.0
        self._seen_revision, self._seen_at = 0, 0.0

    def begin(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Create the record, or take it over as soon as nobody else may use it."""
        while True:
            started = time.monotonic()
            revision = self.bucket.create(self.key, self.record.encode())
            if revision is not None:
                self._hold(revision, started)
                return
            entry = self.bucket.get(self.key)
            if entry is not None and self._take(entry, sleep):
                return

    def _take(self, entry: Entry, sleep: Callable[[float], None]) -> bool:
        left = BeginRecord.decode(entry.value)
        if left.owner == self.record.owner:  # written, and the answer was lost
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

    def _left_s(self, entry: Entry) -> float:
        """How long its owner may still use it; where the server tells no time: a whole lease."""
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
        """Since it was certainly ours."""
        return time.monotonic() - self._renewed

    @property
    def is_due(self) -> bool:
        return self.age_s > self.seconds / 3

    def change(self, **changes: Any) -> None:
        """Renews it as well."""
        record = replace(self.record, **changes)
        started = time.monotonic()
        revision = self.bucket.update(self.key, record.encode(), self.revision)
        if revision is None:
            raise self._lost()
        self.record = record
        self._hold(revision, started)

    def confirm(self, **changes: Any) -> None:
        """`change` after a connection was lost: the last change may or may not have been stored."""
        entry = self.bucket.get(self.key)
        if entry is None or entry.value["owner"] != self.record.owner:
            raise self._lost()
        self.revision = entry.revision
        self.change(**changes)

    def release(self, **changes: Any) -> None:
        """Nobody needs to wait for us; where that cannot be said, they wait."""
        try:
            self.confirm(is_released=True, **changes)
        except (ClientError, TakenOver):
            return

    def _lost(self) -> TakenOver:
        return TakenOver(
            f"another attempt took over {self.key}: this one (attempt {self.record.attempt}) "
            "stops, and nothing is lost"
        )


def batch_floors(
    bucket: StateBucket, job: Job, run: str, floors: dict[str, Floor]
) -> tuple[dict[str, Floor], bool]:
    """Of a batch whose rows are known by ids: where they can begin, for all its tasks together.

    Adds the streams that nobody wrote to before. Also: whether an earlier run began it.
    Raises ClientError, WriteError.
    """
    key = f"{job.key}.ids"
    for _ in range(100):
        entry = bucket.get(key)
        known: dict[str, Any] = {} if entry is None else entry.value["targets"]
        missing = {name: asdict(floor) for name, floor in floors.items() if name not in known}
        wanted = known | missing
        value = {"run": run if entry is None else entry.value["run"], "targets": wanted}
        if entry is None:
            written = bucket.create(key, value)
        elif missing:
            written = bucket.update(key, value, entry.revision)
        else:
            written = entry.revision
        if written is not None:
            targets = {name: Floor(**floor) for name, floor in wanted.items()}
            return targets, value["run"] != run
    raise WriteError(f"the record {key} changes all the time: start the write again")
