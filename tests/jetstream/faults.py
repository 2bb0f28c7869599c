"""An operator works while the disk fails: the server, its streams, and the invariants.

    outcome = await fail_one_call("encrypted", "delete", place=7, number=errno.EIO)

The server has STREAMS busy streams, so that their commits go through the journal. The first stream,
S0, has the kind under test. From a certain moment on, one call of the disk fails: a call of the
publishing, or of the operation that follows it. The operation deletes S0, recreates it, purges it,
updates it, erases one of its messages, or creates and deletes a consumer. Then more messages are
published, and the server ends in one of three ways: it is stopped, killed, or killed and its
machine loses power.

Invariants, checked right after the operation and again after each of the three ends:
- Every acknowledged message is there, with its own payload, unless an operation that was answered
  with success removed it.
- Everything that such an operation removed is gone: nothing of an earlier stream with the same name
  comes back.
- A refused operation has changed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from natsd.accounts import Account
from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import StoreError, StoreReadOnly
from natsd.store.file_store import FileStore
from tests.jetstream.serving import ACCOUNT, account_of, build, create, publish, update
from tests.store.faulty_disk import ANY_CALL, FaultyDisk
from tests.store.test_file_store_model import end_other_tasks, everything

ROOT: Final = Path("/data")
STREAMS: Final = 6
"""The number of streams; more than the committer has threads, so that commits use the journal."""
PUBLISHED: Final = 5
"""Messages that are published to each stream before the fault, and again after it."""

KINDS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "compressed": {"compression": "s2"},
    "encrypted": {},
    "interest": {"retention": "interest"},
    "workqueue": {"retention": "workqueue"},
    "small": {"max_bytes": 6000},
}
KEY: Final = {"encrypted": {"key": "a key"}}
READER: Final = "READER"
"""A consumer of S0 that fetches nothing, so that an interest stream keeps its messages."""


@dataclass
class Expected:
    """The contents that one stream must have.

    `must` maps each acknowledged sequence to its payload. `published` holds payloads that were not
    acknowledged and may be there. `unsure` holds sequences whose removal was asked for when the
    disk failed for good: a restart may find them or not.
    """

    name: str
    must: dict[int, bytes] = field(default_factory=dict)
    published: set[bytes] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    exists: bool = True
    is_limited: bool = False
    """True if the stream's limits remove the oldest messages."""

    def note(self, answer: dict[str, Any], payload: bytes) -> None:
        if "error" in answer:
            self.published.add(payload)
        else:
            self.must[answer["seq"]] = payload

    @contextlib.contextmanager
    def removing(self, stream: Stream, sequences: Iterable[int]) -> Iterator[None]:
        """Expect that the operation inside the `with` removes `sequences`, unless it fails."""
        removed = set(sequences)
        try:
            yield
        except (ApiError, StoreError, OSError):
            assert isinstance(stream.store, FileStore)
            if isinstance(stream.store.write_error, StoreReadOnly):
                self.unsure |= removed
            raise
        for sequence in removed:
            del self.must[sequence]

    def check(self, found: dict[int, bytes], when: str, *, is_restarted: bool) -> None:
        floor = min(found, default=0) if self.is_limited else 0
        for sequence, payload in self.must.items():
            if sequence < floor or (is_restarted and sequence in self.unsure):
                continue
            assert sequence in found, f"{when}: {self.name} lost {sequence}"
            assert found[sequence] == payload, f"{when}: {self.name} has another {sequence}"
        for sequence, payload in found.items():
            is_known = self.must.get(sequence) == payload or payload in self.published
            assert is_known, f"{when}: {self.name} has {sequence} back: {payload[:40]!r}"
        if self.is_limited and self.must and not self.unsure:
            assert found, f"{when}: {self.name} lost everything"


class Operations:
    """The operations that the operator can apply to S0."""

    def __init__(self, history: History, jetstream: JetStream) -> None:
        self.history = history
        self.jetstream = jetstream
        self.expected = history.expected["S0"]

    @property
    def stream(self) -> Stream:
        return account_of(self.jetstream).stream("S0")

    async def delete(self) -> None:
        await account_of(self.jetstream).delete_stream("S0")
        self.history.gone()

    async def recreate(self) -> None:
        await self.delete()
        await self.history.create_first(self.jetstream)

    async def purge(self) -> None:
        with self.expected.removing(self.stream, self.expected.must):
            await self.stream.purge()

    async def purge_keep(self) -> None:
        with self.expected.removing(self.stream, sorted(self.expected.must)[:-2]):
            await self.stream.purge(keep=2)

    async def purge_some(self) -> None:
        """Purge messages in the middle of the stream: each removal is recorded on its own."""
        must = self.expected.must
        removed = [sequence for sequence, data in must.items() if data.startswith(b"S0.1 ")]
        with self.expected.removing(self.stream, removed):
            await self.stream.purge("S0.1")

    async def update(self) -> None:
        await update(self.stream, description="anew", max_msgs=1000)

    async def erase(self) -> None:
        """Delete a message in the last block, which is replaced if it is encrypted."""
        with self.expected.removing(self.stream, [max(self.expected.must)]):
            await self.stream.delete_message(max(self.expected.must))
        store = self.stream.store
        assert isinstance(store, FileStore)
        await store._jobs.in_turn(nothing)  # the bytes are overwritten after the answer

    async def consumer(self) -> None:
        config = ConsumerConfig(
            durable_name="C", ack_policy=AckPolicy.EXPLICIT, filter_subject="S0.none"
        )
        if self.history.kind == "workqueue":
            config = config.model_copy(update={"filter_subject": "S0.1"})
        await self.stream.create_consumer(config, "")
        self.history.has_consumer = True
        await self.stream.delete_consumer("C")
        self.history.has_consumer = False

    async def index(self) -> None:
        store = self.stream.store
        assert isinstance(store, FileStore)
        await store.write_index()


OPERATIONS: Final = tuple(name for name in vars(Operations) if name[0] != "_" and name != "stream")


async def nothing() -> None:
    """Do nothing: this job of a store's upkeep only waits for its turn."""


class History:
    """One server, and the answers that it gave."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.expected = {f"S{n}": Expected(f"S{n}") for n in range(STREAMS)}
        self.expected["S0"].is_limited = "max_bytes" in KINDS[kind]
        self.expected["S0"].exists = False
        self.number = 0
        self.has_consumer = False
        self.has_reader = False

    def gone(self) -> None:
        """Note that S0 was deleted."""
        is_limited = self.expected["S0"].is_limited
        self.expected["S0"] = Expected("S0", exists=False, is_limited=is_limited)
        self.has_consumer = self.has_reader = False

    async def create_first(self, jetstream: JetStream) -> None:
        if not self.expected["S0"].exists:
            await create(jetstream, "S0", subjects=["S0.*"], **KINDS[self.kind])
            self.expected["S0"].exists = True
        if self.kind == "interest":
            config = ConsumerConfig(durable_name=READER, ack_policy=AckPolicy.EXPLICIT)
            await account_of(jetstream).stream("S0").create_consumer(config, "")
            self.has_reader = True

    async def prepare(self, jetstream: JetStream) -> None:
        await self.create_first(jetstream)
        for number in range(1, STREAMS):
            await create(jetstream, f"S{number}", subjects=[f"S{number}.*"])
        await self.publish(jetstream)

    async def publish(self, jetstream: JetStream, count: int = PUBLISHED) -> None:
        """Publish `count` times one message to all streams at once."""
        streams = account_of(jetstream).streams
        for _ in range(count):
            self.number += 1
            names = [name for name in self.expected if name in streams and self.is_kept(name)]
            await asyncio.gather(*(self._publish(jetstream, name) for name in names))

    def is_kept(self, name: str) -> bool:
        """Return whether the stream keeps messages: an interest stream needs a consumer."""
        return self.kind != "interest" or name != "S0" or self.has_reader

    async def _publish(self, jetstream: JetStream, name: str) -> None:
        subject = f"{name}.{self.number % 2}"
        payload = f"{subject} {self.number} ".encode().ljust(200, b"x")
        self.expected[name].note(await publish(jetstream, subject, payload), payload)

    async def check(self, jetstream: JetStream, when: str, *, is_restarted: bool = False) -> None:
        account = account_of(jetstream)
        assert account.offline == {}, f"{when}: {account.offline}"
        for name, expected in self.expected.items():
            stream = account.streams.get(name)
            assert expected.exists == (stream is not None), f"{when}: is {name} there?"
            if stream is not None:
                found = await contents(stream)
                expected.check(found, when, is_restarted=is_restarted)
        first = account.streams.get("S0")
        if first is not None:
            assert ("C" in first.consumers) == self.has_consumer, f"{when}: is C there?"


async def contents(stream: Stream) -> dict[int, bytes]:
    assert isinstance(stream.store, FileStore)
    return {message.sequence: message.data for message in await everything(stream.store)}


@asynccontextmanager
async def started(disk: FaultyDisk, kind: str) -> AsyncIterator[JetStream]:
    """Yield a server on that disk. At the end its tasks are cancelled, but it is not stopped."""
    jetstream = build(ROOT, disk=disk, **KEY.get(kind, {}))
    account = Account(ACCOUNT, jetstream.reactor)
    try:
        await jetstream.start([account])
        yield jetstream
    finally:
        disk.is_off = True
        await end_other_tasks()
        jetstream.scheduler.close()
        jetstream.reactor.close()


@dataclass
class Outcome:
    """The result of one case.

    `was_reached` is false if fewer than `place` calls were made. `error` is the text of the error
    with which the operation was answered; empty: success.
    """

    was_reached: bool
    error: str = ""


async def fail_one_call(kind: str, operation: str, place: int, number: int) -> Outcome:
    """Run one case: call number `place` of the disk fails with errno `number`."""
    disk = FaultyDisk(seed=place)
    history = History(kind)
    outcome = Outcome(False)
    async with started(disk, kind) as jetstream:
        await history.prepare(jetstream)
        disk.fail(ANY_CALL, number, after=place - 1)
        await history.publish(jetstream, 2)
        try:
            await getattr(Operations(history, jetstream), operation)()
        except (ApiError, StoreError, OSError) as failure:
            outcome.error = str(failure)
        outcome.was_reached = disk.has_failed_one
        told = f"{kind}, {operation}, call {place}: {outcome.error or 'ok'}"
        await history.check(jetstream, f"{told}, after it")
        with contextlib.suppress(ApiError):
            await history.create_first(jetstream)  # creates only the missing parts
        await history.publish(jetstream)
        await history.check(jetstream, f"{told}, after more")
        killed = disk.kill()
        disk.is_off = False
        await jetstream.stop()
        stopped = disk.kill()
    ends = {"stopped": stopped, "killed": killed, "power": killed.crash(seed=place)}
    for end, after in ends.items():
        after.is_off = False
        async with started(after, kind) as jetstream:
            await history.check(jetstream, f"{told}, {end}", is_restarted=True)
            assert "seq" in await publish(jetstream, "S1.1", b"goes on")
            await jetstream.stop()  # a server that is not stopped keeps its memory
    return outcome
