"""Random programs with keys: one message of a key at a time, in order, none lost or miscounted.

Deliveries are checked against plain sets; the engine may choose the order among keys.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.errors import StoreFull
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Delivery

SUBJECTS = ("k.a.1", "k.a.2", "k.b.1", "k.c", "k", "other.d.1", "k.b.1")
# Repeated entries are chosen more often.
OPERATIONS = (
    *("append",) * 4,
    *("pull",) * 3,
    *("ack",) * 5,
    *("time",) * 2,
    "remove",
    "restart",
    "purge",
    "recount",
)


def key_of(subject: str) -> str:
    """Return the subject's second token, or a dot and the subject if it has one token."""
    tokens = subject.split(".")
    return tokens[1] if len(tokens) > 1 else "." + subject


@dataclass
class Model:
    """The stored, unread and pending messages."""

    filters: tuple[str, ...]
    messages: dict[int, str] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    pending: dict[int, int] = field(default_factory=dict)  # sequence -> deliveries
    last: int = 0

    def append(self, subject: str) -> None:
        self.last += 1
        self.messages[self.last] = subject
        if not self.filters or any(matches(subject, wanted) for wanted in self.filters):
            self.unread.add(self.last)

    def remove(self, sequence: int) -> None:
        self.messages.pop(sequence, None)
        self.unread.discard(sequence)
        self.pending.pop(sequence, None)

    def busy(self) -> set[str]:
        return {key_of(self.messages[sequence]) for sequence in self.pending}

    def delivered(self, sequence: int, deliveries: int) -> None:
        if deliveries > 1:
            assert self.pending[sequence] == deliveries - 1
        else:
            key = key_of(self.messages[sequence])
            assert sequence in self.unread, "twice as the first time"
            assert key not in self.busy(), "two of one key"
            earlier = {other for other in self.unread if other < sequence}
            assert key not in {key_of(self.messages[other]) for other in earlier}, "out of order"
            self.unread.discard(sequence)
        self.pending[sequence] = deliveries

    def deliverable(self) -> list[int]:
        busy = self.busy()
        return [other for other in self.unread if key_of(self.messages[other]) not in busy]


class Both:
    """The engine and the model, side by side."""

    def __init__(self, consumer: EngineSettings, per_subject: int) -> None:
        self.bench = Bench(Limits(max_msgs_per_subject=per_subject or -1))
        self.per_subject = per_subject
        self.settings = consumer
        self.model = Model(consumer.filters)
        self.delivered: list[Delivery] = []
        self.starts = 0
        self.store = self.new_store()
        self.engine = self.start()
        self.bench.listen("inbox")

    def new_store(self) -> MemoryConsumerStore:
        return MemoryConsumerStore(
            ConsumerOptions(AckPolicyCode.EXPLICIT, self.settings.max_deliver)
        )

    def start(self) -> ConsumerEngine:
        self.starts += 1
        first = self.store.tracker.delivered_stream + 1
        return self.bench.engine(
            self.settings, name=f"C{self.starts}", start=first, store=self.store
        )

    async def do(self, operation: tuple[str, int, int]) -> None:
        name, a, b = operation
        bench, model = self.bench, self.model
        if name == "append":
            for number in range(1 + b % 4):
                subject = SUBJECTS[(a + number * b) % len(SUBJECTS)]
                bench.append(subject)
                model.append(subject)
        elif name == "pull":
            bench.pull(b"%d" % (1 + a % 5), name=self.engine.name)
        elif name == "ack" and self.delivered:
            word = ("+ACK", "+ACK", "-NAK", "+WPI", "+TERM", "-NAK 2s")[b % 6]
            message = self.delivered[-1 - a % min(len(self.delivered), 8)]
            tokens = (message.reply or "").split(".")
            tokens[3] = self.engine.name
            bench.publish(".".join(tokens), word.encode())
            if word in ("+ACK", "+TERM"):
                model.pending.pop(message.numbers[1], None)
        elif name == "time":
            await bench.advance(a % 15)
        elif name == "remove" and model.last:
            await bench.store.delete(1 + a % model.last)
        elif name == "purge" and model.last:
            await bench.store.purge(up_to_sequence=1 + a % model.last)
        elif name == "restart":
            self.engine.stop()
            state = self.store.state()
            self.store = self.new_store()
            self.store.force_update(state)
            self.engine = self.start()
        elif name == "recount":
            bench.readers.failed(StoreFull())
        await self.compare()

    async def compare(self) -> None:
        model = self.model
        for sequence in [s for s in model.messages if not self.bench.store.log.has(s)]:
            model.remove(sequence)
        got = await self.bench.take()
        if self.settings.max_deliver:
            self.give_up()
        for message in got:
            if message.reply:
                self.delivered.append(message)
                model.delivered(message.numbers[1], message.numbers[0])
        num_ack_pending = self.engine.num_ack_pending  # compares pending messages with the stream
        await self.bench.settle()
        assert num_ack_pending == len(model.pending)
        assert self.engine.num_pending == len(model.unread)
        state = self.store.state()
        state.validate()
        assert set(state.pending) == set(model.pending)
        kept = {*model.pending, *model.unread}
        assert state.ack_floor.stream < min(kept, default=state.ack_floor.stream + 1)
        for sequence in model.messages:
            if sequence in model.unread:
                assert self.engine.is_needed(sequence)
        is_full = 0 < self.settings.max_ack_pending <= len(model.pending)
        waiting = len(model.unread)
        if self.engine.num_waiting and not is_full and waiting < self.settings.key_look_ahead:
            assert model.deliverable() == []

    def give_up(self) -> None:
        """Note messages that have reached max_deliver when their ack wait is over."""
        pending = self.store.state().pending
        for sequence, deliveries in list(self.model.pending.items()):
            if deliveries >= self.settings.max_deliver and sequence not in pending:
                del self.model.pending[sequence]


operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 60), st.integers(0, 60)),
    min_size=25,
    max_size=70,
)
consumers = st.builds(
    EngineSettings,
    stream=st.just("S"),
    ack_wait_ns=st.just(10 * SECOND_NS),
    max_deliver=st.sampled_from([0, 0, 2]),
    max_ack_pending=st.sampled_from([0, 0, 3]),
    filters=st.sampled_from([(), ("k.>",), ("k.*", "k.b.*"), ("k.a.*",)]),
    key_token=st.just(2),
    key_look_ahead=st.sampled_from([2, 1000]),
)


@settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
@given(consumers, st.sampled_from([0, 0, 2]), operations)
def test_any_program(
    consumer: EngineSettings, per_subject: int, program: list[tuple[str, int, int]]
) -> None:
    async def run() -> None:
        both = Both(consumer, per_subject)
        try:
            for operation in program:
                await both.do(operation)
            await finish(both)
        finally:
            both.bench.close()

    asyncio.run(run())


async def finish(both: Both) -> None:
    """Consume until everything is acknowledged."""
    for _ in range(400):
        if not both.model.unread and not both.model.pending:
            break
        both.bench.pull(b"10", name=both.engine.name)
        await both.compare()
        for sequence in list(both.model.pending):
            message = next(m for m in reversed(both.delivered) if m.numbers[1] == sequence)
            tokens = (message.reply or "").split(".")
            tokens[3] = both.engine.name
            both.bench.publish(".".join(tokens), b"+ACK")
            del both.model.pending[sequence]
        await both.compare()
    state = both.store.state()
    assert both.model.unread == set() and state.pending == {} and not state.held
    assert state.ack_floor == state.delivered
