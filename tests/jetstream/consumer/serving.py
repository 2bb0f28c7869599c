"""A JetStream without sockets: one account, a clock that is set by hand, a directory that stays."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.core.reactor import Reactor
from natsd.core.subscription import Subscription
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.stream import Stream
from natsd.store.disk import Disk

SECOND = 1_000_000_000


def found(directory: Path, pattern: str) -> list[Path]:
    """What matches, anywhere below."""
    return sorted(directory.rglob(pattern))


def wipe(path: Path) -> None:
    """Zeros instead of everything that the file, or each file of the directory, says."""
    for file in path.iterdir() if path.is_dir() else [path]:
        file.write_bytes(bytes(file.stat().st_size))


class Clock:
    """Wall clock, in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


@dataclass
class Served:
    """What a test works with."""

    jetstream: JetStream
    account: JetStreamAccount
    clock: Clock
    received: list[tuple[str, str | None, bytes, bytes]] = field(default_factory=list)

    async def stream(self, **fields: object) -> Stream:
        """A stream S of a.> and b, unless told otherwise; made or found."""
        given = {"name": "S", "subjects": ["a.>", "b"], "num_replicas": 1} | fields
        stream, _ = await self.account.create_stream(StreamConfig.model_validate(given))
        return stream

    async def consumer(self, stream: Stream, action: str = "", **fields: object) -> Consumer:
        """A consumer C with explicit acks, unless told otherwise."""
        given = {"durable_name": "C", "ack_policy": "explicit"} | fields
        return await stream.create_consumer(ConsumerConfig.model_validate(given), action)

    async def publish(self, *subjects: str) -> None:
        """Store a message on each of these; returns once they are durable."""
        for subject in subjects:
            answer = json.loads(await self.account.account.internal_client.request(subject, b"x"))
            assert "error" not in answer, answer

    def listen(self, subject: str, queue: str | None = None) -> Subscription:
        """Messages to this subject go into `received`."""

        def note(subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
            self.received.append((subject, reply, headers, data))

        return self.account.account.internal_client.subscribe(subject, note, queue=queue)

    def ignore(self, subscription: Subscription) -> None:
        """Listen no more."""
        self.account.account.internal_client.unsubscribe(subscription)

    def ask(self, consumer: str, body: bytes = b"1", stream: str = "S") -> None:
        """Pull; what is delivered goes into `received` once `inbox` is listened to."""
        self.account.account.internal_client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, reply="inbox"
        )

    def acknowledge(self, reply: str | None, body: bytes = b"+ACK") -> None:
        assert reply is not None
        self.account.account.internal_client.publish(reply, body)


async def start(directory: Path, clock: Clock | None = None, disk: Disk | None = None) -> Served:
    """JetStream over what the directory holds, with the account ACC."""
    loop = asyncio.get_running_loop()

    def log_failure(text: str) -> None:
        loop.call_exception_handler({"message": text})

    reactor = Reactor(loop, log_failure)
    clock = clock or Clock()
    options = JetStreamOptions(
        enabled=True, store_dir=directory, max_memory_store=1 << 30, max_file_store=1 << 30
    )
    jetstream = JetStream(options, reactor, loop, clock=clock, disk=disk)
    await jetstream.start([Account("ACC", reactor)])
    return Served(jetstream, jetstream.accounts["ACC"], clock)


@asynccontextmanager
async def serving(
    directory: Path, clock: Clock | None = None, disk: Disk | None = None
) -> AsyncIterator[Served]:
    """The same, stopped at the end of the block; what failed inside of it is raised there."""
    failures: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: failures.append(str(context)))
    served = await start(directory, clock, disk)
    try:
        yield served
    finally:
        await served.jetstream.stop()
        served.account.account.close()
        served.jetstream.reactor.close()
        loop.set_exception_handler(None)
    assert failures == []
