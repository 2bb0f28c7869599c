"""Acknowledgements and redelivery in the consumer engine (ADR-15, nats-server's `processAck`)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.disk.real_disk import RealDisk
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Delivery
from tests.waiting import Eventually


def explicit(**more: object) -> EngineSettings:
    return EngineSettings(stream="S", **{"ack_wait_ns": 10 * SECOND_NS, **more})  # type: ignore[arg-type]  # a test's settings


async def fetch(bench: Bench, count: int, *subjects: str) -> list[Delivery]:
    bench.append(*subjects)
    bench.pull(b"%d" % count)
    got = [delivery for delivery in await bench.take() if delivery.reply]
    assert len(got) == count
    return got


def floor(engine: ConsumerEngine) -> tuple[int, int]:
    return engine.ack_floor().consumer, engine.ack_floor().stream


@pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK", b"+TERM", b"+TERM because", b"+NXT"])
async def test_acknowledged(bench: Bench, body: bytes) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    first, second, third = await fetch(bench, 3, *"abc")
    bench.ack(second, body)
    assert (engine.num_ack_pending, floor(engine)) == (2, (0, 0))
    bench.ack(first, body)
    assert (engine.num_ack_pending, floor(engine)) == (1, (2, 2))
    bench.ack(third, body)
    assert (engine.num_ack_pending, floor(engine)) == (0, (3, 3))
    await bench.advance(60)
    bench.pull(b"9")
    assert await bench.take() == []
    assert engine.last_ack_ns > 0


@pytest.mark.parametrize(
    ("body", "is_answered"),
    [
        (b"", True),
        (b"+ACK", True),
        (b"-NAK", True),
        (b"+WPI", True),
        (b"+TERM", True),
        (b"what?", True),
    ],
)
async def test_who_asks_for_an_answer_gets_one(
    bench: Bench, body: bytes, is_answered: bool
) -> None:
    bench.engine(explicit())
    bench.listen("inbox")
    bench.listen("answer")
    (message,) = await fetch(bench, 1, "a")
    bench.ack(message, body, "answer")
    answers = await bench.take()
    assert [(got.subject, got.headers, got.data) for got in answers] == [("answer", b"", b"")]
    bench.ack(message, body, "answer")  # the first answer may have been lost
    assert len(await bench.take()) == 1


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.S.C.1.99.1.5.0",  # never delivered
        "$JS.ACK.S.C.1.0.0.5.0",
        "$JS.ACK.S.C.1.x.y.5.0",
        "$JS.ACK.S.C.1." + "9" * 40 + ".1.5.0",
        "$JS.ACK.S.C.1.2.3",
        "$JS.ACK.S.C.X.Y.1.1.1.5.0",  # of eleven tokens: the names are elsewhere
        "$JS.ACK._.hash.S.C.1.99.1.5.0",
    ],
)
@pytest.mark.parametrize("body", [b"", b"+TERM", b"+NXT"])
async def test_forged(bench: Bench, subject: str, body: bytes) -> None:
    """A forged ack changes nothing and is not answered."""
    engine = bench.engine(explicit())
    bench.listen("inbox")
    bench.listen("answer")
    await fetch(bench, 2, "a", "b")
    before = engine.tracker.state()
    bench.publish(subject, body, "answer")
    assert [got for got in await bench.take() if got.reply is None] == []
    assert engine.tracker.state() == before
    assert bench.events.told == []


@pytest.mark.parametrize("body", [b"-NAK", b"+WPI", b'-NAK {"delay":1}', b"-NAK 1h"])
async def test_forged_numbers_of_what_is_pending(bench: Bench, body: bytes) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    await fetch(bench, 1, "a", "b")
    before = engine.tracker.state()
    for sequence, consumer in ((2, 1), (99, 1), (1, 99), (1, 0)):
        if body != b"+WPI" or sequence != 1:
            bench.publish(f"$JS.ACK.S.C.1.{sequence}.{consumer}.5.0", body)
    await bench.settle()
    assert engine.tracker.state() == before


async def test_the_second_form_of_the_subject(bench: Bench) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    await fetch(bench, 1, "a")
    bench.publish("$JS.ACK._.12345678.S.C.1.1.1.5.0")
    assert engine.num_ack_pending == 0


async def test_next(bench: Bench) -> None:
    """+NXT acknowledges and asks for the next message (ADR-15)."""
    engine = bench.engine(explicit())
    bench.listen("inbox")
    (message,) = await fetch(bench, 1, *"abcdef")
    bench.ack(message, b"+NXT", "inbox")
    (message,) = await bench.take()
    assert message.numbers[1] == 2
    bench.ack(message, b"+NXT 2", "inbox")
    messages = await bench.take()
    assert [got.numbers[1] for got in messages] == [3, 4]
    bench.ack(messages[0], b'+NXT {"batch":5,"no_wait":true}', "inbox")
    assert [got.subject for got in await bench.take()] == ["e", "f", "inbox"]
    assert engine.num_ack_pending == 3


async def test_acknowledge_all(bench: Bench) -> None:
    engine = bench.engine(explicit(ack_policy=AckPolicyCode.ALL))
    bench.listen("inbox")
    got = await fetch(bench, 5, *"abcde")
    bench.ack(got[2])
    assert (engine.num_ack_pending, floor(engine)) == (2, (3, 3))
    bench.ack(got[0])
    assert (engine.num_ack_pending, floor(engine)) == (2, (3, 3))
    await bench.advance(11)
    bench.pull(b"9")
    assert [message[:2] for message in await bench.take_messages()] == [(2, 4), (2, 5)]
    bench.ack(got[4])
    assert (engine.num_ack_pending, engine.num_redelivered) == (0, 0)


async def test_no_acknowledgement(bench: Bench) -> None:
    engine = bench.engine(explicit(ack_policy=AckPolicyCode.NONE))
    bench.listen("inbox")
    got = await fetch(bench, 2, "a", "b")
    assert (engine.num_ack_pending, floor(engine)) == (0, (2, 2))
    bench.ack(got[0], b"-NAK")
    await bench.advance(60)
    bench.pull(b"9")
    assert await bench.take() == []


async def test_redelivered_when_nobody_acknowledges(bench: Bench) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    await fetch(bench, 2, "a", "b", "c")
    await bench.advance(9.9)
    bench.pull(b'{"batch":9,"expires":60000000000}')
    assert await bench.take_messages() == [(1, 3, 3, 0)]
    await bench.advance(0.2)
    assert await bench.take_messages() == [(2, 1, 4, 0), (2, 2, 5, 0)]
    assert engine.num_redelivered == 2
    await bench.advance(10)
    assert await bench.take_messages() == [(3, 1, 6, 0), (3, 2, 7, 0), (2, 3, 8, 0)]
    assert (engine.num_ack_pending, engine.num_redelivered) == (3, 3)


async def test_redeliveries_before_anything_new(bench: Bench) -> None:
    bench.engine(explicit())
    bench.listen("inbox")
    first, second = await fetch(bench, 2, "a", "b", "c")
    bench.ack(second, b"-NAK")
    bench.ack(first, b"-NAK")
    bench.ack(first, b"-NAK")
    bench.pull(b"9")
    assert [message[:2] for message in await bench.take_messages()] == [(2, 2), (2, 1), (1, 3)]
    assert bench.events.told[0] == ("nacked", 2, 2, 1)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [(b'-NAK {"delay": 3000000000}', 3), (b"-NAK 3s", 3), (b"-NAK 25s", 25), (b"-NAK soon", 0)],
)
async def test_nak_with_a_delay(bench: Bench, body: bytes, seconds: float) -> None:
    bench.engine(explicit())
    bench.listen("inbox")
    (message,) = await fetch(bench, 1, "a")
    bench.pull(b"9")
    bench.ack(message, body)
    if seconds:
        await bench.advance(seconds - 0.1)
        assert await bench.take() == []
        await bench.advance(0.2)
    assert await bench.take_messages() == [(2, 1, 2, 0)]


@pytest.mark.parametrize("delay_ns", [2**63 - 1, -(2**63)])
async def test_absurd_delays(bench: Bench, delay_ns: int) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    (message,) = await fetch(bench, 1, "a")
    bench.ack(message, b'-NAK {"delay": %d}' % delay_ns)
    await bench.advance(1000)
    bench.pull()
    assert len(await bench.take()) == (delay_ns < 0)
    assert engine.num_ack_pending == 1


async def test_in_progress(bench: Bench) -> None:
    bench.engine(explicit())
    bench.listen("inbox")
    first, _ = await fetch(bench, 2, "a", "b")
    bench.pull(b"9")
    for _ in range(5):
        await bench.advance(5)
        bench.ack(first, b"+WPI")
    assert [message[:2] for message in await bench.take_messages()] == [(2, 2), (3, 2)]
    await bench.advance(10.1)
    assert [message[:2] for message in await bench.take_messages()] == [(2, 1), (4, 2)]


async def test_backoff(bench: Bench) -> None:
    """The last item of backoff repeats."""
    bench.engine(explicit(backoff_ns=(SECOND_NS, 3 * SECOND_NS)))
    bench.listen("inbox")
    await fetch(bench, 1, "a")
    bench.pull(b'{"batch":9}')
    for wait in (1, 3, 3):
        await bench.advance(wait - 0.1)
        assert await bench.take() == []
        await bench.advance(0.2)
        assert len(await bench.take()) == 1


async def test_a_shorter_wait_counts_at_once(bench: Bench) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    first, _ = await fetch(bench, 2, "a", "b")
    bench.ack(first, b"-NAK 5s")
    engine.configure(explicit(ack_wait_ns=SECOND_NS))
    bench.pull(b"9")
    await bench.advance(1.1)
    assert [message[:2] for message in await bench.take_messages()] == [(2, 1), (2, 2)]


async def test_max_deliver(bench: Bench) -> None:
    """It is reported once; the message is not pending, but interest retention keeps it."""
    engine = bench.engine(explicit(max_deliver=2))
    bench.listen("inbox")
    first, second = await fetch(bench, 2, "a", "b")
    bench.ack(second)
    await bench.advance(10.1)
    bench.pull(b"9")
    assert [message[:2] for message in await bench.take_messages()] == [(2, 1)]
    await bench.advance(10.1)
    assert bench.events.told == [("max_deliveries", 1, 2)]
    await bench.advance(100)
    assert await bench.take() == []
    assert bench.events.told == [("max_deliveries", 1, 2)]
    assert (engine.num_ack_pending, engine.num_redelivered) == (0, 1)
    assert floor(engine) == (3, 2)
    assert engine.is_needed(1)
    bench.ack(first)
    assert not engine.is_needed(1)


async def test_max_deliver_of_a_refused_message(bench: Bench) -> None:
    engine = bench.engine(explicit(max_deliver=1))
    bench.listen("inbox")
    (message,) = await fetch(bench, 1, "a")
    bench.ack(message, b"-NAK")
    bench.pull(b"9")
    assert await bench.take() == []
    assert engine.num_ack_pending == 0
    assert bench.events.told[-1] == ("max_deliveries", 1, 1)


async def test_max_ack_pending(bench: Bench) -> None:
    bench.engine(explicit(max_ack_pending=2))
    bench.listen("inbox")
    bench.append(*"abc")
    bench.pull(b"3")
    first, _ = await bench.take()
    bench.ack(first)
    assert [message[1] for message in await bench.take_messages()] == [3]


async def test_a_pending_message_that_is_removed(bench: Bench) -> None:
    """The removed message is terminated, and a stalled consumer goes on."""
    engine = bench.engine(explicit(max_ack_pending=2))
    filtered = bench.engine(explicit(max_ack_pending=2, filters=("a", "b", "c")), name="F")
    bench.listen("inbox")
    bench.append(*"abc")
    bench.pull(b"3")
    bench.pull(b"3", name="F")
    assert len(await bench.take()) == 4
    await bench.advance(1)
    await bench.store.delete(2)
    assert (engine.num_ack_pending, filtered.num_ack_pending) == (1, 1)
    assert bench.events.told == [("terminated", 2, 2, 1, "Unacknowledged message was deleted")] * 2
    bench.publish("$JS.ACK.S.C.1.1.1.5.0")
    got = await bench.take()
    assert [delivery.numbers[1] for delivery in got] == [3, 3]


@pytest.mark.parametrize("filters", [(), ("a", "b")])
async def test_purge(bench: Bench, filters: tuple[str, ...]) -> None:
    engine = bench.engine(explicit(filters=filters))
    bench.listen("inbox")
    await fetch(bench, 2, *"abab")
    await bench.store.purge()
    await bench.settle()
    assert (engine.num_ack_pending, engine.num_pending) == (0, 0)
    bench.append("a")
    bench.pull()
    assert await bench.take_messages() == [(1, 5, 3, 0)]


async def test_sampling(bench: Bench) -> None:
    bench.engine(explicit(sample_percent=100))
    bench.listen("inbox")
    first, second = await fetch(bench, 2, "a", "b")
    await bench.advance(1.5)
    bench.ack(first)
    bench.ack(first)
    bench.ack(second, b"+TERM")
    await bench.settle()
    assert bench.events.told == [
        ("sampled", 1, 1, 1, 1_500_000_000),
        ("terminated", 2, 2, 1, ""),
    ]


async def test_a_restart_keeps_deadlines(bench: Bench) -> None:
    engine = bench.engine(explicit())
    bench.listen("inbox")
    first, second, _ = await fetch(bench, 3, *"abcd")
    await bench.advance(4)
    bench.ack(first, b"+WPI")
    bench.ack(second)
    engine.stop()
    again = bench.engine(explicit(), name="D", start=4, store=engine_store(engine))
    bench.pull(b"9", name="D")
    assert [message[1] for message in await bench.take_messages()] == [4]
    await bench.advance(6.1)
    assert [message[:2] for message in await bench.take_messages()] == [(2, 3)]
    await bench.advance(4)
    assert [message[:2] for message in await bench.take_messages()] == [(2, 1), (2, 4)]
    assert again.num_ack_pending == 3


def engine_store(engine: ConsumerEngine) -> MemoryConsumerStore:
    store = MemoryConsumerStore(ConsumerOptions(AckPolicyCode.EXPLICIT))
    store.force_update(engine.tracker.state())
    return store


async def test_a_double_ack_waits_for_the_disk(
    bench: Bench, tmp_path: Path, eventually: Eventually
) -> None:
    """A double ack is committed at once; a plain ack with others, or after 100 ms."""
    volume = Volume.open(RealDisk(), tmp_path, os.urandom, loop=asyncio.get_running_loop())
    options = ConsumerOptions(AckPolicyCode.EXPLICIT)
    directory = tmp_path / "C"
    store = await ConsumerStore.create(volume, directory, options, os.urandom)
    engine = bench.engine(explicit(), store=store)
    bench.listen("inbox")
    bench.listen("answer")
    first, second = await fetch_many(bench, 2, "a", "b")
    assert store.durable_changes == 0
    bench.ack(first, b"", "answer")
    await eventually(lambda: bench.inbox)
    assert store.durable_changes == 3
    bench.ack(second)
    await eventually(lambda: bench.scheduler.num_queued == 0)
    assert store.durable_changes == 3
    bench.clock.now_ns += 200_000_000
    bench.scheduler._timer_over()  # type: ignore[attr-defined]  # as the loop's timer
    await eventually(lambda: store.durable_changes == 4)
    engine.stop()
    await store.close()
    await volume.close()


async def fetch_many(bench: Bench, count: int, *subjects: str) -> list[Delivery]:
    """Deliver `count` messages like `fetch`, while other tasks run."""
    bench.append(*subjects)
    bench.pull(b"%d" % count)
    while len(bench.inbox) < count:
        await bench.turn()
    got, bench.inbox = bench.inbox, []
    return got
