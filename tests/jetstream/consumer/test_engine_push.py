"""Push delivery in the consumer engine."""

from __future__ import annotations

from natsd.jetstream.consumer.settings import EngineSettings
from natsd.store.consumer.consumer_state import AckPolicyCode
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench

MIB = 1 << 20


def push(**more: object) -> EngineSettings:
    settings = {
        "stream": "S",
        "deliver_subject": "deliver",
        "ack_policy": AckPolicyCode.NONE,
        **more,
    }
    return EngineSettings(**settings)  # type: ignore[arg-type]  # any fields


async def test_delivers_while_somebody_listens(bench: Bench) -> None:
    engine = bench.engine(push())
    bench.append("a", "b")
    assert await bench.take() == []
    listener = bench.listen("deliver")
    engine.set_push_interest(True)
    assert engine.is_active
    assert await bench.take_messages() == [(1, 1, 1, 1), (1, 2, 2, 0)]
    engine.set_push_interest(False)
    bench.sublist.remove(listener)
    bench.append("c")
    assert await bench.take() == []
    assert engine.num_pending == 1


async def test_one_of_a_deliver_group(bench: Bench) -> None:
    engine = bench.engine(push())
    for _ in range(3):
        bench.listen("deliver", "workers")
    engine.set_push_interest(True)
    bench.append(*"abcdef")
    assert [got.subject for got in await bench.take()] == list("abcdef")


async def test_what_nobody_takes_is_not_delivered(bench: Bench) -> None:
    """The engine expects interest, but there is none: delivery is retried later."""
    engine = bench.engine(push())
    engine.set_push_interest(True)
    bench.append("a")
    await bench.settle()
    assert engine.num_pending == 1
    bench.listen("deliver")
    engine.set_push_interest(True)
    assert await bench.take_messages() == [(1, 1, 1, 0)]


async def test_idle_heartbeats(bench: Bench) -> None:
    engine = bench.engine(push(idle_heartbeat_ns=SECOND_NS))
    bench.listen("deliver")
    await bench.advance(5)
    assert await bench.take() == []
    engine.set_push_interest(True)
    bench.append("a")
    assert len(await bench.take()) == 1
    await bench.advance(0.9)
    bench.append("b")
    assert len(await bench.take()) == 1
    await bench.advance(0.9)
    assert await bench.take() == []
    await bench.advance(0.2)
    assert (await bench.take())[0].headers == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    )
    await bench.advance(1.1)
    assert await bench.take_statuses() == ["100 Idle Heartbeat"]


async def test_flow_control(bench: Bench) -> None:
    """A request comes at half of the window; delivery stops at its end; an answer doubles it."""
    engine = bench.engine(push(flow_control=True, idle_heartbeat_ns=SECOND_NS))
    bench.listen("deliver")
    engine.set_push_interest(True)
    for _ in range(12):
        bench.append("a", data=b"x" * (MIB // 2))
    got = await bench.take()
    requests = [message for message in got if message.headers]
    assert len(got) - len(requests) == 4  # a window of 2 MiB
    (request,) = requests
    assert request.headers == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert got.index(request) == 2
    assert request.reply is not None and request.reply.startswith("$JS.FC.S.C.")
    await bench.advance(1.1)
    (heartbeat,) = await bench.take()
    assert f"\r\nNats-Consumer-Stalled: {request.reply}\r\n\r\n".encode() in heartbeat.headers
    bench.publish("$JS.FC.S.C.0000")
    assert await bench.take() == []
    bench.publish(request.reply)
    got = await bench.take()
    assert len([message for message in got if not message.headers]) > 4


async def test_acknowledged_by_flow_control(bench: Bench) -> None:
    """With ack policy `flow_control` the sequences in the answer's headers are acknowledged."""
    engine = bench.engine(
        push(
            ack_policy=AckPolicyCode.FLOW_CONTROL,
            flow_control=True,
            idle_heartbeat_ns=SECOND_NS,
            max_ack_pending=3,
        )
    )
    bench.listen("deliver")
    engine.set_push_interest(True)
    bench.append(*"abcde")
    got = await bench.take()
    assert [message.subject for message in got] == ["a", "b", "c", "deliver"]
    assert got[-1].reply is not None
    headers = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    bench.publish(got[-1].reply, b"", None, headers)
    assert [message.subject for message in await bench.take()] == ["d", "e", "deliver"]
    assert engine.num_ack_pending == 3


async def test_rate_limit(bench: Bench) -> None:
    """The rate is in bits per second, and the bucket is full at first."""
    engine = bench.engine(push(rate_limit_bps=8_000, rate_burst_bytes=2_000))
    bench.listen("deliver")
    engine.set_push_interest(True)
    for _ in range(6):
        bench.append("a", data=b"x" * 950)  # about 1,000 bytes with the subjects
    assert len(await bench.take()) == 2
    for _ in range(4):
        await bench.advance(1.01)
        assert len(await bench.take()) == 1


async def test_a_new_deliver_subject(bench: Bench) -> None:
    engine = bench.engine(push())
    bench.listen("deliver")
    bench.listen("elsewhere")
    engine.set_push_interest(True)
    bench.append("a")
    await bench.take()
    engine.configure(push(deliver_subject="elsewhere"))
    bench.append("b")
    assert len(await bench.take()) == 1
    assert engine.delivered().consumer == 2


async def test_ten_thousand_idle_consumers_cost_no_deadline(bench: Bench) -> None:
    for at in range(100):
        bench.engine(name=f"C{at}")
    await bench.settle()
    assert bench.scheduler.num_deadlines == 0
