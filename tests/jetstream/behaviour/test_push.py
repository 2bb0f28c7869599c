"""Push consumers: delivery, interest, groups, heartbeats, flow control and replay."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import deliveries_of, pending_of, sequence_of, status_of
from tests.waiting import eventually_within


async def stream(api: Api, messages: int = 0, **config: Any) -> None:
    await api.create_stream("S", subjects=["s.*"], **config)
    for number in range(messages):
        await api.publish(f"s.{number}", b"%d" % (number + 1))


async def take(subscription: Subscription, count: int) -> list[Msg]:
    """Return the next `count` messages without statuses."""
    got: list[Msg] = []
    while len(got) < count:
        message = await subscription.next_msg(10)
        if status_of(message) is None:
            got.append(message)
    return got


async def sequences(subscription: Subscription, count: int) -> list[int]:
    return [sequence_of(message) for message in await take(subscription, count)]


async def test_all_then_new(api: Api) -> None:
    await stream(api, 3)
    listener = await api.nc.subscribe("d")
    info = await api.create_consumer("S", "C", deliver_subject="d")
    assert info["push_bound"] is True
    got = await take(listener, 3)
    assert [(m.subject, m.data) for m in got] == [("s.0", b"1"), ("s.1", b"2"), ("s.2", b"3")]
    assert [pending_of(m) for m in got] == [2, 1, 0]
    await api.publish("s.9", b"new")
    assert (await take(listener, 1))[0].data == b"new"


class TestInterest:
    async def test_waits_for_a_listener(self, api: Api) -> None:
        """Nothing is sent or counted as sent until a client subscribes."""
        await stream(api, 3)
        info = await api.create_consumer("S", "C", deliver_subject="d")
        assert "push_bound" not in info
        assert (await api.consumer_info("S", "C"))["delivered"]["stream_seq"] == 0
        listener = await api.nc.subscribe("d")
        assert await sequences(listener, 3) == [1, 2, 3]
        assert (await api.consumer_info("S", "C"))["push_bound"] is True

    async def test_a_wildcard_is_no_listener(self, api: Api) -> None:
        """A wildcard subscriber, such as `nats sub '>'`, does not count as a listener."""
        await stream(api, 3)
        await api.create_consumer("S", "C", deliver_subject="d.1")
        await api.nc.subscribe("d.*")
        await api.nc.flush()
        info = await api.consumer_info("S", "C")
        assert "push_bound" not in info
        assert info["num_pending"] == 3
        listener = await api.nc.subscribe("d.1")
        assert await sequences(listener, 3) == [1, 2, 3]

    async def test_pauses_while_nobody_listens(self, api: Api) -> None:
        await stream(api, 2)
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", ack_policy="none")
        assert await sequences(listener, 2) == [1, 2]
        await listener.unsubscribe()
        await api.nc.flush()
        await api.until_consumer("S", "C", push_bound=None)
        await api.fill("s.x", 3)
        assert (await api.consumer_info("S", "C"))["num_pending"] == 3
        listener = await api.nc.subscribe("d")
        assert await sequences(listener, 3) == [3, 4, 5]

    async def test_listener_of_another_connection_goes(
        self, api: Api, server: Any, connect: Connect
    ) -> None:
        await stream(api)
        other = await connect(server)
        await other.subscribe("d")
        await other.flush()
        await api.create_consumer("S", "C", deliver_subject="d")
        assert (await api.consumer_info("S", "C"))["push_bound"] is True
        await other.close()
        await api.until_consumer("S", "C", push_bound=None)

    async def test_ephemeral_goes_without_it(self, api: Api) -> None:
        """Without a listener for inactive_threshold an ephemeral consumer is deleted."""
        await stream(api)
        listener = await api.nc.subscribe("d")
        info = await api.create_consumer("S", "", deliver_subject="d", inactive_threshold=100 * MS)
        name = info["name"]
        assert len(name) == 8
        assert "durable_name" not in info["config"]
        assert (await api.ok("CONSUMER.NAMES.S"))["consumers"] == [name]
        await listener.unsubscribe()
        await api.until_consumers("S", 0)
        await api.fails(f"CONSUMER.INFO.S.{name}", 10014)


class TestGroups:
    async def test_shared(self, api: Api) -> None:
        """With deliver_group each message goes to one member."""
        await stream(api)
        members = [await api.nc.subscribe("d", queue="g") for _ in range(3)]
        await api.create_consumer("S", "C", deliver_subject="d", deliver_group="g")
        await api.fill("s.x", 60)
        await eventually_within(lambda: sum(member.pending_msgs for member in members) == 60)
        got = [await sequences(member, member.pending_msgs) for member in members]
        assert sorted(sequence for part in got for sequence in part) == list(range(1, 61))
        assert all(got)

    async def test_only_the_group_counts(self, api: Api) -> None:
        await stream(api, 1)
        plain = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", deliver_group="g")
        assert not (await api.consumer_info("S", "C")).get("push_bound")
        assert plain.pending_msgs == 0
        member = await api.nc.subscribe("d", queue="g")
        assert await sequences(member, 1) == [1]


class TestHeartbeats:
    async def test_while_idle(self, api: Api) -> None:
        """An idle heartbeat carries the last delivered sequences."""
        await stream(api, 2)
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", idle_heartbeat=100 * MS)
        await take(listener, 2)
        status = status_of(await listener.next_msg(5))
        assert status is not None
        assert status.line == "100 Idle Heartbeat"
        assert status.headers == {"Nats-Last-Consumer": "2", "Nats-Last-Stream": "2"}

    async def test_none_too_often(self, api: Api) -> None:
        await stream(api)
        await api.refuses_consumer("S", "C", 10083, deliver_subject="d", idle_heartbeat=99 * MS)


class TestFlowControl:
    async def test_asked_and_answered(self, api: Api) -> None:
        """A flow control request is sent in each window.

        Without an answer delivery stops, and heartbeats name the stalled request.
        """
        await stream(api, max_msg_size=-1)
        block = b"x" * 100_000
        inbox = api.nc.new_inbox()
        for _ in range(60):
            await api.nc.publish("s.x", block, reply=inbox)
        await api.until_messages("S", 60)
        listener = await api.nc.subscribe("d", pending_bytes_limit=-1)
        await api.create_consumer(
            "S",
            "C",
            deliver_subject="d",
            flow_control=True,
            idle_heartbeat=100 * MS,
            ack_policy="none",
        )
        sent, answers = 0, 0
        stalled = False
        while sent < 60:
            message = await listener.next_msg(10)
            status = status_of(message)
            if status is None:
                sent += 1
            elif status.text == "FlowControl Request":
                assert message.reply.startswith("$JS.FC.S.C.")
                if stalled:  # the first request is answered after its heartbeat has reported it
                    answers += 1
                    await api.nc.publish(message.reply)
            elif reply := status.headers.get("Nats-Consumer-Stalled"):
                assert sent < 60
                stalled = True
                answers += 1
                await api.nc.publish(reply)
        assert stalled
        assert answers > 1

    async def test_needs_heartbeats(self, api: Api) -> None:
        await stream(api)
        await api.refuses_consumer("S", "C", 10108, deliver_subject="d", flow_control=True)


class TestReplay:
    async def test_as_it_was_published(self, api: Api) -> None:
        """Replay `original` keeps the pauses between messages."""
        await stream(api)
        for pause_s in (0.0, 0.2, 0.0, 0.3):
            await asyncio.sleep(pause_s)
            await api.publish("s.x")
        listener = await api.nc.subscribe("d")
        start = time.monotonic()
        await api.create_consumer(
            "S", "C", deliver_subject="d", ack_policy="none", replay_policy="original"
        )
        assert await sequences(listener, 4) == [1, 2, 3, 4]
        assert time.monotonic() - start > 0.4

    async def test_rate_limit(self, api: Api) -> None:
        """rate_limit_bps limits bits per second, after a burst of the largest message."""
        await stream(api, max_msg_size=2000)
        await api.fill("s.x", 40, b"x" * 1000)
        listener = await api.nc.subscribe("d")
        start = time.monotonic()
        await api.create_consumer(
            "S", "C", deliver_subject="d", ack_policy="none", rate_limit_bps=8 * 40_000
        )
        await take(listener, 40)
        assert time.monotonic() - start > 0.3


class TestRedelivery:
    async def test_not_acknowledged(self, api: Api) -> None:
        await stream(api, 2)
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d")
        first, second = await take(listener, 2)
        await api.nc.publish(first.reply, b"+ACK")
        await api.create_consumer("S", "C", deliver_subject="d", ack_wait=100 * MS)
        again = (await take(listener, 1))[0]
        assert (sequence_of(again), deliveries_of(again)) == (sequence_of(second), 2)

    async def test_max_ack_pending(self, api: Api) -> None:
        await stream(api, 10)
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", max_ack_pending=4)
        messages = await take(listener, 4)
        await api.nc.flush()
        assert listener.pending_msgs == 0
        for message in messages:
            await api.nc.publish(message.reply)
        assert await sequences(listener, 4) == [5, 6, 7, 8]


class TestOrdered:
    async def test_everything_in_order(self, api: Api) -> None:
        """nats-py's ordered consumer: ephemeral, no acks, flow control, heartbeats (ADR-17)."""
        await stream(api)
        await api.fill("s.x", 300, b"x" * 100)
        subscription = await api.nc.jetstream().subscribe("s.*", ordered_consumer=True)
        got = [(await subscription.next_msg(10)).metadata.sequence.stream for _ in range(300)]
        assert got == list(range(1, 301))
        await api.publish("s.y", b"later")
        assert (await subscription.next_msg(10)).data == b"later"
        await subscription.unsubscribe()

    async def test_comes_back_after_its_consumer_was_deleted(self, api: Api) -> None:
        await stream(api, 2)
        subscription = await api.nc.jetstream().subscribe(
            "s.*", ordered_consumer=True, idle_heartbeat=0.2
        )
        for _ in range(2):
            await subscription.next_msg(5)
        info = await subscription.consumer_info()
        await api.ok(f"CONSUMER.DELETE.S.{info.name}")
        await api.publish("s.x", b"after")
        assert (await subscription.next_msg(20)).data == b"after"
        await subscription.unsubscribe()


class TestDeliverSubject:
    async def test_may_change_while_nobody_listens(self, api: Api) -> None:
        await stream(api, 1)
        listener = await api.nc.subscribe("d")
        await api.create_consumer("S", "C", deliver_subject="d", ack_policy="explicit")
        await api.nc.request((await take(listener, 1))[0].reply, b"+ACK", 5)
        await api.refuses_consumer("S", "C", 10013, deliver_subject="e")
        await listener.unsubscribe()
        await api.until_consumer("S", "C", push_bound=None)
        other = await api.nc.subscribe("e")
        await api.create_consumer("S", "C", deliver_subject="e")
        await api.publish("s.x", b"there")
        assert (await take(other, 1))[0].data == b"there"

    @pytest.mark.parametrize("subject", ["d.*", "d.>"])
    async def test_no_wildcards(self, api: Api, subject: str) -> None:
        await stream(api)
        await api.refuses_consumer("S", "C", 10079, deliver_subject=subject)

    async def test_no_cycle(self, api: Api) -> None:
        await stream(api)
        await api.refuses_consumer("S", "C", 10081, deliver_subject="s.1")


async def test_survives_a_restart(start_jetstream: StartJetStream, connect: Connect) -> None:
    """A durable push consumer resumes at its position as soon as a client subscribes."""
    api = Api(await connect(await start_jetstream()))
    await stream(api, 3, storage="file")
    listener = await api.nc.subscribe("d")
    await api.create_consumer("S", "C", deliver_subject="d", ack_wait=30 * SECOND)
    for message in await take(listener, 3):
        await api.nc.request(message.reply, b"+ACK", 5)
    api = Api(await connect(await start_jetstream()))
    await api.publish("s.x")
    listener = await api.nc.subscribe("d")
    assert await sequences(listener, 1) == [4]


async def test_headers_only(api: Api) -> None:
    """With headers_only a header carries the size, and the data is omitted."""
    await stream(api)
    await api.publish("s.1", b"0123456789", Mine="1")
    await api.publish("s.2", b"")
    listener = await api.nc.subscribe("d")
    await api.create_consumer("S", "C", deliver_subject="d", headers_only=True)
    first, second = await take(listener, 2)
    assert (first.data, first.headers) == (b"", {"Mine": "1", "Nats-Msg-Size": "10"})
    assert (second.data, second.headers) == (b"", {"Nats-Msg-Size": "0"})
