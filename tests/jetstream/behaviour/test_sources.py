"""Streams with sources (nats-server's `setupSourceConsumer`)."""

from __future__ import annotations

import pytest

from tests.jetstream.behaviour.api import Api, Json
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.copies import (
    data_of,
    headers_of,
    message,
    messages,
    until_info,
    until_last,
)


async def collect(api: Api, *sources: Json, **settings: object) -> None:
    """Create the stream S with these sources."""
    await api.create_stream("S", **{"subjects": [], "sources": list(sources), **settings})


async def data(api: Api, stream: str) -> list[bytes]:
    return [data_of(each) for each in await messages(api, stream)]


async def test_it_says_where_it_is_from(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    await api.publish("o.a", b"1")
    await api.publish("o.b", b"2", X="y")
    await collect(api, {"name": "O"})
    await until_last(api, "S", 2)
    first, second = await messages(api, "S")
    assert (first["subject"], data_of(first)) == ("o.a", b"1")
    assert headers_of(first) == ["Nats-Stream-Source: O 1 > > o.a"]
    assert headers_of(second) == ["X: y", "Nats-Stream-Source: O 2 > > o.b"]


async def test_what_it_said_before_is_replaced(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.create_stream("P", subjects=["p"], sources=[{"name": "O"}])
    await api.publish("p", b"first")
    await until_info(api, "P", lambda info: info["sources"][0]["active"] >= 0)
    await api.publish("o", b"second")
    await until_last(api, "P", 2)
    await collect(api, {"name": "P"})
    await until_last(api, "S", 2)
    assert headers_of(await message(api, "S", 2)) == ["Nats-Stream-Source: P 2 > > o"]


async def test_several_and_subjects_of_its_own(api: Api) -> None:
    for name in "OP":
        await api.create_stream(name, subjects=[name.lower()])
        await api.fill(name.lower(), 3, name.encode())
    await collect(api, {"name": "O"}, {"name": "P"}, subjects=["s"])
    assert (await api.publish("s", b"S"))["stream"] == "S"
    await until_last(api, "S", 7)
    assert sorted(await data(api, "S")) == [b"O", b"O", b"O", b"P", b"P", b"P", b"S"]


async def test_filters_and_transforms_of_one_stream(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    transforms = [{"src": "o.b", "dest": "x.b"}]
    await collect(
        api,
        {"name": "O", "filter_subject": "o.a"},
        {"name": "O", "subject_transforms": transforms},
    )
    await until_info(api, "S", lambda info: all(s["active"] >= 0 for s in info["sources"]))
    for subject in "abc":
        await api.publish(f"o.{subject}")
    await until_last(api, "S", 2)
    stored = {each["subject"]: headers_of(each) for each in await messages(api, "S")}
    assert stored == {
        "o.a": ["Nats-Stream-Source: O 1 o.a > o.a"],
        "x.b": ["Nats-Stream-Source: O 2 o.b x.b o.b"],
    }
    told = (await api.ok("STREAM.INFO.S"))["sources"]
    shown = [{key: each[key] for key in each if key not in ("lag", "active")} for each in told]
    assert sorted(shown, key=len) == sorted(
        [
            {"name": "O", "filter_subject": "o.a"},
            {"name": "O", "subject_transforms": transforms},
        ],
        key=len,
    )


async def test_the_streams_own_transform(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    await api.publish("o.a")
    await collect(
        api,
        {"name": "O", "subject_transforms": [{"src": "o.*", "dest": "mid.$1"}]},
        subject_transform={"src": "mid.*", "dest": "end.$1"},
    )
    await until_last(api, "S", 1)
    stored = await message(api, "S", 1)
    assert stored["subject"] == "end.a"
    assert headers_of(stored) == ["Nats-Stream-Source: O 1 o.* mid.$1 o.a"]


@pytest.mark.parametrize("by", ["sequence", "time"])
async def test_start(api: Api, by: str) -> None:
    await api.create_stream("O", subjects=["o"])
    for number in range(5):
        await api.publish("o", b"%d" % number)
    start: Json = {"opt_start_seq": 4}
    if by == "time":
        start = {"opt_start_time": (await message(api, "O", 4))["time"]}
    await collect(api, {"name": "O", **start})
    await until_last(api, "S", 2)
    assert await data(api, "S") == [b"3", b"4"]


async def test_duplicates_are_left_away(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await collect(api, {"name": "O"}, subjects=["s"], duplicate_window=60_000_000_000)
    await until_info(api, "S", lambda info: info["sources"][0]["active"] >= 0)
    await api.publish("s", b"here", Nats_Msg_Id="1")
    await api.publish("o", b"there", Nats_Msg_Id="1")
    await api.publish("o", b"last", Nats_Msg_Id="2")
    await until_last(api, "S", 2)
    assert await data(api, "S") == [b"here", b"last"]


async def test_preconditions_were_the_origins_business(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.publish("o", b"x", Nats_Expected_Stream="O", Nats_Expected_Last_Sequence="0")
    await collect(api, {"name": "O"})
    await until_last(api, "S", 1)
    assert headers_of(await message(api, "S", 1)) == ["Nats-Stream-Source: O 1 > > o"]


async def test_added_and_removed(api: Api) -> None:
    for name in "OP":
        await api.create_stream(name, subjects=[name.lower()])
        await api.publish(name.lower(), name.encode())
    await collect(api, {"name": "O"})
    await until_last(api, "S", 1)
    await api.update_stream("S", subjects=[], sources=[{"name": "O"}, {"name": "P"}])
    await until_last(api, "S", 2)
    await api.update_stream("S", subjects=[], sources=[{"name": "P"}])
    await api.publish("o", b"O2")
    await api.publish("p", b"P2")
    await until_last(api, "S", 3)
    assert await data(api, "S") == [b"O", b"P", b"P2"]
    assert [each["name"] for each in (await api.ok("STREAM.INFO.S"))["sources"]] == ["P"]
    await api.update_stream("S", subjects=[], sources=[{"name": "P"}, {"name": "O"}])
    await until_last(api, "S", 4)
    assert await data(api, "S") == [b"O", b"P", b"P2", b"O2"]


async def test_an_origin_that_is_a_work_queue(api: Api) -> None:
    """A message that was copied from a work queue is removed there."""
    await api.create_stream("O", subjects=["o"], retention="workqueue")
    await api.fill("o", 5, b"x")
    await collect(api, {"name": "O"})
    await until_last(api, "S", 5)
    await api.until_messages("O", 0)
    await api.fill("o", 5, b"y")
    await until_last(api, "S", 10)
    await api.until_messages("O", 0)
    assert await data(api, "S") == [b"x"] * 5 + [b"y"] * 5


async def test_into_a_work_queue(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 3)
    await collect(api, {"name": "O"}, retention="workqueue")
    await until_last(api, "S", 3)
    subscription = await api.nc.jetstream().pull_subscribe("o", "worker", stream="S")
    for each in await subscription.fetch(3):
        await each.ack()
    await api.until_messages("S", 0)
    await api.publish("o", b"next")
    await until_last(api, "S", 4)
    assert await data(api, "S") == [b"next"]


@pytest.mark.parametrize("is_emptied", [False, True])
async def test_goes_on_after_a_restart(
    start_jetstream: StartJetStream, connect: Connect, is_emptied: bool
) -> None:
    api = Api(await connect(await start_jetstream()))
    await api.create_stream("O", subjects=["o"], storage="file")
    await collect(api, {"name": "O"}, storage="file")
    await api.fill("o", 3, b"x")
    await until_last(api, "S", 3)
    if is_emptied:
        await api.ok("STREAM.PURGE.S")
    api = Api(await connect(await start_jetstream()))
    await api.publish("o", b"y")
    await until_last(api, "S", 4)
    assert await data(api, "S") == ([b"y"] if is_emptied else [b"x", b"x", b"x", b"y"])


async def test_streams_that_fill_each_other(api: Api) -> None:
    """A message that came from a stream is not copied back to it."""
    await api.create_stream("O", subjects=["o"])
    await collect(api, {"name": "O", "filter_subject": "o"}, subjects=["s"])
    await api.update_stream("O", subjects=["o"], sources=[{"name": "S", "filter_subject": "s"}])
    await until_info(api, "O", lambda info: info["sources"][0]["active"] >= 0)
    await api.publish("o", b"O")
    await api.publish("s", b"S")
    await until_last(api, "O", 2)
    await until_last(api, "S", 2)
    assert sorted(await data(api, "O")) == sorted(await data(api, "S")) == [b"O", b"S"]


async def test_a_stream_that_is_full_goes_on_when_there_is_room(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await collect(api, {"name": "O"}, max_msgs=2, discard="new")
    for number in range(4):
        await api.publish("o", b"%d" % number)
    await until_last(api, "S", 2)
    await api.ok("STREAM.PURGE.S")
    await until_last(api, "S", 4)
    assert await data(api, "S") == [b"2", b"3"]


async def test_counters_are_added_up(api: Api) -> None:
    for name in "OP":
        await api.create_stream(name, subjects=[f"{name.lower()}.*"], allow_msg_counter=True)
        await api.publish(f"{name.lower()}.hits", Nats_Incr="+5")
        await api.publish(f"{name.lower()}.hits", Nats_Incr="+3")
    sources = [
        {"name": name, "subject_transforms": [{"src": f"{name.lower()}.*", "dest": "all.$1"}]}
        for name in "OP"
    ]
    await collect(api, *sources, subjects=["all.*"], allow_msg_counter=True)
    await until_last(api, "S", 4)
    assert (await api.publish("all.hits", Nats_Incr="+1"))["val"] == "17"
    last = await message(api, "S", 4)
    assert data_of(last) == b'{"val":"16"}'
    assert 'Nats-Counter-Sources: {"O":{"o.hits":"8"},"P":{"p.hits":"8"}}' in headers_of(last)


@pytest.mark.natsd_only  # nats-server starts at the time of the stream's last message
async def test_one_that_is_added_later_begins_at_the_beginning(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 2, b"O")
    await api.create_stream("S", subjects=["s"])
    await api.fill("s", 2, b"S")
    await api.ok("STREAM.PURGE.S")
    await api.update_stream("S", subjects=["s"], sources=[{"name": "O"}])
    await until_last(api, "S", 4)
    assert await data(api, "S") == [b"O", b"O"]
