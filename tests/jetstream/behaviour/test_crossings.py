"""Combinations of two features on one stream or consumer; each alone is tested elsewhere."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from nats.aio.client import Client

from tests.jetstream.behaviour import test_atomic_batches as atomic
from tests.jetstream.behaviour import test_fast_batches as fast
from tests.jetstream.behaviour.api import SECOND, Api, Json, soon
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.copies import data_of, headers_of, messages, until_last
from tests.jetstream.behaviour.puller import Puller, sequence_of
from tests.jetstream.behaviour.transfer import restore, take

natsd_only = pytest.mark.natsd_only

KEYED: dict[str, Any] = {"metadata": {"natsd.key_token": "2"}}
DEAD: dict[str, Any] = {"metadata": {"natsd.dead_letter_subject": "dead.letters"}}


async def consumer(api: Api, stream: str = "S", **config: Any) -> Puller:
    await api.create_consumer(
        stream, "C", **{"durable_name": "C", "ack_policy": "explicit", **config}
    )
    return await Puller.of(api.nc, stream, "C")


class TestDelays:
    @natsd_only
    async def test_none_in_an_atomic_batch(self, api: Api, nc: Client) -> None:
        await atomic.create(api, allow_msg_schedules=True)
        batch = atomic.Batch(nc)
        await batch.put("s.1")
        await batch.fails(10177, "s.2", Nats_Delay="1ms")
        assert (await api.stream_state("S"))["last_seq"] == 0

    @natsd_only
    @fast.STORAGE
    async def test_in_a_fast_batch(self, api: Api, nc: Client, storage: str) -> None:
        """Delayed messages are counted, and acknowledged when they are on disk."""
        await fast.create(api, allow_msg_schedules=True, storage=storage)
        batch = await fast.begin(nc)
        await batch.start()
        await batch.send(fast.APPEND, "s.2", b"later", Nats_Delay="300ms")
        await batch.send(fast.COMMIT, "s.3", b"now")
        answer = await batch.heard()
        while "type" in answer:
            answer = await batch.heard()
        assert (answer["seq"], answer["count"]) == (3, 3)
        assert [each["subject"] for each in await messages(api, "S")] == ["s.1", "s.3"]
        await api.until_messages("S", 3)
        assert [each["subject"] for each in await messages(api, "S")] == ["s.1", "s.3", "s.2"]

    @natsd_only
    async def test_a_mirror_has_them_when_they_are_published(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"], allow_msg_schedules=True)
        await api.create_stream("M", subjects=[], mirror={"name": "S"})
        await api.publish("s.1", b"later", Nats_Delay="300ms")
        await api.publish("s.1", b"now")
        await until_last(api, "M", 3)
        assert await messages(api, "M") == await messages(api, "S")
        assert [data_of(each) for each in await messages(api, "M")] == [b"now", b"later"]


class TestPromotion:
    async def test_what_a_mirror_took_over_is_scheduled(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"], allow_msg_schedules=True)
        await api.create_stream("M", subjects=[], mirror={"name": "S"})
        await api.publish(
            "s.plan",
            Nats_Schedule="@at 2100-01-01T00:00:00Z",
            Nats_Schedule_Target="s.never",
        )
        await api.publish("s.plan2", b"p", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.out")
        await until_last(api, "M", 2)
        await api.ok("STREAM.DELETE.S")
        updated = await api.update_stream("M", subjects=["s.>"], allow_msg_schedules=True)
        assert updated["config"]["metadata"]["_nats.req.level"] == "2"

        async def produced() -> Json | None:
            state = await api.stream_state("M", subjects_filter="s.out")
            return state if state.get("subjects") else None

        await soon(produced)
        assert "s.never" not in (await api.stream_state("M", subjects_filter=">"))["subjects"]

    @natsd_only
    async def test_it_holds_messages_back(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"])
        await api.create_stream("M", subjects=[], mirror={"name": "S"})
        await api.ok("STREAM.DELETE.S")
        await api.update_stream("M", subjects=["s.>"], allow_msg_schedules=True)
        await api.publish("s.1", b"later", Nats_Delay="50ms")
        await api.until_messages("M", 1)


class TestCopies:
    async def test_of_atomic_batches(self, api: Api, nc: Client) -> None:
        """Each message of a batch is copied like any other; messages of refused batches are not."""
        await atomic.create(api)
        await api.create_stream("M", subjects=[], mirror={"name": "S"})
        await api.create_stream("T", subjects=[], sources=[{"name": "S"}], allow_atomic=True)
        batch = atomic.Batch(nc)
        for number in range(3):
            await batch.put(f"s.{number}", b"x")
        assert (await batch.commit("s.3"))["count"] == 4
        other = atomic.Batch(nc, "other")
        await other.put("s.4")
        assert "error" in await other.commit("s.5", Nats_Expected_Last_Sequence="77")
        await until_last(api, "M", 4)
        await until_last(api, "T", 4)
        assert [each["subject"] for each in await messages(api, "M")] == [
            f"s.{number}" for number in range(4)
        ]
        assert headers_of((await messages(api, "M"))[0]) == []
        assert headers_of((await messages(api, "T"))[0]) == ["Nats-Stream-Source: S 1 > > s.0"]

    async def test_of_delete_markers(self, api: Api) -> None:
        """A mirror copies delete markers and makes none of its own."""
        await api.create_stream(
            "S",
            subjects=["s.>"],
            allow_msg_ttl=True,
            subject_delete_marker_ttl=60 * SECOND,
            max_age=1 * SECOND,
        )
        await api.create_stream("M", subjects=[], mirror={"name": "S"}, allow_msg_ttl=True)
        await api.publish("s.1", b"x")
        await until_last(api, "M", 2)
        assert (await messages(api, "M"))[-1:] == (await messages(api, "S"))[-1:]
        assert "Nats-Marker-Reason: MaxAge" in headers_of((await messages(api, "M"))[-1])


class TestCounters:
    async def test_a_batch_after_a_restart(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        """The totals that a batch adds to are found in blocks that are not in memory."""
        api = Api(await connect(await start_jetstream()))
        config = {"allow_msg_counter": True, "storage": "file"}
        await atomic.create(api, **config)
        for number in range(1, 4):
            await api.publish(f"s.{number}", Nats_Incr=f"+{number}")
        nc = await connect(await start_jetstream())
        api = Api(nc)
        batch = atomic.Batch(nc)
        await batch.put("s.1", Nats_Incr="+10")
        await batch.put("s.2", Nats_Incr="+10")
        await batch.put("s.1", Nats_Incr="+10")
        answer = await batch.commit("s.3", Nats_Incr="+10")
        assert "error" not in answer
        values = {each["subject"]: data_of(each) for each in await messages(api, "S")}
        assert values == {"s.1": b'{"val":"21"}', "s.2": b'{"val":"12"}', "s.3": b'{"val":"13"}'}

    async def test_no_schedules(self, api: Api) -> None:
        """Counters and schedules exclude each other, so nothing is scheduled into a counter."""
        await api.refuses_stream(
            "S", 10052, subjects=["s"], allow_msg_counter=True, allow_msg_schedules=True
        )
        await api.create_stream("S", subjects=["s.>"], allow_msg_counter=True)
        await api.refuses_publish(
            "s.a", 10188, Nats_Incr="1", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.b"
        )


@natsd_only
class TestKeys:
    async def test_a_reset_forgets_who_waits(self, api: Api) -> None:
        await api.create_stream("S", subjects=["k.>"])
        for subject in ("k.a", "k.a", "k.b", "k.a"):
            await api.publish(subject, b"x")
        puller = await consumer(api, **KEYED)
        await puller.ask(b"10")
        assert await puller.sequences(2) == [1, 3]
        assert (await api.ok("CONSUMER.RESET.S.C"))["reset_seq"] == 1
        first, second = await puller.messages(2)
        await first.ack_sync()
        await second.ack_sync()
        [third] = await puller.messages(1)
        await third.ack_sync()
        assert await puller.sequences(1) == [4]
        await puller.nothing()

    async def test_a_reset_of_one_that_begins_with_the_last_of_each_subject(self, api: Api) -> None:
        """No message is delivered twice."""
        await api.create_stream("S", subjects=["k.>"])
        for subject in ("k.a.1", "k.a.2", "k.b.1"):
            await api.publish(subject, b"x")
        last = {"deliver_policy": "last_per_subject", "filter_subject": "k.>"}
        puller = await consumer(api, **KEYED, **last)
        await puller.ask(b"10")
        assert await puller.sequences(2) == [1, 3]
        assert (await api.ok("CONSUMER.RESET.S.C"))["num_pending"] == 3
        first, second = await puller.messages(2)
        await first.ack_sync()
        await second.ack_sync()
        [third] = await puller.messages(1)
        assert (await api.consumer_info("S", "C"))["num_pending"] == 0
        await third.ack_sync()
        await puller.nothing()
        assert (await api.consumer_info("S", "C"))["ack_floor"]["stream_seq"] == 3

    async def test_what_waits_is_in_a_snapshot(self, api: Api) -> None:
        await api.create_stream("S", subjects=["k.>"], storage="file")
        for subject in ("k.a", "k.a", "k.b", "k.a"):
            await api.publish(subject, b"x")
        puller = await consumer(api, **KEYED)
        await puller.ask(b"2")
        [first, _] = await puller.messages(2)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        assert "error" not in await restore(api, "S", snapshot)
        info = await api.consumer_info("S", "C")
        assert (info["num_pending"], info["num_ack_pending"]) == (2, 2)
        await puller.ask(b"10")
        await first.ack_sync()
        second = await puller.message()
        assert sequence_of(second) == 2
        await second.ack_sync()
        assert await puller.sequences(1) == [4]


@natsd_only
class TestDeadLetters:
    async def test_a_reset_owes_nothing(self, api: Api) -> None:
        """After a reset, a terminated message that could not be copied is delivered again."""
        await api.create_stream("DEAD", subjects=["dead.>"])
        await api.create_stream("S", subjects=["s"])
        await api.publish("s", b"x")
        puller = await consumer(api, **DEAD)
        await api.ok("STREAM.DELETE.DEAD")
        await puller.ask(b"1")
        await (await puller.message()).term()
        await api.until_consumer("S", "C", num_ack_pending=1)
        assert (await api.ok("CONSUMER.RESET.S.C"))["num_ack_pending"] == 0
        await puller.ask(b"1")
        again = await puller.message()
        await again.ack_sync()
        await api.create_stream("DEAD", subjects=["dead.>"])
        await api.until_consumer("S", "C", num_ack_pending=0)
        assert (await api.stream_state("DEAD"))["messages"] == 0

    async def test_on_a_mirror(self, api: Api) -> None:
        await api.create_stream("DEAD", subjects=["dead.>"])
        await api.create_stream("S", subjects=["s"])
        await api.create_stream("M", subjects=[], mirror={"name": "S"})
        await api.publish("s", b"x")
        await until_last(api, "M", 1)
        puller = await consumer(api, "M", **DEAD)
        await puller.ask(b"1")
        await (await puller.message()).term()
        await api.until_messages("DEAD", 1)
        [letter] = await messages(api, "DEAD")
        assert "Nats-Dead-Letter-Stream: M" in headers_of(letter)
        assert base64.b64decode(letter["data"]) == b"x"
        await api.until_consumer("M", "C", num_ack_pending=0)

    async def test_what_is_owed_is_in_a_snapshot(self, api: Api) -> None:
        await api.create_stream("DEAD", subjects=["dead.>"])
        await api.create_stream("S", subjects=["s"], storage="file")
        await api.publish("s", b"x")
        puller = await consumer(api, **DEAD, ack_wait=3600 * SECOND)
        await api.ok("STREAM.DELETE.DEAD")
        await puller.ask(b"1")
        await (await puller.message()).term()
        await puller.nc.flush()
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await api.create_stream("DEAD", subjects=["dead.>"])
        assert "error" not in await restore(api, "S", snapshot)
        await api.until_messages("DEAD", 1)
        await api.until_consumer("S", "C", num_ack_pending=0)

    async def test_of_a_key(self, api: Api) -> None:
        """The next message of the key waits until the dead letter is stored."""
        await api.create_stream("DEAD", subjects=["dead.>"])
        await api.create_stream("S", subjects=["k.>"])
        for _ in range(2):
            await api.publish("k.a", b"x")
        puller = await consumer(api, metadata=KEYED["metadata"] | DEAD["metadata"])
        await puller.ask(b"2")
        await (await puller.message()).term()
        assert await puller.sequences(1) == [2]
        assert (await api.stream_state("DEAD"))["messages"] == 1


@natsd_only  # nats-server transforms the subject of a marker again
async def test_a_marker_is_where_its_message_was(api: Api) -> None:
    """A marker has the subject of its message, although the stream transforms subjects."""
    await api.create_stream(
        "S",
        subjects=["s.>"],
        subject_transform={"src": ">", "dest": "x.>"},
        allow_msg_ttl=True,
        subject_delete_marker_ttl=1 * SECOND,
    )
    await api.publish("s.1", b"x", Nats_TTL="1s")

    async def replaced() -> Json | None:
        state = await api.stream_state("S", subjects_filter=">")
        return state if state["last_seq"] > 1 else None

    assert (await soon(replaced))["subjects"] == {"x.s.1": 1}
