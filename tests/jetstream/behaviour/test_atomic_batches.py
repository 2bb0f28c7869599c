"""Atomic batches: all of their messages are stored, or none (ADR-50)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.jetstream.behaviour.api import Api, Json, error_text
from tests.jetstream.behaviour.batch import Batch
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


async def create(api: Api, **config: Any) -> None:
    await api.create_stream("S", subjects=["s.>"], allow_atomic=True, **config)


async def stored(api: Api) -> list[str]:
    """Return the subjects of the stream's messages, in order."""
    state = await api.stream_state("S")
    found = []
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        answer = await api.request("STREAM.MSG.GET.S", {"seq": sequence})
        if "message" in answer:
            found.append(answer["message"]["subject"])
    return found


@STORAGE
async def test_stored_together(api: Api, storage: str) -> None:
    """Nothing is stored before the commit; the PubAck names the batch and its message count."""
    await create(api, storage=storage)
    batch = Batch(api.nc)
    assert await batch.put("s.1", b"1") == {}
    assert await batch.put("s.2", b"2") == {}
    assert (await api.stream_state("S"))["last_seq"] == 0
    assert await api.publish("s.between") == {"stream": "S", "seq": 1}
    acked = await batch.commit("s.3", b"3")
    assert acked == {"stream": "S", "seq": 4, "batch": "batch", "count": 3}
    assert await stored(api) == ["s.between", "s.1", "s.2", "s.3"]


async def test_the_end_of_a_batch_need_not_be_a_message(api: Api) -> None:
    """With `eob` the message before is the last one, and gets the commit header."""
    await create(api)
    batch = Batch(api.nc)
    await batch.put("s.1", b"payload")
    acked = await batch.commit_before("s.never")
    assert acked == {"stream": "S", "seq": 1, "batch": "batch", "count": 1}
    assert await stored(api) == ["s.1"]
    message = await api.nc.jetstream().get_msg("S", 1)
    assert message.data == b"payload"
    assert message.headers == {
        "Nats-Batch-Id": "batch",
        "Nats-Batch-Sequence": "1",
        "Nats-Batch-Commit": "1",
    }
    assert (await Batch(api.nc).commit_before("s.x"))["error"]["err_code"] == 10176


async def test_a_batch_of_one(api: Api) -> None:
    await create(api)
    acked = await Batch(api.nc).commit("s.1")
    assert acked == {"stream": "S", "seq": 1, "batch": "batch", "count": 1}


async def test_only_the_commit_needs_a_reply(api: Api) -> None:
    await create(api)
    for number in range(1, 100):
        headers = {"Nats-Batch-Id": "quiet", "Nats-Batch-Sequence": str(number)}
        await api.nc.publish(f"s.{number}", headers=headers)
    batch = Batch(api.nc, "quiet")
    batch.count = 99
    assert (await batch.commit("s.100"))["count"] == 100
    assert (await api.stream_state("S"))["messages"] == 100


async def test_several_at_a_time(api: Api) -> None:
    await create(api)
    batches = [Batch(api.nc, f"b{number}") for number in range(5)]
    for batch in batches:
        await batch.put(f"s.{batch.batch_id}")
    for batch in reversed(batches):
        await batch.commit(f"s.{batch.batch_id}")
    assert await stored(api) == [f"s.b{n}" for n in (4, 4, 3, 3, 2, 2, 1, 1, 0, 0)]


async def test_consumers_see_a_batch_when_all_of_it_is_there(api: Api) -> None:
    await create(api)
    pulled = await api.nc.jetstream().pull_subscribe("s.>", durable="C")
    batch = Batch(api.nc)
    await batch.put("s.1")
    with pytest.raises(TimeoutError):
        await pulled.fetch(1, timeout=0.1)
    await batch.commit("s.2")
    assert [m.metadata.num_pending for m in await pulled.fetch(2, timeout=5)] == [1, 0]


class TestRefused:
    async def test_on_a_stream_without(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.>"])
        await Batch(api.nc).fails(10174, "s.1")

    async def test_ids(self, api: Api) -> None:
        await create(api)
        await Batch(api.nc, "x" * 65).fails(10179, "s.1")
        assert (await Batch(api.nc, "x" * 64).commit("s.1"))["seq"] == 1

    async def test_sequences(self, api: Api) -> None:
        await create(api)
        for text in ("", "x", "-1", "1.0"):
            headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": text}
            answer = json.loads((await api.nc.request("s.1", b"", headers=headers)).data)
            assert error_text(answer["error"], 10175)
        assert (await Batch(api.nc).put("s.1", sequence=2))["error"]["err_code"] == 10176
        large = await Batch(api.nc).put("s.1", sequence=1001)
        assert error_text(large["error"], 10199) == "atomic publish batch is too large: 1000"

    async def test_a_gap_ends_the_batch(self, api: Api) -> None:
        await create(api)
        batch = Batch(api.nc)
        await batch.put("s.1")
        assert (await batch.put("s.3", sequence=3))["error"]["err_code"] == 10176
        assert (await batch.put("s.2", sequence=2))["error"]["err_code"] == 10176
        assert await stored(api) == []

    async def test_a_commit_that_is_none(self, api: Api) -> None:
        await create(api)
        for text in ("", "0", "true", "EOB"):
            batch = Batch(api.nc)
            await batch.put("s.1")
            answer = await batch.put("s.2", Nats_Batch_Commit=text)
            assert error_text(answer["error"], 10200)
        await batch.fails(10176, "s.3")

    async def test_too_many_messages(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        server = await start_jetstream(limits={"batch": {"max_msgs": 3}})
        api = Api(await connect(server))
        await create(api)
        batch = Batch(api.nc)
        for _ in range(3):
            assert await batch.put("s.1") == {}
        assert (await batch.commit_before("s.1"))["count"] == 3
        again = Batch(api.nc)
        for _ in range(3):
            await again.put("s.1")
        assert await again.fails(10199, "s.1") == "atomic publish batch is too large: 3"
        assert (await api.stream_state("S"))["messages"] == 3

    async def test_too_many_batches(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        server = await start_jetstream(
            limits={"batch": {"max_inflight_per_stream": 2, "max_inflight_total": 3}}
        )
        api = Api(await connect(server))
        await create(api)
        await api.create_stream("T", allow_atomic=True)
        for number in range(2):
            assert await Batch(api.nc, f"{number}").put("s.1") == {}
        await Batch(api.nc, "third").fails(10210, "s.1")
        assert await Batch(api.nc).put("t") == {}
        await Batch(api.nc, "other").fails(10210, "t")

    async def test_api_level(self, api: Api) -> None:
        await create(api)
        batch = Batch(api.nc)
        assert await batch.put("s.1", Nats_Required_Api_Level="2") == {}
        answer = await batch.put("s.2", Nats_Required_Api_Level="99")
        assert error_text(answer["error"], 10185)
        await batch.fails(10176, "s.3")
        await Batch(api.nc).commit("s.1", Nats_Required_Api_Level="1")
        message = await api.nc.jetstream().get_msg("S", 1)
        assert "Nats-Required-Api-Level" not in (message.headers or {})


class TestChecks:
    """All messages are checked at the commit; if one is refused, none is stored."""

    async def test_duplicates(self, api: Api) -> None:
        """Ids are compared with stored ones and one another, not with those of refused batches."""
        await create(api)
        await api.publish("s.0", Nats_Msg_Id="known")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Msg_Id="a")
        await batch.fails(10201, "s.2", Nats_Msg_Id="a")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Msg_Id="a")
        await batch.fails(10201, "s.2", Nats_Msg_Id="known")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Msg_Id="a")
        assert (await batch.commit("s.2", Nats_Msg_Id="b"))["seq"] == 3
        assert (await api.publish("s.2", Nats_Msg_Id="b"))["duplicate"] is True

    async def test_counters(self, api: Api) -> None:
        """Increments of one batch add up; a batch with a message without increment adds nothing."""
        await create(api, allow_msg_counter=True)
        await api.publish("s.1", Nats_Incr="10")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Incr="1")
        await batch.fails(10169, "s.1")
        batch = Batch(api.nc)
        for increment in ("1", "2"):
            await batch.put("s.1", Nats_Incr=increment)
        await batch.put("s.2", Nats_Incr="-7")
        assert (await batch.commit("s.1", Nats_Incr="4"))["count"] == 4
        js = api.nc.jetstream()
        totals = [(await js.get_msg("S", sequence)).data for sequence in range(1, 6)]
        assert totals == [b'{"val":"%d"}' % total for total in (10, 11, 13, -7, 17)]

    async def test_schedules(self, api: Api) -> None:
        """A schedule rolls up its subject, to which the batch may write only once."""
        await create(api, allow_msg_schedules=True)
        plan = {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "s.target"}
        batch = Batch(api.nc)
        await batch.put("s.plan", **plan)
        await batch.fails(10111, "s.plan", **plan)
        batch = Batch(api.nc)
        await batch.put("s.plan", **plan)
        assert (await batch.commit("s.1"))["count"] == 2
        message = await api.nc.jetstream().get_msg("S", 1)
        assert (message.headers or {})["Nats-Rollup"] == "sub"

    @pytest.mark.natsd_only  # nats-server checks the size of the sent message
    @pytest.mark.parametrize(
        ("code", "largest", "limits"), [(10097, 65_535, {}), (10054, 300, {"max_msg_size": 300})]
    )
    async def test_what_is_stored_of_schedules_is_no_larger_than_allowed(
        self, api: Api, code: int, largest: int, limits: Json
    ) -> None:
        """Schedules are stored with an additional header, `Nats-Rollup`, which counts."""
        await create(api, allow_msg_schedules=True, **limits)
        plan = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "s.target"}
        added = {"Nats-Rollup": "sub", "Nats-Batch-Id": "batch", "Nats-Batch-Sequence": "1"}
        written = {**plan, **added, "Nats-Batch-Commit": "1", "Filler": ""}
        room = largest - len("NATS/1.0\r\n\r\n")
        room -= sum(len(f"{name}: {value}\r\n") for name, value in written.items())
        await Batch(api.nc).fails(code, "s.plan", **plan, Filler=(room + 1) * "x")
        answer = await Batch(api.nc).commit("s.plan", **plan, Filler=room * "x")
        assert answer["count"] == 1

    async def test_expected_last_sequence(self, api: Api) -> None:
        await create(api)
        await api.publish("s.0")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Expected_Last_Sequence="0")
        text = await batch.fails(10071, "s.2")
        assert text == "wrong last sequence: 1"
        batch = Batch(api.nc)
        await batch.put("s.1")
        assert await batch.fails(10071, "s.2", Nats_Expected_Last_Sequence="1") == (
            "wrong last sequence: 2"
        )
        batch = Batch(api.nc)
        await batch.put("s.1")
        await batch.fails(10164, "s.2", Nats_Expected_Last_Sequence="2")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Expected_Last_Sequence="1")
        assert (await batch.commit("s.2"))["seq"] == 3

    async def test_expected_last_sequence_of_a_subject(self, api: Api) -> None:
        await create(api)
        await api.publish("s.0")
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Expected_Last_Subject_Sequence="0")
        assert (
            await batch.fails(10071, "s.0", Nats_Expected_Last_Subject_Sequence="7")
            == "wrong last sequence: 1"
        )
        batch = Batch(api.nc)
        await batch.put("s.1")
        await batch.fails(10164, "s.1", Nats_Expected_Last_Subject_Sequence="0")
        other = {"Nats_Expected_Last_Subject_Sequence_Subject": "s.1"}
        batch = Batch(api.nc)
        await batch.put("s.1")
        await batch.fails(10164, "s.2", Nats_Expected_Last_Subject_Sequence="0", **other)
        await Batch(api.nc).fails(10193, "s.2", **other)
        batch = Batch(api.nc)
        await batch.put("s.2", Nats_Expected_Last_Subject_Sequence="0", **other)
        await batch.put("s.3", Nats_Expected_Last_Subject_Sequence="0", **other)
        acked = await batch.commit("s.0", Nats_Expected_Last_Subject_Sequence="1")
        assert acked["seq"] == 4

    async def test_expected_last_id_is_not_supported(self, api: Api) -> None:
        await create(api)
        text = await Batch(api.nc).fails(10177, "s.1", Nats_Expected_Last_Msg_Id="x")
        assert text == "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"

    async def test_expected_stream(self, api: Api) -> None:
        await create(api)
        batch = Batch(api.nc)
        await batch.put("s.1", Nats_Expected_Stream="S")
        await batch.fails(10060, "s.1", Nats_Expected_Stream="T")

    async def test_lifetimes(self, api: Api) -> None:
        await create(api)
        await Batch(api.nc).fails(10166, "s.1", Nats_TTL="1h")
        await api.update_stream("S", subjects=["s.>"], allow_atomic=True, allow_msg_ttl=True)
        await Batch(api.nc).fails(10165, "s.1", Nats_TTL="soon")
        assert (await Batch(api.nc).commit("s.1", Nats_TTL="1h"))["seq"] == 1

    async def test_rollups(self, api: Api) -> None:
        """A rollup must be the first message of its subject in the batch, or of the batch."""
        await create(api)
        await Batch(api.nc).fails(10111, "s.1", Nats_Rollup="sub")
        await api.update_stream("S", subjects=["s.>"], allow_atomic=True, allow_rollup_hdrs=True)
        await api.fill("s.1", 3)
        batch = Batch(api.nc)
        await batch.put("s.1")
        text = await batch.fails(10111, "s.1", Nats_Rollup="sub")
        assert text.endswith("batch rollup sub invalid")
        batch = Batch(api.nc)
        await batch.put("s.1")
        text = await batch.fails(10111, "s.2", Nats_Rollup="all")
        assert text.endswith("batch rollup all invalid")
        batch = Batch(api.nc)
        await batch.put("s.2")
        await batch.put("s.1", Nats_Rollup="sub")
        assert (await batch.commit("s.1"))["seq"] == 6
        assert await stored(api) == ["s.2", "s.1", "s.1"]
        batch = Batch(api.nc)
        await batch.put("s.3", Nats_Rollup="all")
        await batch.commit("s.4")
        assert await stored(api) == ["s.3", "s.4"]

    async def test_discard_new(self, api: Api) -> None:
        await create(api, discard="new", max_msgs=3)
        await api.publish("s.0")
        batch = Batch(api.nc)
        await batch.put("s.1")
        await batch.put("s.2")
        assert await batch.fails(10077, "s.3") == "maximum messages exceeded"
        assert await stored(api) == ["s.0"]
        batch = Batch(api.nc)
        await batch.put("s.1")
        assert (await batch.commit("s.2"))["seq"] == 3

    async def test_discard_new_per_subject(self, api: Api) -> None:
        await create(api, discard="new", discard_new_per_subject=True, max_msgs_per_subject=2)
        await api.publish("s.1")
        batch = Batch(api.nc)
        await batch.put("s.1")
        assert await batch.fails(10077, "s.1") == "maximum messages per subject exceeded"
        batch = Batch(api.nc)
        await batch.put("s.1")
        assert (await batch.commit("s.2"))["seq"] == 3

    async def test_discard_old(self, api: Api) -> None:
        await create(api, max_msgs=3)
        batch = Batch(api.nc)
        for number in range(4):
            await batch.put(f"s.{number}")
        await batch.commit("s.4")
        assert await stored(api) == ["s.2", "s.3", "s.4"]

    async def test_sizes(self, api: Api) -> None:
        await create(api, max_msg_size=200)
        batch = Batch(api.nc)
        await batch.put("s.1")
        answer = await batch.put("s.1", bytes(201))
        assert error_text(answer["error"], 10054)
        assert (await batch.put("s.2", sequence=2, Nats_Batch_Commit="1"))["count"] == 2

    async def test_sealed(self, api: Api) -> None:
        await create(api)
        await api.update_stream("S", subjects=["s.>"], allow_atomic=True, sealed=True)
        await Batch(api.nc).fails(10109, "s.1")


async def test_subjects_are_transformed(api: Api) -> None:
    await create(api, subject_transform={"src": "s.>", "dest": "t.>"})
    batch = Batch(api.nc)
    await batch.put("s.1")
    await batch.commit("s.2")
    assert await stored(api) == ["t.1", "t.2"]


async def test_of_no_interest(api: Api) -> None:
    """An interest stream stores no message without interest, but uses up its sequence."""
    await create(api, retention="interest")
    await api.create_consumer("S", "C", filter_subject="s.2")
    batch = Batch(api.nc)
    for number in (1, 2, 3):
        await batch.put(f"s.{number}")
    assert (await batch.commit("s.4"))["seq"] == 4
    assert await stored(api) == ["s.2"]


async def test_abandoned(start_jetstream: StartJetStream, connect: Connect) -> None:
    """A gap, too many messages, or a pause too long: an advisory is sent."""
    server = await start_jetstream(limits={"batch": {"max_msgs": 2, "timeout": "1s"}})
    api = Api(await connect(server))
    await create(api)
    advisories = await api.nc.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S")
    batch = Batch(api.nc, "gap")
    await batch.put("s.1")
    await batch.put("s.1", sequence=3)
    batch = Batch(api.nc, "large")
    for _ in range(3):
        await batch.put("s.1")
    batch = Batch(api.nc, "level")
    await batch.put("s.1", Nats_Required_Api_Level="99")
    idle = Batch(api.nc, "idle")
    await idle.put("s.1")
    told = [json.loads((await advisories.next_msg(5)).data) for _ in range(4)]
    assert [(each["batch"], each["reason"]) for each in told] == [
        ("gap", "incomplete"),
        ("large", "large"),
        ("level", "unsupported"),
        ("idle", "timeout"),
    ]
    assert {each["type"] for each in told} == {
        "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    }
    await idle.fails(10176, "s.2")


async def test_what_was_not_committed_does_not_outlive_the_server(
    start_jetstream: StartJetStream, connect: Connect
) -> None:
    api = Api(await connect(await start_jetstream()))
    await create(api, storage="file")
    done, open_batch = Batch(api.nc, "done"), Batch(api.nc, "open")
    await done.put("s.1")
    await open_batch.put("s.2")
    await done.commit("s.1")
    await api.nc.close()
    api = Api(await connect(await start_jetstream()))
    assert await stored(api) == ["s.1", "s.1"]
    open_batch.nc = api.nc
    await open_batch.fails(10176, "s.2")


async def test_taken_away_from_a_stream(api: Api) -> None:
    """Batches that are under way end when the stream forbids them."""
    await create(api)
    batch = Batch(api.nc)
    await batch.put("s.1")
    await api.update_stream("S", subjects=["s.>"])
    await Batch(api.nc).fails(10174, "s.1")
    await api.update_stream("S", subjects=["s.>"], allow_atomic=True)
    await batch.fails(10176, "s.2")


async def test_many_publishers(api: Api) -> None:
    """The messages of a batch stay together, whoever publishes at the same time."""
    await create(api, storage="file")

    async def publish(name: str) -> None:
        for round_number in range(5):
            batch = Batch(api.nc, f"{name}{round_number}")
            for _ in range(4):
                await batch.put(f"s.{batch.batch_id}")
            assert (await batch.commit(f"s.{batch.batch_id}"))["count"] == 5

    await asyncio.gather(*(publish(name) for name in "abcdefgh"), api.fill("s.single", 50))
    subjects = [subject for subject in await stored(api) if subject != "s.single"]
    assert len(subjects) == 200
    sequences = await stored(api)
    for name in set(subjects):
        first = sequences.index(name)
        assert sequences[first : first + 5] == [name] * 5
