"""Publishing: acknowledgements, duplicates, preconditions and rollups."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.jetstream.behaviour.api import MS, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


async def test_acknowledged(api: Api) -> None:
    await api.create_stream("S", subjects=["s.>"])
    assert await api.publish("s.1.2", b"x") == {"stream": "S", "seq": 1}


async def test_no_stream(api: Api) -> None:
    with pytest.raises(Exception, match="no responders"):
        await api.publish("nowhere")


async def test_in_order_of_publishing(api: Api) -> None:
    """Asynchronous publishes are acknowledged one by one, in the order of their sequences."""
    await api.create_stream("S", storage="file")
    inbox = api.nc.new_inbox()
    acks = await api.nc.subscribe(inbox)
    for number in range(500):
        await api.nc.publish("s", b"%d" % number, reply=inbox)
    sequences = [json.loads((await acks.next_msg(5)).data)["seq"] for _ in range(500)]
    assert sequences == list(range(1, 501))
    got = await api.ok("STREAM.MSG.GET.S", {"seq": 321})
    assert got["message"]["data"] == "MzIw"


class TestDuplicates:
    """Duplicates by `Nats-Msg-Id` within `duplicate_window`."""

    @STORAGE
    async def test_known(self, api: Api, storage: str) -> None:
        await api.create_stream("S", storage=storage)
        assert await api.publish("s", b"1", Nats_Msg_Id="a") == {"stream": "S", "seq": 1}
        again = await api.publish("s", b"2", Nats_Msg_Id="a")
        assert again == {"stream": "S", "seq": 1, "duplicate": True}
        assert (await api.publish("s", b"2", Nats_Msg_Id="A"))["seq"] == 2
        assert (await api.stream_state("S"))["messages"] == 2

    async def test_all_subjects_of_a_stream_share_them(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"])
        await api.create_stream("T")
        await api.publish("s.1", Nats_Msg_Id="a")
        assert (await api.publish("s.2", Nats_Msg_Id="a"))["duplicate"] is True
        assert "duplicate" not in await api.publish("t", Nats_Msg_Id="a")

    async def test_empty_id_is_none(self, api: Api) -> None:
        await api.create_stream("S")
        inbox = api.nc.new_inbox()
        acks = await api.nc.subscribe(inbox)
        for _ in range(2):
            await api.nc.publish("s", b"", reply=inbox, headers={"Nats-Msg-Id": ""})
        assert [json.loads((await acks.next_msg(5)).data)["seq"] for _ in range(2)] == [1, 2]

    async def test_window_ends(self, api: Api) -> None:
        await api.create_stream("S", duplicate_window=100 * MS)
        await api.publish("s", Nats_Msg_Id="a")
        sequence = 1
        while sequence == 1:
            sequence = (await api.publish("s", Nats_Msg_Id="a"))["seq"]
        assert sequence == 2

    async def test_removed_message_is_still_known(self, api: Api) -> None:
        """Ids of purged and deleted messages stay known."""
        await api.create_stream("S")
        await api.publish("s", Nats_Msg_Id="a")
        await api.publish("s", Nats_Msg_Id="b")
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 1})
        assert (await api.publish("s", Nats_Msg_Id="a")).get("duplicate") is True
        await api.ok("STREAM.PURGE.S")
        assert (await api.publish("s", Nats_Msg_Id="b")).get("duplicate") is True

    async def test_known_after_a_restart(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        api = Api(await connect(await start_jetstream()))
        await api.create_stream("S", storage="file")
        for number in range(5):
            await api.publish("s", Nats_Msg_Id=f"id-{number}")
        api = Api(await connect(await start_jetstream()))
        for number in range(5):
            again = await api.publish("s", Nats_Msg_Id=f"id-{number}")
            assert again == {"stream": "S", "seq": number + 1, "duplicate": True}
        assert (await api.publish("s", Nats_Msg_Id="id-5"))["seq"] == 6

    async def test_sent_at_once(self, api: Api) -> None:
        """A duplicate that arrives before its original is on disk is recognised too."""
        await api.create_stream("S", storage="file")
        acks = await asyncio.gather(*(api.publish("s", Nats_Msg_Id="a") for _ in range(30)))
        assert {ack["seq"] for ack in acks} == {1}
        assert sum(ack.get("duplicate", False) for ack in acks) == 29

    async def test_refused_is_not_remembered(self, api: Api) -> None:
        await api.create_stream("S", max_msgs=1, discard="new")
        await api.publish("s")
        await api.refuses_publish("s", 10077, Nats_Msg_Id="a")
        await api.ok("STREAM.PURGE.S")
        assert await api.publish("s", Nats_Msg_Id="a") == {"stream": "S", "seq": 2}


class TestExpectations:
    """`Nats-Expected-*`: a message is stored or refused with the reason."""

    async def test_stream(self, api: Api) -> None:
        await api.create_stream("S")
        await api.publish("s", Nats_Expected_Stream="S")
        await api.refuses_publish("s", 10060, Nats_Expected_Stream="T")

    async def test_last_sequence(self, api: Api) -> None:
        await api.create_stream("S")
        await api.publish("s", Nats_Expected_Last_Sequence="0")
        await api.publish("s", Nats_Expected_Last_Sequence="1")
        text = await api.refuses_publish("s", 10071, Nats_Expected_Last_Sequence="1")
        assert text == "wrong last sequence: 2"
        await api.refuses_publish("s", 10071, Nats_Expected_Last_Sequence="3")

    async def test_last_sequence_of_a_purged_stream(self, api: Api) -> None:
        await api.create_stream("S")
        await api.fill("s", 3)
        await api.ok("STREAM.PURGE.S")
        await api.refuses_publish("s", 10071, Nats_Expected_Last_Sequence="0")
        await api.publish("s", Nats_Expected_Last_Sequence="3")

    async def test_last_message_id(self, api: Api) -> None:
        await api.create_stream("S")
        text = await api.refuses_publish("s", 10070, Nats_Expected_Last_Msg_Id="a")
        assert text == "wrong last msg ID: "
        await api.publish("s", Nats_Msg_Id="a")
        await api.publish("s", Nats_Msg_Id="b", Nats_Expected_Last_Msg_Id="a")
        text = await api.refuses_publish("s", 10070, Nats_Expected_Last_Msg_Id="a")
        assert text == "wrong last msg ID: b"

    async def test_last_message_without_id(self, api: Api) -> None:
        await api.create_stream("S")
        await api.publish("s", Nats_Msg_Id="a")
        await api.publish("s")
        response = await api.publish("s", Nats_Expected_Last_Msg_Id="a")
        assert response["error"]["description"] == "wrong last msg ID: "

    @STORAGE
    async def test_last_sequence_of_the_subject(self, api: Api, storage: str) -> None:
        """The compare-and-set of key-value stores (ADR-8)."""
        await api.create_stream("S", storage=storage, subjects=["s.*"])
        header = "Nats_Expected_Last_Subject_Sequence"
        await api.publish("s.1", **{header: "0"})
        await api.publish("s.2", **{header: "0"})
        assert await api.refuses_publish("s.1", 10071, **{header: "0"}) == "wrong last sequence: 1"
        assert await api.refuses_publish("s.1", 10071, **{header: "2"}) == "wrong last sequence: 1"
        assert (await api.publish("s.1", **{header: "1"}))["seq"] == 3
        await api.ok("STREAM.PURGE.S", {"filter": "s.1"})
        assert (await api.publish("s.1", **{header: "0"}))["seq"] == 4

    async def test_of_another_subject(self, api: Api) -> None:
        """The `-Subject` header chooses the expected sequence's subject; wildcards are allowed."""
        await api.create_stream("S", subjects=["s.>"])
        sequence, subject = (
            "Nats_Expected_Last_Subject_Sequence",
            "Nats_Expected_Last_Subject_Sequence_Subject",
        )
        for name in ("s.a.1", "s.a.2", "s.b.1"):
            await api.publish(name)
        await api.publish("s.c", **{sequence: "2", subject: "s.a.*"})
        await api.refuses_publish("s.c", 10071, **{sequence: "2", subject: "s.>"})
        await api.publish("s.c", **{sequence: "4", subject: "s.>"})

    async def test_one_of_many_wins(self, api: Api) -> None:
        await api.create_stream("S", storage="file")
        tries = (api.publish("s", Nats_Expected_Last_Subject_Sequence="0") for _ in range(20))
        outcomes = await asyncio.gather(*tries)
        assert sorted(outcome.get("seq", 0) for outcome in outcomes) == [0] * 19 + [1]

    async def test_which_is_told_first(self, api: Api) -> None:
        """For a duplicate only the checks before the check of its id are made."""
        await api.create_stream("S", subjects=["s.*"])
        await api.publish("s.1", Nats_Msg_Id="a")
        duplicate = {"stream": "S", "seq": 1, "duplicate": True}
        told = {}
        for header, value in (
            ("Nats_Expected_Stream", "T"),
            ("Nats_Expected_Last_Sequence", "0"),
            ("Nats_Expected_Last_Msg_Id", "z"),
            ("Nats_Expected_Last_Subject_Sequence", "9"),
            ("Nats_TTL", "1m"),
            ("Nats_Incr", "1"),
            ("Nats_Rollup", "all"),
        ):
            response = await api.publish("s.1", **{"Nats_Msg_Id": "a", header: value})
            told[header] = response["error"]["err_code"] if "error" in response else response
        assert told == {
            "Nats_Expected_Stream": 10060,
            "Nats_Expected_Last_Sequence": 10071,
            "Nats_Expected_Last_Msg_Id": duplicate,
            "Nats_Expected_Last_Subject_Sequence": 10071,
            "Nats_TTL": 10166,
            "Nats_Incr": 10168,
            "Nats_Rollup": duplicate,
        }
        assert (await api.publish("s.2", Nats_Msg_Id="a")) == duplicate

    async def test_not_a_number(self, api: Api) -> None:
        await api.create_stream("S")
        await api.fill("s", 1)
        for text in ("x", "-1", "1x", "18446744073709551616"):
            await api.publish("s", Nats_Expected_Last_Sequence=text)
        assert (await api.stream_state("S"))["last_seq"] >= 1

    async def test_required_api_level_is_for_requests(self, api: Api) -> None:
        """Required API levels are not checked in publishes, only in requests."""
        await api.create_stream("S")
        await api.publish("s", Nats_Required_Api_Level="100")


class TestRollup:
    """`Nats-Rollup` replaces all earlier messages of the subject, or of the stream."""

    @STORAGE
    async def test_subject(self, api: Api, storage: str) -> None:
        await api.create_stream("S", storage=storage, subjects=["s.*"], allow_rollup_hdrs=True)
        for number in range(6):
            await api.publish(f"s.{number % 2}")
        await api.publish("s.0", b"sum", Nats_Rollup="sub")
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"s.0": 1, "s.1": 3}
        assert (state["first_seq"], state["last_seq"]) == (2, 7)

    @STORAGE
    async def test_all(self, api: Api, storage: str) -> None:
        await api.create_stream("S", storage=storage, subjects=["s.*"], allow_rollup_hdrs=True)
        for number in range(6):
            await api.publish(f"s.{number % 2}")
        await api.publish("s.9", b"sum", Nats_Rollup="all")
        state = await api.stream_state("S", subjects_filter=">")
        assert state["subjects"] == {"s.9": 1}
        assert (state["first_seq"], state["last_seq"]) == (7, 7)

    async def test_not_allowed(self, api: Api) -> None:
        await api.create_stream("S")
        assert (
            "rollup not permitted"
            in (await api.publish("s", Nats_Rollup="all"))["error"]["description"]
        )

    async def test_unheard_of(self, api: Api) -> None:
        await api.create_stream("S", allow_rollup_hdrs=True)
        await api.fill("s", 2)
        response = await api.publish("s", Nats_Rollup="some")
        assert "rollup value invalid" in response["error"]["description"]
        assert (await api.stream_state("S"))["messages"] == 2


class TestNextIssue:
    """Headers of features that the stream does not have are refused, not ignored."""

    async def test_ttl(self, api: Api) -> None:
        await api.create_stream("S")
        await api.refuses_publish("s", 10166, Nats_TTL="1m")

    async def test_counter(self, api: Api) -> None:
        await api.create_stream("S")
        await api.refuses_publish("s", 10168, Nats_Incr="+1")

    async def test_schedule(self, api: Api) -> None:
        await api.create_stream("S")
        await api.refuses_publish("s", 10188, Nats_Schedule="@every 5s", Nats_Schedule_Target="t")

    async def test_batch(self, api: Api) -> None:
        await api.create_stream("S")
        await api.refuses_publish("s", 10174, Nats_Batch_Id="b", Nats_Batch_Sequence="1")
