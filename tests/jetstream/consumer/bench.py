"""Consumer engines over a stream in memory, with a clock that the test sets, and inboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from natsd.core.network import AccountPublisher, CallbackSink, Reactor
from natsd.core.routing import SubList, Subscription
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.jetstream.stream.state import Scheduler, StreamReaders
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS, Clock

TURNS_MAX = 10_000


@dataclass(frozen=True)
class Delivery:
    """A received message, or a status if it has no ack subject."""

    subject: str
    reply: str | None
    headers: bytes
    data: bytes

    @property
    def status(self) -> str:
        """The status line, such as `404 No Messages`."""
        return self.headers.split(b"\r\n")[0].removeprefix(b"NATS/1.0 ").decode()

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """Deliveries, stream sequence, consumer sequence, time in ns, and pending messages."""
        assert self.reply is not None
        tokens = self.reply.split(".")
        assert tokens[:2] == ["$JS", "ACK"] and len(tokens) == 9
        deliveries, sequence, consumer, time_ns, pending = map(int, tokens[4:])
        return deliveries, sequence, consumer, time_ns, pending


@dataclass
class Events:
    """The events that the engines reported."""

    told: list[tuple[object, ...]] = field(default_factory=list)

    def sampled(
        self, sequence: int, consumer_sequence: int, deliveries: int, ack_time_ns: int
    ) -> None:
        self.told.append(("sampled", sequence, consumer_sequence, deliveries, ack_time_ns))

    def max_deliveries(self, sequence: int, deliveries: int) -> None:
        self.told.append(("max_deliveries", sequence, deliveries))

    def nacked(self, sequence: int, consumer_sequence: int, deliveries: int) -> None:
        self.told.append(("nacked", sequence, consumer_sequence, deliveries))

    def terminated(
        self, sequence: int, consumer_sequence: int, deliveries: int, reason: str
    ) -> None:
        self.told.append(("terminated", sequence, consumer_sequence, deliveries, reason))

    def pinned(self, group: str, pin_id: str) -> None:
        self.told.append(("pinned", group, pin_id))

    def unpinned(self, group: str, reason: str) -> None:
        self.told.append(("unpinned", group, reason))


class Bench:
    """One stream `S`, engines on it, and inboxes. Time passes only in `advance`."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.failures: list[str] = []
        self.clock = Clock()
        self.reactor = Reactor(asyncio.get_running_loop(), self.failures.append)
        self.scheduler = Scheduler(self.reactor, self.clock)
        self.sublist = SubList()
        self.publisher = AccountPublisher(self.reactor, self.sublist)
        self.store = MemStore(limits or Limits())
        self.readers = StreamReaders("S", self.store, self.publisher, self.scheduler)
        self.readers.allow_removals(True)
        self.events = Events()
        self.inbox: list[Delivery] = []
        self.engines: list[ConsumerEngine] = []

    def engine(
        self,
        settings: EngineSettings | None = None,
        *,
        name: str = "C",
        start: int = 1,
        last_per_subject: Sequence[int] | None = None,
        store: ConsumerStore | MemoryConsumerStore | None = None,
        begin: bool = True,
    ) -> ConsumerEngine:
        """Return a started engine that is subscribed to its subjects."""
        settings = settings or EngineSettings(stream="S")
        if store is None:
            options = ConsumerOptions(AckPolicyCode(settings.ack_policy), settings.max_deliver)
            store = MemoryConsumerStore(options)
            store.set_starting_sequence(start - 1)
        engine = ConsumerEngine(self.readers, name, settings, store, self.events)
        for subject, sink in (
            (f"$JS.ACK.S.{name}.>", engine.inbox.ack_sink),
            (f"$JS.ACK.*.*.S.{name}.>", engine.inbox.ack_sink),
            (f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", engine.inbox.pull_sink),
            (f"$JS.FC.S.{name}.*", engine.inbox.flow_control_sink),
        ):
            self.sublist.insert(Subscription(subject, sink=sink))
        self.engines.append(engine)
        if begin:
            engine.start(start, last_per_subject)
        return engine

    def listen(self, subject: str, queue: str | None = None) -> Subscription:
        def heard(subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
            self.inbox.append(Delivery(subject, reply, headers, data))

        return self.listen_with(subject, heard, queue)

    def listen_with(
        self,
        subject: str,
        heard: Callable[[str, str | None, bytes, bytes], None],
        queue: str | None = None,
    ) -> Subscription:
        listener = Subscription(subject, queue, sink=CallbackSink(self.reactor, heard))
        self.sublist.insert(listener)
        return listener

    def append(self, *subjects: str, data: bytes = b"x", headers: bytes | None = None) -> int:
        """Store a durable message on each subject and return the last sequence."""
        for subject in subjects:
            self.store.append(subject, headers, data, self.clock.now_ns)
        self.readers.durable(self.store.durable_sequence)
        return self.store.durable_sequence

    def publish(
        self, subject: str, data: bytes = b"", reply: str | None = None, headers: bytes = b""
    ) -> int:
        return self.publisher.publish(
            subject.encode(), data, None if reply is None else reply.encode(), headers
        )

    def pull(self, body: bytes = b"", name: str = "C", reply: str = "inbox") -> None:
        assert self.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, reply)

    async def turn(self) -> None:
        """Let the loop make one turn, in which written messages are received."""
        await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let the loop run until no task or job has work."""
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not self.scheduler.num_queued and not self._is_busy():
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if not self.scheduler.num_queued:
                    assert self.failures == []
                    return
        raise AssertionError("it never comes to rest")

    def _is_busy(self) -> bool:
        return any(task is not asyncio.current_task() for task in asyncio.all_tasks())

    async def advance(self, seconds: float) -> None:
        """Set the clock forward; deadlines are served at its end."""
        self.clock.now_ns += round(seconds * SECOND_NS)
        self.scheduler._timer_over()  # type: ignore[attr-defined]  # as the loop's timer
        await self.settle()

    async def take(self) -> list[Delivery]:
        """Return the messages and statuses that have arrived since the last call."""
        await self.settle()
        taken, self.inbox = self.inbox, []
        return taken

    async def take_messages(self) -> list[tuple[int, int, int, int]]:
        """Return (deliveries, stream sequence, consumer sequence, pending) of the messages."""
        return [
            (numbers[0], numbers[1], numbers[2], numbers[4])
            for numbers in (got.numbers for got in await self.take() if got.reply)
        ]

    async def take_statuses(self) -> list[str]:
        return [got.status for got in await self.take() if not got.reply]

    def ack(self, delivery: Delivery, body: bytes = b"", reply: str | None = None) -> None:
        assert delivery.reply is not None
        self.publish(delivery.reply, body, reply)

    def close(self) -> None:
        for engine in self.engines:
            engine.stop()
        self.readers.close()
        self.scheduler.close()
        self.reactor.close()
