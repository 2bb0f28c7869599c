"""Consumers: every form of create, start positions, filters, updates and pause."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller, pending_of, sequence_of

PULL = {"deliver_policy": "all", "ack_policy": "explicit", "replay_policy": "instant"}


async def stream(api: Api, messages: int = 0, **config: Any) -> None:
    """Create stream S with messages 1 s.a, 2 s.b, 3 s.c, 4 s.a, …"""
    await api.create_stream("S", subjects=["s.>"], **config)
    for number in range(messages):
        await api.publish(f"s.{'abc'[number % 3]}", b"%d" % (number + 1))


async def all_of(api: Api, name: str, count: int = 100) -> list[int]:
    """Return the sequences that the consumer delivers now."""
    puller = await Puller.of(api.nc, "S", name)
    await puller.ask(batch=count, expires=300 * MS, no_wait=False)
    got = []
    while not ((message := await puller.next()).headers or {}).get("Status"):
        got.append(sequence_of(message))
    return got


class TestCreate:
    async def test_defaults_of_pull(self, api: Api) -> None:
        await stream(api)
        info = await api.create_consumer("S", "C")
        config = info["config"]
        metadata = config.pop("metadata")
        assert metadata["_nats.req.level"] == "0"
        assert config == {
            "durable_name": "C",
            "name": "C",
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": 30 * SECOND,
            "max_deliver": -1,
            "replay_policy": "instant",
            "max_waiting": 512,
            "max_ack_pending": 1000,
            "num_replicas": 0,
        }
        assert info["stream_name"] == "S"
        assert info["delivered"] == {"consumer_seq": 0, "stream_seq": 0}
        assert info["ack_floor"] == {"consumer_seq": 0, "stream_seq": 0}
        counts = ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
        assert [info[name] for name in counts] == [0, 0, 0, 0]

    async def test_defaults_of_push(self, api: Api) -> None:
        await stream(api)
        config = (await api.create_consumer("S", "C", deliver_subject="d"))["config"]
        assert "max_waiting" not in config
        assert config["max_ack_pending"] == 1000
        none = await api.create_consumer("S", "N", deliver_subject="n", ack_policy="none")
        assert none["config"].get("max_ack_pending", 0) == 0

    async def test_ephemeral(self, api: Api) -> None:
        await stream(api)
        info = await api.create_consumer("S", "")
        assert len(info["name"]) == 8
        assert "durable_name" not in info["config"]
        assert info["config"]["inactive_threshold"] == 5 * SECOND

    async def test_named_ephemeral(self, api: Api) -> None:
        await stream(api)
        body = {"stream_name": "S", "config": {**PULL, "name": "E"}}
        info = await api.ok("CONSUMER.CREATE.S.E", body)
        assert info["name"] == "E"
        assert "durable_name" not in info["config"]

    async def test_legacy_durable(self, api: Api) -> None:
        await stream(api)
        body = {"stream_name": "S", "config": {**PULL, "durable_name": "D"}}
        assert (await api.ok("CONSUMER.DURABLE.CREATE.S.D", body))["name"] == "D"
        await api.fails("CONSUMER.DURABLE.CREATE.S.E", 10017, body)
        body["config"] = PULL
        await api.fails("CONSUMER.DURABLE.CREATE.S.E", 10018, body)

    async def test_filter_in_the_subject(self, api: Api) -> None:
        await stream(api)
        body = {"stream_name": "S", "config": {**PULL, "name": "F", "filter_subject": "s.a.b"}}
        info = await api.ok("CONSUMER.CREATE.S.F.s.a.b", body)
        assert info["config"]["filter_subject"] == "s.a.b"
        await api.fails("CONSUMER.CREATE.S.F.s.x", 10131, body)
        body["config"] = {**PULL, "name": "F", "filter_subjects": ["s.a", "s.b"]}
        await api.fails("CONSUMER.CREATE.S.F.s.a", 10137, body)

    async def test_wrong_names(self, api: Api) -> None:
        await stream(api)
        await api.fails(
            "CONSUMER.CREATE.S.C", 10056, {"stream_name": "T", "config": {**PULL, "name": "C"}}
        )
        both = {**PULL, "name": "C", "durable_name": "D"}
        await api.fails("CONSUMER.CREATE.S.C", 10017, {"stream_name": "S", "config": both})
        await api.fails(
            "CONSUMER.CREATE.T.C", 10059, {"stream_name": "T", "config": {**PULL, "name": "C"}}
        )

    async def test_again(self, api: Api) -> None:
        """The same configuration is accepted, allowed changes are made, and others are refused."""
        await stream(api)
        first = await api.create_consumer("S", "C", description="one")
        again = await api.create_consumer("S", "C", description="one")
        assert again["created"] == first["created"]
        updated = await api.create_consumer("S", "C", description="two", ack_wait=5 * SECOND)
        assert updated["config"]["description"] == "two"
        assert updated["created"] == first["created"]
        for change in (
            {"deliver_policy": "new"},
            {"ack_policy": "none"},
            {"deliver_subject": "d"},
            {"replay_policy": "original"},
        ):
            await api.refuses_consumer("S", "C", 10012, **change)

    async def test_actions(self, api: Api) -> None:
        """The actions `create` and `update` refuse an existing and a missing consumer."""
        await stream(api)
        await api.refuses_consumer("S", "C", 10149, action="update")
        await api.create_consumer("S", "C", action="create")
        await api.create_consumer("S", "C", action="create")
        await api.refuses_consumer("S", "C", 10148, action="create", description="other")
        await api.create_consumer("S", "C", action="update", description="other")
        await api.refuses_consumer("S", "C", 10025, action="burn")

    async def test_created_as_it_is_keeps_its_required_level(self, api: Api) -> None:
        """A negative priority_timeout has no effect, but requires API level 1."""
        await stream(api)
        first = await api.create_consumer("S", "C", priority_timeout=-1)
        again = await api.create_consumer("S", "C", action="create")
        assert again["config"] == first["config"]
        assert again["config"]["metadata"]["_nats.req.level"] == "1"
        updated = await api.create_consumer("S", "C")
        assert updated["config"]["metadata"]["_nats.req.level"] == "0"

    async def test_deleted(self, api: Api) -> None:
        await stream(api)
        await api.create_consumer("S", "C")
        assert (await api.ok("CONSUMER.DELETE.S.C"))["success"] is True
        await api.fails("CONSUMER.DELETE.S.C", 10014)
        await api.fails("CONSUMER.INFO.S.C", 10014)
        await api.fails("CONSUMER.DELETE.T.C", 10059)
        assert (await api.stream_state("S"))["consumer_count"] == 0

    async def test_at_most_so_many(self, api: Api) -> None:
        await stream(api, max_consumers=2)
        await api.create_consumer("S", "A")
        await api.create_consumer("S", "B")
        await api.refuses_consumer("S", "C", 10026)
        await api.create_consumer("S", "A", description="an update is none more")

    async def test_limits_of_the_stream(self, api: Api) -> None:
        """The stream's `consumer_limits` set defaults and maximums."""
        limits = {"max_ack_pending": 50, "inactive_threshold": 60 * SECOND}
        await stream(api, consumer_limits=limits)
        config = (await api.create_consumer("S", "C"))["config"]
        assert (config["max_ack_pending"], config["inactive_threshold"]) == (50, 60 * SECOND)
        await api.refuses_consumer("S", "D", 10121, max_ack_pending=51)
        await api.refuses_consumer("S", "D", 10153, inactive_threshold=61 * SECOND)


class TestStart:
    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            ({}, [1, 2, 3, 4, 5, 6]),
            ({"deliver_policy": "last"}, [6]),
            ({"deliver_policy": "last", "filter_subject": "s.a"}, [4]),
            ({"deliver_policy": "new"}, []),
            ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, [3, 4, 5, 6]),
            ({"deliver_policy": "by_start_sequence", "opt_start_seq": 99}, []),
            ({"deliver_policy": "last_per_subject", "filter_subject": "s.>"}, [4, 5, 6]),
            ({"deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.c"]}, [4, 6]),
            ({"filter_subject": "s.b"}, [2, 5]),
            ({"filter_subjects": ["s.b", "s.c"]}, [2, 3, 5, 6]),
            ({"filter_subject": "s.none"}, []),
        ],
    )
    async def test_where_it_begins(
        self, api: Api, config: dict[str, Any], expected: list[int]
    ) -> None:
        await stream(api, 6)
        info = await api.create_consumer("S", "C", **config)
        assert info["num_pending"] == len(expected)
        assert await all_of(api, "C") == expected

    async def test_by_time(self, api: Api) -> None:
        await stream(api, 6)
        found = await api.ok("STREAM.MSG.GET.S", {"seq": 4})
        info = await api.create_consumer(
            "S", "C", deliver_policy="by_start_time", opt_start_time=found["message"]["time"]
        )
        assert info["num_pending"] == 3
        assert await all_of(api, "C") == [4, 5, 6]

    async def test_new_ones_only(self, api: Api) -> None:
        await stream(api, 3)
        await api.create_consumer("S", "C", deliver_policy="new")
        await api.publish("s.z")
        assert await all_of(api, "C") == [4]

    async def test_last_then_all(self, api: Api) -> None:
        """`last_per_subject` delivers the last message of each subject, then all new ones."""
        await stream(api, 6)
        await api.create_consumer("S", "C", deliver_policy="last_per_subject", filter_subject="s.>")
        for _ in range(2):
            await api.publish("s.a")
        assert await all_of(api, "C") == [4, 5, 6, 7, 8]

    async def test_new_one_comes_before_it_was_read(
        self, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        """`new` starts at the creation of the consumer, also after restarts."""
        api = Api(await connect(await start_jetstream()))
        await stream(api, 3, storage="file")
        await api.create_consumer("S", "C", deliver_policy="new")
        await api.publish("s.z")
        api = Api(await connect(await start_jetstream()))
        await api.publish("s.z")
        assert await all_of(api, "C") == [4, 5]

    @pytest.mark.parametrize(
        "config",
        [
            {"deliver_policy": "all", "opt_start_seq": 3},
            {"deliver_policy": "by_start_sequence"},
            {"deliver_policy": "by_start_time"},
            {"deliver_policy": "last", "opt_start_time": "2020-01-01T00:00:00Z"},
            {"deliver_policy": "last_per_subject"},
            {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": 1,
                "opt_start_time": "2020-01-01T00:00:00Z",
            },
        ],
    )
    async def test_mismatch(self, api: Api, config: dict[str, Any]) -> None:
        await stream(api)
        await api.refuses_consumer("S", "C", 10094, **config)


class TestFilters:
    async def test_rules(self, api: Api) -> None:
        await stream(api)
        refused: list[tuple[int, dict[str, Any]]] = [
            (10136, {"filter_subject": "s.a", "filter_subjects": ["s.b"]}),
            (10138, {"filter_subjects": ["s.a", "s.*"]}),
            (10139, {"filter_subjects": ["s.a", ""]}),
        ]
        for code, config in refused:
            await api.refuses_consumer("S", "C", code, **config)

    async def test_wildcards(self, api: Api) -> None:
        await stream(api)
        for subject in ("s.a.1", "s.a.2", "s.b.1", "s.a", "s.a.1.x"):
            await api.publish(subject)
        for name, subject, expected in (
            ("A", "s.a.*", [1, 2]),
            ("B", "s.*.1", [1, 3]),
            ("C", "s.a.>", [1, 2, 5]),
            ("D", "s.*", [4]),
        ):
            info = await api.create_consumer("S", name, filter_subject=subject)
            assert info["num_pending"] == len(expected)
            assert await all_of(api, name) == expected

    async def test_changed(self, api: Api) -> None:
        """Messages before the position are not delivered again; pending is counted anew."""
        await stream(api, 6)
        await api.create_consumer("S", "C", filter_subject="s.a")
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask()
        assert await puller.sequences(1) == [1]
        info = await api.create_consumer("S", "C", filter_subjects=["s.b", "s.c"])
        assert info["num_pending"] == 4
        assert await all_of(api, "C") == [2, 3, 5, 6]

    async def test_pending_in_replies(self, api: Api) -> None:
        await stream(api, 9)
        await api.create_consumer("S", "C", filter_subjects=["s.a", "s.c"])
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=6)
        assert [pending_of(m) for m in await puller.messages(6)] == [5, 4, 3, 2, 1, 0]


class TestPause:
    def until(self, seconds: float) -> str:
        moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def test_nothing_until_then(self, api: Api) -> None:
        await stream(api, 2)
        await api.create_consumer("S", "C")
        answer = await api.ok("CONSUMER.PAUSE.S.C", {"pause_until": self.until(0.5)})
        assert answer["paused"] is True
        assert 0 < answer["pause_remaining"] <= SECOND // 2
        info = await api.consumer_info("S", "C")
        assert info["paused"] is True
        assert info["pause_remaining"] > 0
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask(batch=2)
        await puller.nothing()
        assert await puller.sequences(2) == [1, 2]
        assert "paused" not in await api.consumer_info("S", "C")

    async def test_resumed(self, api: Api) -> None:
        await stream(api, 1)
        await api.create_consumer("S", "C", pause_until=self.until(3600))
        assert (await api.consumer_info("S", "C"))["paused"] is True
        puller = await Puller.of(api.nc, "S", "C")
        await puller.ask()
        await puller.nothing()
        answer = await api.ok("CONSUMER.PAUSE.S.C", {})
        assert answer["paused"] is False
        await api.publish("s.x")
        assert await puller.sequences(1) == [1]

    async def test_survives(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        api = Api(await connect(await start_jetstream()))
        await stream(api, 1, storage="file")
        await api.create_consumer("S", "C")
        until = self.until(3600)
        await api.ok("CONSUMER.PAUSE.S.C", {"pause_until": until})
        api = Api(await connect(await start_jetstream()))
        info = await api.consumer_info("S", "C")
        assert info["paused"] is True
        assert info["config"]["pause_until"][:20] == until[:20]

    async def test_heartbeats_go_on(self, api: Api) -> None:
        await stream(api, 1)
        listener = await api.nc.subscribe("d")
        await api.create_consumer(
            "S", "C", deliver_subject="d", idle_heartbeat=100 * MS, pause_until=self.until(3600)
        )
        message = await listener.next_msg(5)
        assert (message.headers or {})["Description"] == "Idle Heartbeat"

    async def test_missing(self, api: Api) -> None:
        await stream(api)
        await api.fails("CONSUMER.PAUSE.S.C", 10014, {"pause_until": self.until(1)})


class TestInactive:
    async def test_pull(self, api: Api) -> None:
        """An ephemeral without pull requests is deleted after `inactive_threshold`."""
        await stream(api)
        name = (await api.create_consumer("S", "", inactive_threshold=300 * MS))["name"]
        puller = await Puller.of(api.nc, "S", name)
        await puller.ask(batch=1, expires=800 * MS)
        assert await puller.line() == "408 Request Timeout"
        assert (await api.consumer_info("S", name))["name"] == name
        await api.until_consumers("S", 0)

    async def test_durable_with_a_threshold(self, api: Api) -> None:
        await stream(api)
        await api.create_consumer("S", "C", inactive_threshold=100 * MS)
        await api.until_consumers("S", 0)


class TestLists:
    async def test_names_and_list(self, api: Api) -> None:
        await stream(api)
        for name in ("C", "A", "B"):
            await api.create_consumer("S", name)
        names = await api.ok("CONSUMER.NAMES.S")
        assert names["consumers"] == ["A", "B", "C"]
        assert (names["total"], names["offset"], names["limit"]) == (3, 0, 1024)
        listed = await api.ok("CONSUMER.LIST.S", {"offset": 1})
        assert [info["name"] for info in listed["consumers"]] == ["B", "C"]
        assert (listed["total"], listed["offset"], listed["limit"]) == (3, 1, 256)
        assert (await api.ok("CONSUMER.NAMES.S", {"offset": 9}))["consumers"] == []
        await api.fails("CONSUMER.NAMES.T", 10059)
        await api.fails("CONSUMER.LIST.T", 10059)

    async def test_pages(self, api: Api) -> None:
        await stream(api)
        for number in range(260):
            await api.create_consumer("S", f"C{number:03}")
        first = await api.ok("CONSUMER.LIST.S")
        assert (len(first["consumers"]), first["total"]) == (256, 260)
        rest = await api.ok("CONSUMER.LIST.S", {"offset": 256})
        assert [info["name"] for info in rest["consumers"]] == ["C256", "C257", "C258", "C259"]


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "rate limit of pull": (10086, {"rate_limit_bps": 1000}),
    "heartbeat of pull": (10088, {"idle_heartbeat": SECOND}),
    "flow control of pull": (10089, {"flow_control": True}),
    "max waiting of push": (10080, {"deliver_subject": "d", "max_waiting": 3}),
    "negative ack wait": (10183, {"ack_wait": -1}),
    "negative backoff": (10184, {"backoff": [-1, 2]}),
    "backoff longer than max deliver": (10116, {"backoff": [1, 2, 3], "max_deliver": 2}),
    "sampling": (10095, {"sample_freq": "often"}),
    "description": (10107, {"description": "x" * 5000}),
    "max expires": (10115, {"max_expires": 1000}),
    "replicas": (10074, {"num_replicas": 3}),
    "a priority policy without groups": (10159, {"priority_policy": "overflow"}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refused(api: Api, case: str) -> None:
    await stream(api)
    code, config = REFUSED[case]
    await api.refuses_consumer("S", "C", code, **config)


ADJUSTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "max waiting": ({"max_waiting": -1}, {"max_waiting": 512}),
    "max deliver": ({"max_deliver": 0}, {"max_deliver": -1}),
    "ack wait": ({"ack_wait": 0}, {"ack_wait": 30 * SECOND}),
    "backoff": ({"backoff": [SECOND, 2 * SECOND]}, {"ack_wait": SECOND}),
    "one filter of many": ({"filter_subjects": ["s.a"]}, {"filter_subjects": ["s.a"]}),
    "max ack pending": ({"max_ack_pending": -1}, {"max_ack_pending": -1}),
}


@pytest.mark.parametrize("case", ADJUSTED)
async def test_adjusted(api: Api, case: str) -> None:
    """Open and senseless settings take their defaults (`setConsumerConfigDefaults`)."""
    await stream(api)
    given, expected = ADJUSTED[case]
    config = (await api.create_consumer("S", "C", **given))["config"]
    assert {name: config.get(name) for name in expected} == expected
