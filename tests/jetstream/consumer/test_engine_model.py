"""Random programs against a plain model: order, redelivery and pending messages always agree."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Delivery

TICK_NS = 20_000_000
SUBJECTS = ("a", "b.1", "b.2", "c")
# Repeated entries are chosen more often.
OPERATIONS = (
    *("append",) * 3,
    *("pull",) * 3,
    *("ack",) * 4,
    *("time",) * 2,
    "remove",
    "restart",
    "purge",
)
Got = tuple[int, int, int, int]  # deliveries, stream sequence, consumer sequence, pending


@dataclass
class Waiting:
    """A pending message."""

    deliveries: int
    due_ns: int


@dataclass
class Model:
    """A plain model of one stream and one consumer with explicit acks, in dicts."""

    settings: EngineSettings
    per_subject: int
    messages: dict[int, str] = field(default_factory=dict)
    last: int = 0
    next: int = 1
    consumer_sequence: int = 0
    pending: dict[int, Waiting] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)
    demand: int = 0
    now_ns: int = 0

    def append(self, subject: str) -> None:
        self.last += 1
        self.messages[self.last] = subject
        same = [sequence for sequence, other in self.messages.items() if other == subject]
        if self.per_subject and len(same) > self.per_subject:
            self.remove(same[0])

    def remove(self, sequence: int) -> None:
        self.messages.pop(sequence, None)
        self.pending.pop(sequence, None)

    def wait_ns(self, deliveries: int) -> int:
        backoff = self.settings.backoff_ns
        if not backoff:
            return self.settings.ack_wait_ns
        return backoff[min(deliveries, len(backoff)) - 1]

    def num_pending(self) -> int:
        return len(self.matching())

    def matching(self) -> list[int]:
        filters = self.settings.filters or (">",)
        return [
            sequence
            for sequence, subject in sorted(self.messages.items())
            if sequence >= self.next and any(matches(subject, wanted) for wanted in filters)
        ]

    def ack(self, sequence: int, word: str) -> None:
        if sequence not in self.pending:
            return
        waiting = self.pending[sequence]
        if word in ("+ACK", "+TERM"):
            del self.pending[sequence]
        elif word == "-NAK" and sequence not in self.queue:
            self.queue.append(sequence)
        elif word == "+WPI":
            waiting.due_ns = self.now_ns + self.wait_ns(waiting.deliveries)
        elif word.startswith("-NAK "):
            if sequence in self.queue:
                self.queue.remove(sequence)
            waiting.due_ns = self.now_ns + int(word[5:-1]) * SECOND_NS

    def restart(self) -> None:
        self.queue, self.demand = [], 0

    def pump(self) -> list[Got]:
        """Return the messages that are delivered now."""
        most = self.settings.max_deliver
        self.queue = [sequence for sequence in self.queue if sequence in self.pending]
        for sequence in sorted(self.pending):
            waiting = self.pending[sequence]
            if waiting.due_ns <= self.now_ns and sequence not in self.queue:
                if most and waiting.deliveries >= most:
                    del self.pending[sequence]
                else:
                    self.queue.append(sequence)
        got: list[Got] = []
        while self.demand:
            delivered = self.deliver()
            if delivered is None:
                break
            got.append(delivered)
        return got

    def deliver(self) -> Got | None:
        while self.queue:
            sequence = self.queue.pop(0)
            if 0 < self.settings.max_deliver <= self.pending[sequence].deliveries:
                del self.pending[sequence]
                continue
            return self.send(sequence, self.pending[sequence].deliveries + 1)
        if 0 < self.settings.max_ack_pending <= len(self.pending):
            return None
        matching = self.matching()
        if not matching:
            return None
        self.next = matching[0] + 1
        return self.send(matching[0], 1)

    def send(self, sequence: int, deliveries: int) -> Got:
        self.consumer_sequence += 1
        self.demand -= 1
        due_ns = self.now_ns + self.wait_ns(deliveries)
        self.pending[sequence] = Waiting(deliveries, due_ns)
        return deliveries, sequence, self.consumer_sequence, self.num_pending()


class Both:
    """The engine and the model, side by side."""

    def __init__(self, consumer: EngineSettings, per_subject: int) -> None:
        self.bench = Bench(Limits(max_msgs_per_subject=per_subject or -1))
        options = ConsumerOptions(AckPolicyCode.EXPLICIT, consumer.max_deliver)
        self.store = MemoryConsumerStore(options)
        self.model = Model(consumer, per_subject, now_ns=self.bench.clock.now_ns)
        self.settings = consumer
        self.starts = 0
        self.delivered: list[Delivery] = []
        self.wanted: list[Got] = []
        self.engine = self.start()
        self.bench.listen("inbox")

    def start(self) -> ConsumerEngine:
        self.starts += 1
        first = self.store.tracker.delivered_stream + 1
        return self.bench.engine(
            self.settings, name=f"C{self.starts}", start=first, store=self.store
        )

    async def do(self, operation: tuple[str, int, int]) -> None:
        name, a, b = operation
        bench, model = self.bench, self.model
        await self.pass_time(TICK_NS)
        if name == "append":
            for _ in range(1 + b % 3):
                subject = SUBJECTS[(a + b) % len(SUBJECTS)]
                bench.append(subject)
                model.append(subject)
                b += 1
        elif name == "pull":
            bench.pull(b"%d" % (1 + a % 5), name=self.engine.name)
            model.demand += 1 + a % 5
        elif name == "ack" and self.delivered:
            word = ("+ACK", "-NAK", "+WPI", "+TERM", "-NAK 2s", "-NAK 30s")[b % 6]
            message = self.delivered[a % len(self.delivered)]
            sequence = message.numbers[1]
            tokens = (message.reply or "").split(".")
            tokens[3] = self.engine.name
            bench.publish(".".join(tokens), word.encode())
            model.ack(sequence, word)
        elif name == "time":
            await self.pass_time((a % 15) * SECOND_NS)
        elif name == "remove" and model.last:
            await bench.store.delete(1 + a % model.last)
            model.remove(1 + a % model.last)
        elif name == "purge" and model.last:
            upto = 1 + a % model.last
            await bench.store.purge(up_to_sequence=upto)
            for sequence in range(1, upto):
                model.remove(sequence)
        elif name == "restart":
            self.engine.stop()
            self.engine = self.start()
            model.restart()
        await self.compare()

    async def pass_time(self, span_ns: int) -> None:
        await self.bench.advance(span_ns / SECOND_NS)
        self.model.now_ns = self.bench.clock.now_ns
        self.wanted += self.model.pump()

    async def compare(self) -> None:
        _ = self.engine.num_ack_pending  # compares pending messages with the stream
        await self.bench.settle()
        self.wanted += self.model.pump()
        await self.pass_time(TICK_NS)
        wanted, self.wanted = self.wanted, []
        got = await self.bench.take()
        self.delivered += got
        numbers = [(n[0], n[1], n[2], n[4]) for n in (message.numbers for message in got)]
        assert numbers == wanted
        assert self.engine.num_pending == self.model.num_pending()
        state = self.engine.tracker.state()
        assert {sequence: 1 + state.redelivered.get(sequence, 0) for sequence in state.pending} == {
            sequence: waiting.deliveries for sequence, waiting in self.model.pending.items()
        }
        assert self.engine.num_ack_pending == len(self.model.pending)
        state.validate()


operations = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    min_size=25,
    max_size=60,
)
consumers = st.builds(
    EngineSettings,
    stream=st.just("S"),
    ack_wait_ns=st.just(10 * SECOND_NS),
    backoff_ns=st.sampled_from([(), (3 * SECOND_NS, 12 * SECOND_NS)]),
    max_deliver=st.sampled_from([0, 1, 3]),
    max_ack_pending=st.sampled_from([0, 3]),
    filters=st.sampled_from([(), ("a",), ("b.*",), ("a", "b.*", "c")]),
)


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(consumers, st.sampled_from([0, 0, 2]), operations)
def test_any_program(
    consumer: EngineSettings, per_subject: int, program: list[tuple[str, int, int]]
) -> None:
    async def run() -> None:
        both = Both(replace(consumer), per_subject)
        try:
            for operation in program:
                await both.do(operation)
        finally:
            both.bench.close()

    asyncio.run(run())
