"""Counters: a published increment is added to the total of its subject (ADR-49)."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.jetstream.behaviour.api import MS, Api, Json
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", ["memory", "file"])


async def create(api: Api, **config: object) -> None:
    await api.create_stream("S", subjects=["s.*"], allow_msg_counter=True, **config)


async def total(api: Api, subject: str) -> str:
    """Return the total in the subject's last message."""
    js = api.nc.jetstream()
    message = await js.get_last_msg("S", subject)
    assert message.data is not None
    value: str = json.loads(message.data)["val"]
    return value


class TestAdding:
    @STORAGE
    async def test_each_subject_is_a_number(self, api: Api, storage: str) -> None:
        await create(api, storage=storage)
        for subject, change, value in (
            ("s.a", "1", "1"),
            ("s.a", "+2", "3"),
            ("s.b", "-7", "-7"),
            ("s.a", "-3", "0"),
            ("s.a", "0", "0"),
            ("s.b", "007", "0"),
        ):
            ack = await api.publish(subject, Nats_Incr=change)
            assert ack["val"] == value
        stored = await api.nc.jetstream().get_msg("S", 2)
        assert stored.data == b'{"val":"3"}'
        assert stored.headers == {"Nats-Incr": "+2"}

    async def test_numbers_of_any_length(self, api: Api) -> None:
        await create(api)
        large = "9" * 20_000
        assert (await api.publish("s.a", Nats_Incr=large))["val"] == large
        assert (await api.publish("s.a", Nats_Incr="1"))["val"] == "1" + "0" * 20_000
        assert (await api.publish("s.a", Nats_Incr="-" + large))["val"] == "1"

    async def test_what_is_stored_counts_for_the_limit_of_a_message(self, api: Api) -> None:
        await create(api, max_msg_size=40)
        await api.publish("s.a", Nats_Incr="1")
        await api.refuses_publish("s.a", 10054, Nats_Incr="9" * 10)
        assert await total(api, "s.a") == "1"

    async def test_a_removed_message_no_longer_counts(self, api: Api) -> None:
        """The total is that of the last message that is left."""
        await create(api)
        for _ in range(3):
            await api.publish("s.a", Nats_Incr="10")
        await api.ok("STREAM.MSG.DELETE.S", {"seq": 3})
        assert (await api.publish("s.a", Nats_Incr="1"))["val"] == "21"
        await api.ok("STREAM.PURGE.S", {"filter": "s.a"})
        assert (await api.publish("s.a", Nats_Incr="1"))["val"] == "1"

    async def test_one_message_per_subject_is_enough(self, api: Api) -> None:
        await create(api, max_msgs_per_subject=1)
        for number in range(1, 6):
            assert (await api.publish("s.a", Nats_Incr="1"))["val"] == str(number)
        assert (await api.stream_state("S"))["messages"] == 1

    async def test_a_transform_says_which_counter_it_is(self, api: Api) -> None:
        await create(api, subject_transform={"src": "s.*", "dest": "s.all"})
        await api.publish("s.a", Nats_Incr="1")
        assert (await api.publish("s.b", Nats_Incr="1"))["val"] == "2"

    async def test_sent_again_with_its_id_counts_once(self, api: Api) -> None:
        await create(api, duplicate_window=60_000 * MS)
        await api.publish("s.a", Nats_Incr="5", Nats_Msg_Id="x")
        again = await api.publish("s.a", Nats_Incr="5", Nats_Msg_Id="x")
        assert again == {"stream": "S", "seq": 1, "duplicate": True}
        assert await total(api, "s.a") == "5"

    async def test_republished_as_it_is_stored(self, api: Api) -> None:
        await create(api, republish={"src": "s.*", "dest": "out.s"})
        told = await api.nc.subscribe("out.s")
        await api.nc.flush()
        await api.publish("s.a", Nats_Incr="2")
        await api.publish("s.a", Nats_Incr="2")
        bodies = [(await told.next_msg(5)).data for _ in range(2)]
        assert bodies == [b'{"val":"2"}', b'{"val":"4"}']

    async def test_many_at_once(self, api: Api) -> None:
        """No increment is lost when many clients publish at once."""
        await create(api, storage="file")
        acks = await asyncio.gather(
            *(api.publish(f"s.{number % 3}", Nats_Incr="1") for number in range(300))
        )
        for subject in range(3):
            values = [int(ack["val"]) for ack in acks[subject::3]]
            assert sorted(values) == list(range(1, 101))


class TestRefused:
    @pytest.mark.parametrize("text", ["one", "1.5", "+", "0x10", "1_000", "--1"])
    async def test_nothing_that_could_be_added(self, api: Api, text: str) -> None:
        await create(api)
        await api.refuses_publish("s.a", 10171, Nats_Incr=text)

    async def test_each_message_says_what_it_adds(self, api: Api) -> None:
        await create(api)
        await api.refuses_publish("s.a", 10169)
        await api.refuses_publish("s.a", 10169, b'{"val":"7"}', Other="x")
        await api.refuses_publish("s.a", 10170, b'{"val":"7"}', Nats_Incr="1")
        assert (await api.stream_state("S"))["messages"] == 0

    @pytest.mark.parametrize(
        "headers",
        [
            {"Nats_Rollup": "sub"},
            {"Nats_Expected_Stream": "S"},
            {"Nats_Expected_Last_Msg_Id": "x"},
            {"Nats_Expected_Last_Sequence": "0"},
            {"Nats_Expected_Last_Subject_Sequence": "0"},
            {"Nats_Expected_Last_Subject_Sequence_Subject": "s.a"},
        ],
    )
    async def test_nothing_may_be_expected(self, api: Api, headers: dict[str, str]) -> None:
        await create(api)
        await api.refuses_publish("s.a", 10171, Nats_Incr="1", **headers)

    @pytest.mark.natsd_only
    async def test_nobody_else_tells_of_sources(self, api: Api) -> None:
        """A client's `Nats-Counter-Sources` is refused; it breaks nats-server's counter."""
        await create(api)
        await api.refuses_publish("s.a", 10171, Nats_Incr="1", Nats_Counter_Sources="x")

    async def test_other_streams_have_no_counters(self, api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"])
        await api.refuses_publish("s.a", 10168, Nats_Incr="1")
        await api.refuses_update("S", 10052, subjects=["s.*"], allow_msg_counter=True)


class TestBatches:
    @STORAGE
    async def test_each_message_counts_for_those_behind_it(self, api: Api, storage: str) -> None:
        await create(api, storage=storage, allow_atomic=True)
        await api.publish("s.a", Nats_Incr="5")
        for number, subject in enumerate(("s.a", "s.b", "s.a"), 1):
            commit = {"Nats_Batch_Commit": "1"} if number == 3 else {}
            ack = await self.send(api, subject, "10", number, **commit)
        assert ack == {"stream": "S", "seq": 4, "batch": "B", "count": 3}
        assert await total(api, "s.a") == "25"
        assert await total(api, "s.b") == "10"
        assert (await api.publish("s.a", Nats_Incr="1"))["val"] == "26"

    @pytest.mark.parametrize(("change", "code"), [("x", 10171), (None, 10169), ("9" * 100, 10054)])
    async def test_none_counts_if_one_is_refused(
        self, api: Api, change: str | None, code: int
    ) -> None:
        await create(api, allow_atomic=True, max_msg_size=110)
        await self.send(api, "s.a", "1", 1)
        ack = await self.send(api, "s.a", change, 2, Nats_Batch_Commit="1")
        assert ack["error"]["err_code"] == code
        assert (await api.stream_state("S"))["messages"] == 0

    async def send(
        self, api: Api, subject: str, change: str | None, number: int, **more: str
    ) -> Json:
        headers = {"Nats-Batch-Id": "B", "Nats-Batch-Sequence": str(number)}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if change is not None:
            headers["Nats-Incr"] = change
        answer = await api.nc.request(subject, b"", 10, headers=headers)
        response: Json = json.loads(answer.data) if answer.data else {}
        return response


@STORAGE
async def test_a_total_can_be_asked_for_directly(api: Api, storage: str) -> None:
    await create(api, storage=storage, allow_direct=True)
    await api.publish("s.a", Nats_Incr="3")
    found = await api.raw("DIRECT.GET.S.s.a")
    assert json.loads(found.data) == {"val": "3"}


async def test_goes_on_after_a_restart(start_jetstream: StartJetStream, connect: Connect) -> None:
    """Totals are found after a restart, in old blocks too."""
    api = Api(await connect(await start_jetstream()))
    await create(api, storage="file", max_bytes=128_000)  # a small limit makes small blocks
    await api.publish("s.a", Nats_Incr="40")
    for _ in range(10):
        await api.publish("s.b", Nats_Incr="9" * 5_000)
    api = Api(await connect(await start_jetstream()))
    acks = await asyncio.gather(
        *(api.publish(f"s.{name}", Nats_Incr="1") for name in ("a", "c", "a", "c", "a"))
    )
    assert [ack["val"] for ack in acks] == ["41", "1", "42", "2", "43"]
    assert [ack["seq"] for ack in acks] == [12, 13, 14, 15, 16], "in the order they came"
