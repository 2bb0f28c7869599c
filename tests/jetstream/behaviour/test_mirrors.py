"""Mirrors of streams (nats-server's `setupMirrorConsumer`)."""

from __future__ import annotations

import json

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.jetstream.behaviour.api import Api, soon
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.copies import data_of, message, messages, until_info, until_last


async def mirror(api: Api, name: str, **settings: object) -> None:
    """Create a mirror of stream O, unless `mirror` says otherwise."""
    await api.create_stream(name, **{"subjects": [], "mirror": {"name": "O"}, **settings})


async def test_same_messages_sequences_and_times(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    await api.fill("o.a", 3, b"before")
    await api.publish("o.b", b"with", Nats_Msg_Id="1", X="y")
    await mirror(api, "M")
    await until_last(api, "M", 4)
    await api.fill("o.a", 2, b"after")
    await until_last(api, "M", 6)
    assert await messages(api, "M") == await messages(api, "O")


async def test_what_is_missing_is_skipped(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 10)
    for sequence in (1, 2, 4, 7, 8):
        await api.ok("STREAM.MSG.DELETE.O", {"seq": sequence})
    await mirror(api, "M")
    await until_last(api, "M", 10)
    assert (await api.stream_state("M"))["first_seq"] == 3
    assert await messages(api, "M") == await messages(api, "O")


async def test_an_origin_that_begins_late(api: Api) -> None:
    await api.create_stream("O", subjects=["o"], first_seq=1_000_000)
    await api.publish("o")
    await mirror(api, "M")
    state = await until_last(api, "M", 1_000_000)
    assert (state["messages"], state["first_seq"]) == (1, 1_000_000)


async def test_what_is_purged_while_it_looks_stays(api: Api) -> None:
    """A mirror keeps messages that the origin purges."""
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 5)
    await mirror(api, "M")
    await until_last(api, "M", 5)
    await api.ok("STREAM.PURGE.O")
    await api.publish("o")
    state = await until_last(api, "M", 6)
    assert (state["messages"], state["first_seq"]) == (6, 1)


async def test_nobody_publishes_to_it(api: Api, nc: Client) -> None:
    await api.create_stream("O", subjects=["o"])
    await mirror(api, "M")
    with pytest.raises(NoRespondersError):
        await nc.request("M", b"", 1)


async def test_duplicates_are_the_origins_business(api: Api) -> None:
    """A message whose id the origin accepted again after its window is stored in the mirror."""
    await api.create_stream("O", subjects=["o"], duplicate_window=100_000_000)

    async def taken_again() -> dict[str, object] | None:
        ack = await api.publish("o", Nats_Msg_Id="1")
        return None if "duplicate" in ack else ack

    await api.publish("o", Nats_Msg_Id="1")
    await soon(taken_again)
    await mirror(api, "M", duplicate_window=60_000_000_000)
    await until_last(api, "M", 2)
    assert await messages(api, "M") == await messages(api, "O")


async def test_preconditions_were_the_origins_business(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.publish("o", b"1", Nats_Expected_Stream="O", Nats_Expected_Last_Sequence="0", X="y")
    await api.publish("o", b"2", Nats_Expected_Last_Sequence="1")
    await mirror(api, "M")
    await until_last(api, "M", 2)
    assert "hdrs" not in await message(api, "M", 2)
    assert data_of(await message(api, "M", 1)) == b"1"


async def test_info(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.publish("o")
    await mirror(api, "M")
    await until_last(api, "M", 1)
    info = (await api.ok("STREAM.INFO.M"))["mirror"]
    assert 0 < info.pop("active") < 10_000_000_000
    assert info == {"name": "O", "lag": 0}
    assert "mirror" not in await api.ok("STREAM.INFO.O")


async def test_filter(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    for subject in "abab":
        await api.publish(f"o.{subject}", subject.encode())
    await mirror(api, "M", mirror={"name": "O", "filter_subject": "o.b"})
    await until_last(api, "M", 4)
    assert [each["seq"] for each in await messages(api, "M")] == [2, 4]
    assert (await api.ok("STREAM.INFO.M"))["mirror"]["filter_subject"] == "o.b"


async def test_transforms(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"])
    for subject in "abc":
        await api.publish(f"o.{subject}")
    transforms = [{"src": "o.a", "dest": "x.a"}, {"src": "o.b", "dest": ""}]
    await mirror(api, "M", mirror={"name": "O", "subject_transforms": transforms})
    await until_last(api, "M", 2)
    assert [each["subject"] for each in await messages(api, "M")] == ["x.a", "o.b"]
    assert (await api.ok("STREAM.INFO.M"))["mirror"]["subject_transforms"] == transforms


async def test_start_sequence(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 5)
    await mirror(api, "M", mirror={"name": "O", "opt_start_seq": 4})
    state = await until_last(api, "M", 5)
    assert (state["messages"], state["first_seq"]) == (2, 4)


async def test_start_time(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 5)
    third = (await message(api, "O", 3))["time"]
    await mirror(api, "M", mirror={"name": "O", "opt_start_time": third})
    state = await until_last(api, "M", 5)
    assert (state["messages"], state["first_seq"]) == (3, 3)


async def test_rollups_are_done_where_they_are_allowed(api: Api) -> None:
    await api.create_stream("O", subjects=["o.*"], allow_rollup_hdrs=True)
    await api.fill("o.a", 3)
    await mirror(api, "M", allow_rollup_hdrs=True)
    await mirror(api, "N")
    await until_last(api, "M", 3)
    await until_last(api, "N", 3)
    await api.publish("o.a", b"new", Nats_Rollup="sub")
    await until_last(api, "M", 4)
    await until_last(api, "N", 4)
    assert await messages(api, "M") == await messages(api, "O")
    assert (await api.stream_state("N"))["messages"] == 4


async def test_promotion(api: Api, nc: Client) -> None:
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 3)
    await mirror(api, "M")
    await until_last(api, "M", 3)
    await api.ok("STREAM.DELETE.O")
    updated = await api.update_stream("M", subjects=["o"])
    assert "mirror" not in updated
    assert (await api.publish("o", Nats_Msg_Id="a"))["seq"] == 4
    assert (await api.publish("o", Nats_Msg_Id="a"))["duplicate"]


async def test_the_origin_comes_later(api: Api) -> None:
    await mirror(api, "M")
    await until_info(api, "M", lambda info: "error" in info["mirror"])
    info = await api.ok("STREAM.INFO.M")
    assert info["mirror"]["error"]["err_code"] == 10059
    assert info["mirror"]["active"] == -1


@pytest.mark.natsd_only  # nats-server waits for twelve seconds
async def test_an_origin_that_comes_later_is_found_soon(api: Api) -> None:
    await mirror(api, "M")
    await until_info(api, "M", lambda info: "error" in info["mirror"])
    await api.create_stream("O", subjects=["o"])
    await api.publish("o")
    await until_last(api, "M", 1)
    assert "error" not in (await api.ok("STREAM.INFO.M"))["mirror"]


async def test_a_mirror_of_a_mirror(api: Api) -> None:
    await api.create_stream("O", subjects=["o"])
    await mirror(api, "M")
    await mirror(api, "N", mirror={"name": "M"})
    await until_info(api, "M", lambda info: info["mirror"]["active"] >= 0)
    await until_info(api, "N", lambda info: info["mirror"]["active"] >= 0)
    await api.fill("o", 3)
    await until_last(api, "N", 3)
    assert await messages(api, "N") == await messages(api, "O")


async def test_goes_on_after_a_restart(start_jetstream: StartJetStream, connect: Connect) -> None:
    api = Api(await connect(await start_jetstream()))
    await api.create_stream("O", subjects=["o"], storage="file")
    await mirror(api, "M", storage="file")
    await api.fill("o", 3)
    await until_last(api, "M", 3)
    api = Api(await connect(await start_jetstream()))
    await api.fill("o", 3)
    await until_last(api, "M", 6)
    assert await messages(api, "M") == await messages(api, "O")


@pytest.mark.natsd_only  # nats-server does not transform messages that it sends itself
async def test_a_domains_api(start_jetstream: StartJetStream, connect: Connect) -> None:
    api = Api(await connect(await start_jetstream(domain="hub")))
    delivered = await api.nc.subscribe("elsewhere.M.*")
    await api.create_stream("O", subjects=["o"])
    await api.fill("o", 3)
    external = {"api": "$JS.hub.API", "deliver": "elsewhere"}
    await mirror(api, "M", mirror={"name": "O", "external": external})
    await until_last(api, "M", 3)
    assert (await api.ok("STREAM.INFO.M"))["mirror"]["external"] == external
    assert (await delivered.next_msg(5)).subject == "o"


class TestDirect:
    async def test_it_answers_for_its_origin(self, api: Api, nc: Client) -> None:
        await api.create_stream("O", subjects=["o"], allow_direct=True)
        await api.publish("o", b"x")
        await mirror(api, "M")
        await until_last(api, "M", 1)
        assert (await api.ok("STREAM.INFO.M"))["config"]["mirror_direct"]
        answered: set[str] = set()
        for _ in range(200):
            answer = await nc.request("$JS.API.DIRECT.GET.O.o", b"", 5)
            assert answer.data == b"x"
            answered.add(answer.headers["Nats-Stream"])
        assert answered == {"O", "M"}

    async def test_when_the_origin_is_gone(self, api: Api, nc: Client) -> None:
        await api.create_stream("O", subjects=["o"], allow_direct=True)
        await api.publish("o", b"x")
        await mirror(api, "M")
        await until_last(api, "M", 1)
        await api.ok("STREAM.DELETE.O")
        answer = await nc.request("$JS.API.DIRECT.GET.O", json.dumps({"seq": 1}).encode(), 5)
        assert (answer.data, answer.headers["Nats-Stream"]) == (b"x", "M")

    async def test_not_when_it_is_promoted(self, api: Api, nc: Client) -> None:
        await api.create_stream("O", subjects=["o"], allow_direct=True)
        await api.publish("o", b"x")
        await mirror(api, "M")
        await until_last(api, "M", 1)
        await api.ok("STREAM.DELETE.O")
        await api.update_stream("M", subjects=["m"])
        with pytest.raises(NoRespondersError):
            await nc.request("$JS.API.DIRECT.GET.O.o", b"", 1)
