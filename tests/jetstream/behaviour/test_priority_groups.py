"""Priority groups: overflow, pinned clients and priorities (ADR-42)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import StartJetStream
from tests.jetstream.behaviour.puller import Puller, sequence_of

LONG = 30 * SECOND


async def consumer(api: Api, policy: str, messages: int = 0, **config: Any) -> None:
    await api.create_stream("S", subjects=["s"], storage="file")
    await publish(api, messages)
    await api.create_consumer(
        "S", "C", **{"priority_groups": ["A"], "priority_policy": policy, **config}
    )


async def publish(api: Api, messages: int) -> None:
    for _ in range(messages):
        await api.publish("s", b"x")


async def group_of(api: Api) -> dict[str, Any]:
    info = await api.consumer_info("S", "C")
    [group] = info["priority_groups"]
    assert isinstance(group, dict)
    return group


def pin_of(msg: Msg) -> str:
    assert msg.headers is not None
    return str(msg.headers["Nats-Pin-Id"])


class TestRules:
    @pytest.mark.parametrize(
        ("code", "config"),
        [
            (10159, {"priority_policy": "overflow"}),
            (10159, {"priority_policy": "pinned_client", "priority_groups": []}),
            (10161, {"priority_policy": "overflow", "priority_groups": [""]}),
            (10162, {"priority_policy": "overflow", "priority_groups": ["a b"]}),
            (10162, {"priority_policy": "overflow", "priority_groups": ["a" * 17]}),
            (10196, {"priority_groups": ["A"]}),
            (10196, {"priority_groups": ["A"], "priority_policy": "none"}),
            (10197, {"priority_timeout": SECOND}),
            (
                10178,
                {
                    "priority_policy": "overflow",
                    "priority_groups": ["A"],
                    "deliver_subject": "d",
                },
            ),
        ],
    )
    async def test_refused(self, api: Api, code: int, config: dict[str, Any]) -> None:
        await api.create_stream("S", subjects=["s"])
        await api.refuses_consumer("S", "C", code, **config)

    async def test_the_longest_name(self, api: Api) -> None:
        await consumer(api, "overflow", priority_groups=["azAZ09/_=-aaaaaa"])

    async def test_what_is_filled_in(self, api: Api) -> None:
        """A pin lasts two minutes by default; groups require API level 1."""
        await consumer(api, "pinned_client")
        config = (await api.consumer_info("S", "C"))["config"]
        assert config["priority_timeout"] == 120 * SECOND
        assert config["metadata"]["_nats.req.level"] == "1"

    async def test_info_shows_the_first_group(self, api: Api) -> None:
        await consumer(api, "overflow", priority_groups=["A", "B"])
        assert await group_of(api) == {"group": "A", "pinned_ts": "0001-01-01T00:00:00Z"}

    async def test_an_update_changes_policy_and_groups(self, api: Api) -> None:
        await consumer(api, "overflow", 1)
        puller = await Puller.of(api.nc, "S", "C")
        for config in (
            {"priority_policy": "pinned_client", "priority_groups": ["B"]},
            {"priority_policy": "none", "priority_groups": []},
        ):
            await api.create_consumer("S", "C", action="update", **config)
            await puller.ask(group="A", min_pending=1)
            assert await puller.line() == "400 Bad Request - Not a Overflow Priority consumer"
        await puller.ask(group="A", priority=9)
        assert await puller.sequences(1) == [1]


class TestRequests:
    @pytest.mark.parametrize(
        ("policy", "request_", "text"),
        [
            ("overflow", {"batch": 1}, "Priority Group missing"),
            ("overflow", {"group": "B"}, "Invalid Priority Group"),
            ("overflow", {"group": "A" * 40}, "Invalid Priority Group"),
            ("overflow", {"group": "A", "id": "x"}, "Not a Pinned Client Priority consumer"),
            ("pinned_client", {"min_pending": 1}, "Not a Overflow Priority consumer"),
            (
                "prioritized",
                {"group": "A", "min_ack_pending": 1},
                "Not a Overflow Priority consumer",
            ),
            ("prioritized", {"priority": 10}, "Priority must be between 0 and 9"),
            ("prioritized", {"priority": -1}, "Priority must be between 0 and 9"),
        ],
    )
    async def test_refused(
        self, api: Api, policy: str, request_: dict[str, Any], text: str
    ) -> None:
        await consumer(api, policy, 1)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(**request_)
        assert await puller.line() == f"400 Bad Request - {text}"

    async def test_a_number_names_no_group(self, api: Api) -> None:
        """A request that is a plain number, as of old clients, names no group and is served."""
        await consumer(api, "overflow", 3)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(b"2")
        await puller.ask()
        assert await puller.sequences(3) == [1, 2, 3]


class TestOverflow:
    async def test_min_pending(self, api: Api) -> None:
        await consumer(api, "overflow", 2)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A", min_pending=4, batch=10, expires=LONG)
        await puller.nothing()
        await publish(api, 1)
        await puller.nothing()
        await publish(api, 1)
        assert await puller.sequences(1) == [1]
        await puller.nothing()

    async def test_min_ack_pending(self, api: Api) -> None:
        await consumer(api, "overflow", 5, ack_policy="explicit")
        first, second = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await second.ask(group="A", min_ack_pending=2, batch=10, expires=LONG)
        await first.ask(group="A", batch=1, expires=LONG)
        [msg] = await first.messages(1)
        await second.nothing()
        await first.ask(group="A", batch=1, expires=LONG)
        assert await first.sequences(1) == [2]
        assert await second.sequences(3) == [3, 4, 5]
        await msg.ack()

    async def test_either_is_enough(self, api: Api) -> None:
        await consumer(api, "overflow", 3, ack_policy="explicit")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A", min_pending=100, min_ack_pending=1, expires=LONG)
        await puller.nothing()
        await puller.ask(group="A", min_pending=3, min_ack_pending=100, expires=LONG)
        assert await puller.sequences(2) == [1, 2]

    async def test_who_is_not_served_does_not_hold_up_others(self, api: Api) -> None:
        await consumer(api, "overflow", 3)
        waiting, served = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await waiting.ask(group="A", min_pending=10, expires=LONG)
        await served.ask(group="A", batch=2, expires=LONG)
        assert await served.sequences(2) == [1, 2]
        await waiting.nothing()

    async def test_it_expires(self, api: Api) -> None:
        await consumer(api, "overflow", 1)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A", min_pending=2, expires=100 * MS)
        assert await puller.line() == "408 Request Timeout"


class TestPinnedClient:
    async def test_the_first_is_pinned(self, api: Api) -> None:
        await consumer(api, "pinned_client", 4)
        first, second = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await first.ask(group="A", batch=2, expires=LONG)
        await second.ask(group="A", batch=2, expires=LONG)
        got = await first.messages(2)
        assert [sequence_of(msg) for msg in got] == [1, 2]
        pin = pin_of(got[0])
        assert len(pin) == 22 and pin_of(got[1]) == pin
        await second.nothing()
        group = await group_of(api)
        assert (group["group"], group["pinned_client_id"]) == ("A", pin)
        assert group["pinned_ts"] > "2020"
        await first.ask(group="A", id=pin, batch=2, expires=LONG)
        assert await first.sequences(2) == [3, 4]
        await second.nothing()

    async def test_the_header_comes_behind_those_of_the_message(self, api: Api) -> None:
        await consumer(api, "pinned_client", headers_only=True)
        await api.publish("s", b"data", K="v")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A")
        msg = await puller.message()
        assert msg.headers == {"K": "v", "Nats-Msg-Size": "4", "Nats-Pin-Id": pin_of(msg)}

    async def test_another_pin_is_refused(self, api: Api) -> None:
        await consumer(api, "pinned_client", 1)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A")
        await puller.message()
        await puller.ask(group="A", id="wrong")
        assert await puller.line() == "423 Nats-Pin-Id mismatch"

    async def test_a_pin_that_is_no_more(self, api: Api) -> None:
        """A client with an old pin gets a status when there is a message; another is pinned."""
        await consumer(api, "pinned_client")
        old, new = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await old.ask(group="A", id="old", batch=7, max_bytes=500, expires=LONG)
        await new.ask(group="A", expires=LONG)
        await old.nothing()
        await publish(api, 1)
        status = await old.status()
        assert status.line == "423 Nats-Wrong-Pin-Id"
        assert status.headers == {"Nats-Pending-Messages": "7", "Nats-Pending-Bytes": "500"}
        assert await new.sequences(1) == [1]

    async def test_unpin(self, api: Api) -> None:
        await consumer(api, "pinned_client", 1)
        first, second = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await first.ask(group="A", batch=5, expires=LONG)
        pin = pin_of(await first.message())
        await second.ask(group="A", batch=5, expires=LONG)
        await api.ok("CONSUMER.UNPIN.S.C", {"group": "A"})
        assert await group_of(api) == {"group": "A", "pinned_ts": "0001-01-01T00:00:00Z"}
        await publish(api, 2)
        assert await first.line() == "423 Nats-Wrong-Pin-Id"
        msg = await second.message()
        assert pin_of(msg) != pin
        assert (await group_of(api))["pinned_client_id"] == pin_of(msg)
        assert await second.sequences(1) == [3]

    async def test_what_cannot_be_unpinned(self, api: Api) -> None:
        await consumer(api, "pinned_client")
        for code, body in (
            (10025, b"{"),
            (10025, {}),
            (10162, {"group": "a b"}),
            (10160, {"group": "B"}),
        ):
            await api.fails("CONSUMER.UNPIN.S.C", code, body)
        await api.fails("CONSUMER.UNPIN.S.D", 10014, {"group": "A"})
        await api.fails("CONSUMER.UNPIN.T.C", 10059, {"group": "A"})

    async def test_a_pin_ends(self, api: Api) -> None:
        """A pin ends unless the client asks again in time."""
        await consumer(api, "pinned_client", 2, priority_timeout=300 * MS)
        first, second = [await Puller.of(api.nc, "S", "C") for _ in range(2)]
        await first.ask(group="A")
        pin = pin_of(await first.message())
        await second.ask(group="A", batch=5, expires=LONG)
        for _ in range(5):
            await asyncio.sleep(0.1)
            await first.ask(group="A", id=pin, expires=50 * MS)
            await first.next()
        await second.nothing()
        await publish(api, 1)
        assert await second.sequences(1) == [3]

    async def test_a_restart_forgets_it(
        self, start_jetstream: StartJetStream, connect: Any
    ) -> None:
        api = Api(await connect(await start_jetstream()))
        await consumer(api, "pinned_client", 2, durable_name="C", ack_policy="explicit")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A")
        pin = pin_of(await puller.message())
        api = Api(await connect(await start_jetstream()))
        assert "pinned_client_id" not in await group_of(api)
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A", id=pin, expires=LONG)
        assert await puller.line() == "423 Nats-Wrong-Pin-Id"
        await puller.ask(group="A", expires=LONG)
        assert sequence_of(await puller.message()) == 2

    async def test_it_is_told_of(self, api: Api) -> None:
        heard = await api.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
        await consumer(api, "pinned_client", 1, priority_timeout=200 * MS)
        await heard.next_msg(5)  # created
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(group="A", expires=LONG)
        pin = pin_of(await puller.message())
        pinned, unpinned = [json.loads((await heard.next_msg(5)).data) for _ in range(2)]
        assert (pinned["group"], pinned["pinned_id"]) == ("A", pin)
        assert (unpinned["group"], unpinned["reason"]) == ("A", "timeout")
        await api.ok("CONSUMER.UNPIN.S.C", {"group": "A"})
        assert json.loads((await heard.next_msg(5)).data)["reason"] == "admin"


class TestPrioritized:
    async def test_the_best_is_served_first(self, api: Api) -> None:
        await consumer(api, "prioritized")
        pullers = [await Puller.of(api.nc, "S", "C") for _ in range(3)]
        for puller, priority in zip(pullers, (5, 0, 1), strict=True):
            await puller.ask(group="A", batch=2, priority=priority, expires=LONG)
        await publish(api, 6)
        assert await pullers[1].sequences(2) == [1, 2]
        assert await pullers[2].sequences(2) == [3, 4]
        assert await pullers[0].sequences(2) == [5, 6]

    async def test_turns_inside_one_priority(self, api: Api) -> None:
        await consumer(api, "prioritized")
        pullers = [await Puller.of(api.nc, "S", "C") for _ in range(3)]
        await pullers[2].ask(group="A", batch=9, priority=3, expires=LONG)
        for puller in pullers[:2]:
            await puller.ask(group="A", batch=2, priority=2, expires=LONG)
        await publish(api, 6)
        assert await pullers[0].sequences(2) == [1, 3]
        assert await pullers[1].sequences(2) == [2, 4]
        assert await pullers[2].sequences(2) == [5, 6]

    async def test_who_names_none_comes_last(self, api: Api) -> None:
        await consumer(api, "prioritized")
        plain, worst, unsaid = [await Puller.of(api.nc, "S", "C") for _ in range(3)]
        await plain.ask(b"1")
        await worst.ask(group="A", priority=9, expires=LONG)
        await unsaid.ask(group="A", expires=LONG)
        await publish(api, 3)
        assert await unsaid.sequences(1) == [1]
        assert await worst.sequences(1) == [2]
        assert await plain.sequences(1) == [3]
