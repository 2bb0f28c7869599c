"""The server dies at any call; its successor dies or serves; then the power fails (docs/store.md).

Everything that was acknowledged or shown is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import random
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.file_store import FileStore
from tests.jetstream.power import ROOT, run_until_off
from tests.jetstream.serving import account_of, create, serving
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import everything

pytestmark = pytest.mark.torture

CASES: Final = 6 * TORTURE
LAST_CALL: Final = 260
"""The last call at which a fault may come; the program below makes about as many calls."""
LAST_CALL_OF_START: Final = 90
TURNS_MAX: Final = 20_000
KEY: Final = "a key of thirty-two bytes, or so"

KINDS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "compressed": {"compression": "s2"},
    "encrypted": {},
    "interest": {"retention": "interest"},
    "workqueue": {"retention": "workqueue"},
    "small": {"max_bytes": 1500},
}
FAULTS: Final = [None, None, "fdatasync", "fsync", "sync_dir"]

_inboxes = itertools.count(1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that a stream of a few messages has several."""
    for name in ("SMALL", "MEDIUM", "LARGE", "ENCRYPTED"):
        monkeypatch.setattr(f"natsd.store.file_store.{name}_BLOCK_BYTES", 600)


@dataclass
class Known:
    """The acknowledged results, and the state that a server showed."""

    published: dict[int, bytes] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    """Sequences that a request wanted to remove or to acknowledge."""
    messages: dict[int, bytes] = field(default_factory=dict)
    last: int = 0
    consumer: ConsumerState | None = None

    async def note(self, jetstream: JetStream) -> None:
        stream = account_of(jetstream).streams.get("S")
        if stream is None:
            return
        assert isinstance(stream.store, FileStore)
        self.messages = {m.sequence: m.data for m in await everything(stream.store)}
        self.last = stream.store.state().last_sequence
        if "C" in stream.consumers:
            self.consumer = stream.consumers["C"].store.state()

    def check(self, found: Known, *, may_push_out: bool) -> None:
        acked = set(self.acked)
        if self.consumer is not None:
            upto = self.consumer.delivered.stream
            acked |= set(range(1, upto + 1)) - self.consumer.pending.keys()
        for known in (self.published, self.messages):
            for sequence, data in known.items():
                is_gone = sequence in acked | self.asked or may_push_out
                assert sequence in found.messages or is_gone, sequence
                assert found.messages.get(sequence, data) == data
        assert found.last >= max([self.last, *self.published])
        if self.acked or self.consumer is not None:
            assert found.consumer is not None
            assert not self.acked & found.consumer.pending.keys()
        if self.consumer is not None and found.consumer is not None:
            assert found.consumer.ack_floor.stream >= self.consumer.ack_floor.stream
            assert found.consumer.delivered.stream >= self.consumer.delivered.stream
            assert not found.consumer.pending.keys() & (acked - self.consumer.pending.keys())


class Failed(Exception):
    """The server answered with an error or not at all, because its disk had an error."""


async def ask(jetstream: JetStream, subject: str, payload: bytes, answers: int = 1) -> list[Any]:
    """Send a request and return the replies and payloads of `answers` answers."""
    client = account_of(jetstream).account.internal_client
    inbox = f"_INBOX.{next(_inboxes)}"
    received: list[tuple[str | None, bytes]] = []
    subscription = client.subscribe(
        inbox, lambda _subject, reply, _head, data: received.append((reply, data))
    )
    client.publish(subject, payload, reply=inbox)
    for _ in range(TURNS_MAX):
        if len(received) >= answers:
            break
        await asyncio.sleep(0)
    client.unsubscribe(subscription)
    if len(received) < answers or received[0][1].startswith(b'{"error"'):
        raise Failed
    return received


@dataclass
class Program:
    """A program that publishes, fetches, acknowledges and deletes, and notes the answers."""

    kind: str
    known: Known

    async def run(self, jetstream: JetStream) -> None:
        with contextlib.suppress(Failed, ApiError):
            stream = await create(jetstream, "S", subjects=["s.>"], **KINDS[self.kind])
            consumer = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
            await stream.create_consumer(consumer, "")
            for number in range(4):
                await self.publish(jetstream, 3)
                await self.acknowledge(jetstream, 2)
                if number == 2 and self.kind != "small":
                    await self.delete(jetstream)

    async def publish(self, jetstream: JetStream, count: int) -> None:
        for _ in range(count):
            data = f"{len(self.known.published)} ".encode() * 40
            (_, answer), *_ = await ask(jetstream, "s.x", data)
            said = json.loads(answer)
            if "error" in said:
                raise Failed
            self.known.published[said["seq"]] = data

    async def acknowledge(self, jetstream: JetStream, count: int) -> None:
        request = json.dumps({"batch": count, "no_wait": True}).encode()
        for reply, _ in await ask(jetstream, "$JS.API.CONSUMER.MSG.NEXT.S.C", request, count):
            if reply is None:
                raise Failed
            sequence = int(reply.split(".")[5])
            self.known.asked.add(sequence)
            await ask(jetstream, reply, b"+ACK")
            self.known.acked.add(sequence)

    async def delete(self, jetstream: JetStream) -> None:
        sequence = max(self.known.published) - 1
        self.known.asked.add(sequence)
        request = json.dumps({"seq": sequence}).encode()
        await ask(jetstream, "$JS.API.STREAM.MSG.DELETE.S", request)


@dataclass
class Show:
    """A program that notes the messages and the consumer's state."""

    known: Known

    async def run(self, jetstream: JetStream) -> None:
        assert account_of(jetstream).offline == {}
        await self.known.note(jetstream)


async def look(disk: FaultyDisk, options: dict[str, Any]) -> Known:
    found = Known()
    async with serving(ROOT, disk=disk, **options) as jetstream:
        assert account_of(jetstream).offline == {}
        stream = account_of(jetstream).streams.get("S")
        if stream is not None:
            assert isinstance(stream.store, FileStore)
            assert not [each for each in stream.store.damage if each.first_sequence]
        await found.note(jetstream)
    return found


def case(kind: str, number: int) -> None:
    chance = random.Random(f"{kind} {number}")
    options = {"key": KEY} if kind == "encrypted" else {}
    known = Known()
    disk = FaultyDisk(seed=number)
    disk.power_fails_at = chance.randrange(10, LAST_CALL)
    fault = chance.choice(FAULTS)
    if fault is not None:
        path = ".blk" if fault == "fdatasync" and chance.random() < 0.7 else ""
        disk.fail(fault, errno.EIO, path=path, after=chance.randrange(8, 40))
    run_one(disk, Program(kind, known), options)
    for _ in range(chance.randrange(3)):
        disk = disk.kill()
        disk.power_fails_at = chance.randrange(LAST_CALL_OF_START)
        run_one(disk, Show(known), options)
    disk = disk.kill()
    run_one(disk, Show(known), options)
    found = asyncio.run(look(disk.crash(seed=number), options))
    known.check(found, may_push_out=kind == "small")


def run_one(disk: FaultyDisk, program: Any, options: dict[str, Any]) -> None:
    async def run() -> None:
        await run_until_off(disk, program, options=options)

    asyncio.run(run())


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_was_acknowledged_or_shown_is_there(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):  # losses are logged as failures
        for number in range(CASES):
            case(kind, number)
