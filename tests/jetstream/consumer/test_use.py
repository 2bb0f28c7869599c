"""The use of a consumer: listeners, pauses, and the deletion of an unused one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from natsd.jetstream.models.times import parse_time
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.consumer.serving import SECOND, Served, found, serving
from tests.waiting import Eventually


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


@pytest.fixture
async def stream(served: Served) -> Stream:
    return await served.stream()


# Listeners


async def test_a_push_consumer_is_bound_while_somebody_listens(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    consumer = await served.consumer(stream, deliver_subject="d.x")
    await served.publish("b")
    assert not consumer.info().push_bound
    listener = served.listen("d.x")
    assert consumer.info().push_bound
    await eventually(lambda: len(served.received) == 1)
    served.ignore(listener)
    assert not consumer.info().push_bound
    await served.publish("b")
    assert len(served.received) == 1
    served.listen("d.x")
    await eventually(lambda: len(served.received) == 2)


async def test_a_deliver_group_is_listened_to_by_its_members(
    served: Served, stream: Stream
) -> None:
    consumer = await served.consumer(stream, deliver_subject="d.x", deliver_group="g")
    served.listen("d.x")
    served.listen("d.x", queue="other")
    assert not consumer.info().push_bound
    served.listen("d.x", queue="g")
    assert consumer.info().push_bound


async def test_a_listener_may_come_before_the_consumer(served: Served, stream: Stream) -> None:
    served.listen("d.x")
    consumer = await served.consumer(stream, deliver_subject="d.x")
    assert consumer.info().push_bound


# Disuse


async def test_an_ephemeral_push_consumer_goes_with_its_listener(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    listener = served.listen("d.x")
    consumer = await served.consumer(stream, durable_name="", deliver_subject="d.x")
    served.clock.advance(60)
    await served.publish("b")
    assert consumer.name in stream.consumers
    served.ignore(listener)
    served.clock.advance(4.9)
    await served.publish("b")
    assert consumer.name in stream.consumers
    served.clock.advance(1.2)
    await eventually(lambda: not found(stream.directory, "obs/*"))
    assert not stream.consumers


async def test_a_listener_that_comes_back_saves_it(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    consumer = await served.consumer(stream, durable_name="", deliver_subject="d.x")
    other = await served.consumer(stream, durable_name="", deliver_subject="d.y")
    served.listen("d.x")
    served.clock.advance(60)
    await eventually(lambda: other.name not in stream.consumers)
    assert consumer.name in stream.consumers


async def test_a_pull_consumer_goes_when_nobody_asks(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    used = await served.consumer(stream, durable_name="U", inactive_threshold=10 * SECOND)
    unused = await served.consumer(stream, durable_name="C", inactive_threshold=10 * SECOND)
    forever = await served.consumer(stream, durable_name="F")
    served.clock.advance(9)
    served.listen("inbox")
    served.ask("U", b'{"no_wait":true}')
    await eventually(lambda: served.received)
    served.clock.advance(3)
    await eventually(lambda: unused.name not in stream.consumers)
    assert set(stream.consumers) == {used.name, forever.name}
    served.clock.advance(12)
    await eventually(lambda: set(stream.consumers) == {forever.name})


async def test_an_ephemeral_consumer_comes_back_and_goes_then(
    tmp_path: Path, eventually: Eventually
) -> None:
    async with serving(tmp_path) as served:
        clock = served.clock
        consumer = await served.consumer(await served.stream(), durable_name="")
    clock.advance(3600)
    async with serving(tmp_path, clock) as served:
        stream = await served.stream()
        assert set(stream.consumers) == {consumer.name}
        clock.advance(7)
        await eventually(lambda: not stream.consumers)


# Pauses


async def test_a_paused_consumer_delivers_when_the_pause_is_over(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    consumer = await served.consumer(stream, deliver_subject="d.x")
    served.listen("d.x")
    answer = await consumer.pause(served.clock() + 10 * SECOND)
    assert (answer.paused, answer.pause_remaining) == (True, 10 * SECOND)
    assert consumer.config.metadata["_nats.req.level"] == "1"
    await served.publish("b")
    served.clock.advance(4)
    info = consumer.info()
    assert (info.paused, info.pause_remaining) == (True, 6 * SECOND)
    assert not served.received
    served.clock.advance(6)
    await eventually(lambda: served.received)
    assert not consumer.info().paused


async def test_a_pause_is_ended_by_one_in_the_past(
    served: Served, stream: Stream, eventually: Eventually
) -> None:
    consumer = await served.consumer(stream, deliver_subject="d.x")
    served.listen("d.x")
    await consumer.pause(served.clock() + 10 * SECOND)
    await served.publish("b")
    answer = await consumer.pause(0)
    assert (answer.paused, answer.pause_until, answer.pause_remaining) == (False, 0, 0)
    await eventually(lambda: served.received)


async def test_a_pause_outlives_a_restart_and_an_update(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        clock = served.clock
        stream = await served.stream()
        consumer = await served.consumer(stream)
        await consumer.pause(clock() + 10 * SECOND)
        await served.consumer(stream, description="new")
        assert consumer.info().paused
    clock.advance(1)
    async with serving(tmp_path, clock) as served:
        consumer = (await served.stream()).consumer("C")
        info = consumer.info()
        assert (info.paused, info.pause_remaining) == (True, 9 * SECOND)
        assert consumer.config.description == "new"
        assert consumer.engine.paused_until_ns == parse_time(info.ts) + 9 * SECOND
