"""Acknowledgements: any subject and any body, sent to a consumer with pending messages.

Input: a subject and a body, separated by the first 0xFF. An acknowledgement changes at most the
message that its subject names, or with the policy ALL also those before it; the state stays valid;
a repeated acknowledgement changes nothing.
"""

from natsd.core.network import AccountPublisher, Reactor
from natsd.core.routing import SubList, Subscription
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.requests import nak_delay, parse_ack
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.jetstream.stream.state import Scheduler, StreamReaders
from natsd.store.consumer.consumer_state import (
    AckPolicyCode,
    ConsumerOptions,
    ConsumerState,
    Pending,
)
from natsd.store.consumer.consumer_state import SequencePair as Pair
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.fuzz.fuzz_connection import Loop, failed
from tests.jetstream.consumer.bench import Events

MODULES = [
    "natsd.jetstream.consumer.requests",
    "natsd.jetstream.consumer.delivery",
    "natsd.jetstream.consumer.delivery",
]
LEAD = b"$JS.ACK.S.C."
SEEDS = [
    b"1.3.3.1700000000000000000.5\xff",
    b"1.3.3.1700000000000000000.5\xff+ACK",
    b"1.4.4.17.5\xff-NAK",
    b'1.4.4.17.5\xff-NAK {"delay": 5000000000}',
    b"1.4.4.17.5\xff-NAK 1m30s",
    b"1.2.2.17.5\xff+WPI",
    b"2.2.7.17.5\xff+TERM because",
    b'1.5.5.17.5\xff+NXT {"batch":5,"expires":1000000000}',
    b"1.99999999999999999999.5.17.5\xff",
    b"1.-3.x.17.5\xff",
    b"S.C.1.3.3.17.5\xff",
    b"1.8.8.17.5\xff+OK",
]
STATE = ConsumerState(
    Pair(8, 8),
    Pair(1, 1),
    {sequence: Pending(sequence, 10**18 + sequence) for sequence in (2, 3, 4, 5, 7, 8)},
    {2: 1, 6: 2},
)


class Consumer:
    """A consumer with the state STATE, and the messages of that state."""

    def __init__(self, policy: AckPolicyCode) -> None:
        reactor = Reactor(Loop(), failed)  # type: ignore[arg-type]  # the needed part of a loop
        self.scheduler = Scheduler(reactor, lambda: 2 * 10**18)
        self.sublist = SubList()
        self.publisher = AccountPublisher(reactor, self.sublist)
        store = MemStore(Limits())
        for at in range(9):
            store.append(f"s.{at}", None, b"x", 10**18 + at)
        core = StreamReaders("S", store, self.publisher, self.scheduler)
        self.store = MemoryConsumerStore(ConsumerOptions(policy))
        self.events = Events()
        settings = EngineSettings(stream="S", ack_policy=policy)
        self.engine = ConsumerEngine(core, "C", settings, self.store, self.events)
        self.sublist.insert(Subscription("$JS.ACK.S.C.>", sink=self.engine.inbox.ack_sink))

    def begin(self) -> None:
        self.engine.stop()
        self.events.told.clear()
        self.store.force_update(STATE)
        self.engine.start(9)

    def say(self, subject: bytes, body: bytes) -> ConsumerState:
        self.publisher.publish(subject, body, b"answer")
        state = self.store.state()
        state.validate()
        return state


CONSUMERS = [Consumer(AckPolicyCode.EXPLICIT), Consumer(AckPolicyCode.ALL)]


def check(data: bytes) -> None:
    tail, _, body = data.partition(b"\xff")
    subject = LEAD + tail
    parsed = parse_ack(subject, body)
    nak_delay(body)
    if any(byte <= 32 for byte in tail) or b".." in subject or subject.endswith(b"."):
        return  # such a subject cannot be published
    for consumer in CONSUMERS:
        consumer.begin()
        after = consumer.say(subject, body)
        changed = {
            sequence
            for sequence in {*STATE.pending, *STATE.redelivered}
            if STATE.pending.get(sequence) != after.pending.get(sequence)
            or STATE.redelivered.get(sequence) != after.redelivered.get(sequence)
        }
        assert set(after.pending) <= set(STATE.pending)
        assert after.delivered == STATE.delivered
        named = None if parsed is None else parsed[4]
        if consumer is CONSUMERS[0] or parsed is None:
            assert changed <= {named}
        else:
            assert all(named is not None and sequence <= named for sequence in changed)
        if parsed is not None and parsed[0] in ("ack", "term"):
            assert consumer.say(subject, body) == after
