"""JetStream without sockets: one account, a clock that the test sets, and a lasting directory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.core.network import Reactor
from natsd.core.routing import Subscription
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.stream import Stream
from natsd.store.disk.disk import Disk

SECOND = 1_000_000_000


def found(directory: Path, pattern: str) -> list[Path]:
    """Return all paths below the directory that match the pattern.

    The server may remove directories meanwhile, on which `Path.rglob` fails before Python 3.13.
    """
    while True:
        with suppress(FileNotFoundError):
            return sorted(directory.rglob(pattern))


def wipe(path: Path) -> None:
    """Overwrite the file, or each file of the directory, with zeros."""
    for file in path.iterdir() if path.is_dir() else [path]:
        file.write_bytes(bytes(file.stat().st_size))


class Clock:
    """A wall clock in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


@dataclass
class Served:
    """JetStream, its account and clock, and the received messages."""

    jetstream: JetStream
    account: JetStreamAccount
    clock: Clock
    received: list[tuple[str, str | None, bytes, bytes]] = field(default_factory=list)

    async def stream(self, **fields: object) -> Stream:
        """Create or find a stream, S with a.> and b unless `fields` say otherwise."""
        given = {"name": "S", "subjects": ["a.>", "b"], "num_replicas": 1} | fields
        stream, _ = await self.account.create_stream(StreamConfig.model_validate(given))
        return stream

    async def consumer(self, stream: Stream, action: str = "", **fields: object) -> Consumer:
        """Create a consumer, C with explicit acks unless `fields` say otherwise."""
        given = {"durable_name": "C", "ack_policy": "explicit"} | fields
        return await stream.create_consumer(ConsumerConfig.model_validate(given), action)

    async def publish(self, *subjects: str) -> None:
        """Publish to each subject; the messages are durable on return."""
        for subject in subjects:
            answer = json.loads(await self.account.account.internal_client.request(subject, b"x"))
            assert "error" not in answer, answer

    def listen(self, subject: str, queue: str | None = None) -> Subscription:
        """Subscribe; messages to this subject go into `received`."""

        def note(subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
            self.received.append((subject, reply, headers, data))

        return self.account.account.internal_client.subscribe(subject, note, queue=queue)

    def ignore(self, subscription: Subscription) -> None:
        """Remove the subscription."""
        self.account.account.internal_client.unsubscribe(subscription)

    def ask(self, consumer: str, body: bytes = b"1", stream: str = "S") -> None:
        """Send a pull request with the reply `inbox`; a listener there fills `received`."""
        self.account.account.internal_client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, reply="inbox"
        )

    def acknowledge(self, reply: str | None, body: bytes = b"+ACK") -> None:
        assert reply is not None
        self.account.account.internal_client.publish(reply, body)


async def start(directory: Path, clock: Clock | None = None, disk: Disk | None = None) -> Served:
    """Start JetStream over the directory's files, with the account ACC."""
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
    """Start JetStream and stop it at the end; fail if any callback failed."""
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
