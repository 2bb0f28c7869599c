"""`Nats-Delay` on a stream that allows schedules (docs/delayed-messages.md); not in nats-server."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.jetstream.behaviour.api import SECOND, Api, Json, soon
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.test_schedules import STORAGE, last_of, until

pytestmark = pytest.mark.natsd_only


async def create(api: Api, **config: Any) -> Json:
    settings = {"subjects": ["s.>"], "allow_msg_schedules": True, **config}
    return await api.create_stream("S", **settings)


async def subjects(api: Api) -> Json:
    state = await api.stream_state("S", subjects_filter=">")
    found: Json = state.get("subjects", {})
    return found


@STORAGE
async def test_it_is_seen_when_it_is_time(api: Api, storage: str) -> None:
    """Until its time the message is not in the stream; the acknowledged sequence is used up."""
    await create(api, storage=storage)
    ack = await api.publish("s.a", b"later", Nats_Delay="300ms", Colour="blue")
    assert ack["seq"] == 1
    state = await api.stream_state("S")
    assert (state["messages"], state["last_seq"]) == (0, 1)
    await api.fails("STREAM.MSG.GET.S", 10037, {"seq": 1})
    await api.publish("s.a", b"now")
    found = await soon(lambda: last_with(api, "s.a", b"later"))
    assert found["lines"] == ["Colour: blue", "Nats-Delayed: S 1"]
    assert found["seq"] == 3
    assert (await api.stream_state("S"))["messages"] == 2


async def last_with(api: Api, subject: str, data: bytes) -> Json | None:
    found = await last_of(api, subject)
    return found if found is not None and found["payload"] == data else None


@STORAGE
async def test_any_number_of_one_subject_in_the_order_of_their_times(
    api: Api, storage: str
) -> None:
    """Messages with the same time come in the order of their sequences."""
    await create(api, storage=storage)
    then = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()
    late = (datetime.now(UTC) + timedelta(seconds=0.6)).isoformat()
    await api.publish("s.a", b"last", Nats_Delay=late)
    hundred = [b"%d" % number for number in range(100)]
    await asyncio.gather(*(api.publish("s.a", each, Nats_Delay=then) for each in hundred))
    await api.publish("s.a", b"first", Nats_Delay="1ns")
    await soon(lambda: last_with(api, "s.a", b"last"))
    seen = [await api.ok("STREAM.MSG.GET.S", {"seq": sequence}) for sequence in range(103, 205)]
    assert [payload(each) for each in seen] == [b"first", *hundred, b"last"]


def payload(found: Json) -> bytes:
    return base64.b64decode(found["message"].get("data", ""))


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
async def test_consumers_know_nothing_of_it(api: Api, retention: str) -> None:
    await create(api, retention=retention, storage="file")
    await api.create_consumer("S", "C")
    await api.publish("s.a", b"now")
    await api.publish("s.a", b"later", Nats_Delay="500ms")
    assert (await api.consumer_info("S", "C"))["num_pending"] == 1
    js = api.nc.jetstream()
    work = await js.pull_subscribe_bind("C", "S")
    for expected in (b"now", b"later"):
        (message,) = await work.fetch(1, timeout=5)
        assert message.data == expected
        await message.ack_sync()
    left = 2 if retention == "limits" else 0
    assert (await api.until_messages("S", left))["messages"] == left


async def test_limits_do_not_push_it_out(api: Api) -> None:
    """A waiting message does not count; when it is published, it is the newest."""
    await create(api, max_msgs_per_subject=1, max_msgs=2)
    await api.publish("s.a", b"later", Nats_Delay="300ms")
    await api.publish("s.a", b"later too", Nats_Delay="400ms")
    await api.fill("s.b", 5)
    await soon(lambda: last_with(api, "s.a", b"later too"))
    assert await subjects(api) == {"s.a": 1, "s.b": 1}


async def test_its_lifetime_begins_when_it_is_seen(api: Api) -> None:
    await create(api, allow_msg_ttl=True, max_age=2 * SECOND)
    await api.publish("s.a", Nats_Delay="1100ms", Nats_TTL="1s")
    await api.until_messages("S", 1)
    await api.until_messages("S", 0)


async def test_a_message_id_is_known_at_once(api: Api) -> None:
    await create(api)
    first = await api.publish("s.a", Nats_Delay="200ms", Nats_Msg_Id="1")
    again = await api.publish("s.a", Nats_Delay="200ms", Nats_Msg_Id="1")
    assert (again["seq"], again["duplicate"]) == (first["seq"], True)
    await until(api, "s.a")
    assert (await api.publish("s.a", Nats_Msg_Id="1"))["duplicate"]


async def test_what_is_expected_is_looked_at_when_it_is_published(api: Api) -> None:
    await create(api)
    await api.publish("s.a")
    await api.refuses_publish("s.a", 10071, Nats_Delay="1s", Nats_Expected_Last_Sequence="7")
    await api.publish("s.a", Nats_Delay="1ns", Nats_Expected_Last_Subject_Sequence="1")
    await api.until_messages("S", 2)


async def test_a_rollup_waits_as_well(api: Api) -> None:
    await create(api)
    await api.fill("s.a", 3)
    await api.publish("s.a", b"all", Nats_Delay="200ms", Nats_Rollup="sub")
    assert await subjects(api) == {"s.a": 3}
    await soon(lambda: last_with(api, "s.a", b"all"))
    assert await subjects(api) == {"s.a": 1}


async def test_taken_back_by_its_sequence(api: Api) -> None:
    await create(api, storage="file")
    ack = await api.publish("s.a", Nats_Delay="1h")
    await api.ok("STREAM.MSG.DELETE.S", {"seq": ack["seq"]})
    await api.fails("STREAM.MSG.DELETE.S", 10057, {"seq": ack["seq"]})


async def test_taken_back_by_a_purge(api: Api) -> None:
    """A purge of its subject or of all removes it; a purge with `keep` does not."""
    await create(api, storage="file")
    for subject in ("s.a", "s.b", "s.c"):
        await api.publish(subject, Nats_Delay="700ms")
    assert (await api.ok("STREAM.PURGE.S", {"filter": "s.a"}))["purged"] == 1
    assert (await api.ok("STREAM.PURGE.S", {"filter": "s.b", "keep": 1}))["purged"] == 0
    await until(api, "s.c")
    assert await subjects(api) == {"s.b": 1, "s.c": 1}


async def test_a_subject_is_mapped_once(api: Api) -> None:
    await create(api, subject_transform={"src": "s.>", "dest": "s.x.>"})
    await api.publish("s.a", Nats_Delay="1ns")
    await until(api, "s.x.a")


REFUSED = ["", "0s", "-5s", "soon", "5", "2030-01-01"]


@pytest.mark.parametrize("text", REFUSED)
async def test_nothing_that_could_be_meant(api: Api, text: str) -> None:
    await create(api)
    await api.refuses_publish("s.a", 10189, Nats_Delay=text)
    assert (await api.stream_state("S"))["last_seq"] == 0


async def test_refused(api: Api) -> None:
    await create(api, max_msg_size=200, max_bytes=1000, storage="file")
    plan: dict[str, Any] = {"Nats_Schedule": "@hourly", "Nats_Schedule_Target": "s.b"}
    await api.refuses_publish("s.a", 10189, b"", Nats_Delay="1s", **plan)
    await api.refuses_publish("s.a", 10165, Nats_Delay="1s", Nats_TTL="soon")
    await api.refuses_publish("s.a", 10054, b"x" * 190, Nats_Delay="1h")
    for _ in range(5):
        await api.publish("s.a", b"x" * 100, Nats_Delay="1h")
    await api.refuses_publish("s.a", 10167, b"x" * 100, Nats_Delay="1h")
    await api.create_stream("T")
    await api.refuses_publish("t", 10188, Nats_Delay="1s")


async def test_it_counts_for_the_account(api: Api) -> None:
    await create(api, storage="file")
    await api.publish("s.a", b"x" * 1000, Nats_Delay="1h")
    assert (await api.ok("INFO"))["storage"] > 1000
    await api.ok("STREAM.DELETE.S")
    assert (await api.ok("INFO"))["storage"] == 0


async def test_after_a_stop(start_jetstream: StartJetStream, connect: Connect) -> None:
    """Messages that became due meanwhile come at once, the others at their time."""
    api = Api(await connect(await start_jetstream()))
    await create(api, storage="file")
    first = await api.publish("s.a", b"1", Nats_Delay="200ms", Nats_Msg_Id="1")
    await api.publish("s.b", b"2", Nats_Delay="1h")
    await api.nc.close()
    api = Api(await connect(await start_jetstream()))
    assert (await api.publish("s.a", Nats_Msg_Id="1"))["seq"] == first["seq"]
    await until(api, "s.a")
    assert await subjects(api) == {"s.a": 1}
    assert (await api.ok("STREAM.PURGE.S", {"filter": "s.b"}))["purged"] == 1
