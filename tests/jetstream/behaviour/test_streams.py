"""Streams: create, update, info, names, list and delete."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream


async def test_created_with_defaults(api: Api) -> None:
    """The answer shows every default, and the server's version and API level (ADR-44)."""
    info = await api.ok("STREAM.CREATE.ORDERS", {"name": "ORDERS"})
    assert info["did_create"] is True
    config = info["config"]
    metadata = config.pop("metadata")
    assert config == {
        "name": "ORDERS",
        "subjects": ["ORDERS"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
        "duplicate_window": 120 * SECOND,
        "compression": "none",
        "allow_direct": False,
        "mirror_direct": False,
        "sealed": False,
        "deny_delete": False,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "consumer_limits": {},
        "allow_msg_ttl": False,
    } | {name: config[name] for name in config if config[name] is False}
    assert metadata["_nats.req.level"] == "0"
    assert metadata["_nats.level"] == "4"
    state = info["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 0, 0)
    assert state["first_ts"] == state["last_ts"] == "0001-01-01T00:00:00Z"
    assert state["consumer_count"] == 0


async def test_created_twice(api: Api) -> None:
    """The same configuration again is accepted; a different one is refused (10058)."""
    first = await api.create_stream("S", max_msgs=10)
    again = await api.create_stream("S", max_msgs=10)
    assert again["did_create"] is True  # as nats-server answers, although the stream existed
    assert again["created"] == first["created"]
    await api.refuses_stream("S", 10058, max_msgs=11)
    await api.refuses_stream("S", 10058, storage="file", max_msgs=10)


async def test_state_counts_what_is_stored(api: Api) -> None:
    """The state shows messages, bytes, first and last with their times, and subjects."""
    await api.create_stream("S", subjects=["s.*"])
    for number in range(6):
        await api.publish(f"s.{number % 3}", b"x" * number)
    await api.ok("STREAM.MSG.DELETE.S", {"seq": 3})
    state = await api.stream_state("S", deleted_details=True, subjects_filter=">")
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 1, 6)
    assert state["num_subjects"] == 3
    assert state["subjects"] == {"s.0": 2, "s.1": 2, "s.2": 1}
    assert (state["num_deleted"], state["deleted"]) == (1, [3])
    assert state["first_ts"] < state["last_ts"]
    plain = await api.stream_state("S")
    assert "deleted" not in plain
    assert "subjects" not in plain
    assert plain["num_deleted"] == 1


async def test_bytes_of_a_message(api: Api) -> None:
    """A message counts as many bytes as in nats-server, in memory and in a file."""
    await api.create_stream("M", storage="memory")
    await api.create_stream("F", storage="file")
    for stream in "MF":
        await api.publish(stream.lower(), b"hello")
    assert (await api.stream_state("M"))["bytes"] == 1 + 16 + 5
    assert (await api.stream_state("F"))["bytes"] == 22 + 1 + 5 + 8


async def test_subject_details_filtered(api: Api) -> None:
    await api.create_stream("S", subjects=["s.>"])
    for subject in ("s.a.1", "s.a.2", "s.b.1", "s.b.1"):
        await api.publish(subject)
    info = await api.ok("STREAM.INFO.S", {"subjects_filter": "s.*.1"})
    assert info["state"]["subjects"] == {"s.a.1": 1, "s.b.1": 2}
    assert info["state"]["num_subjects"] == 3
    assert (info["total"], info["offset"], info["limit"]) == (2, 0, 100_000)
    none = await api.ok("STREAM.INFO.S", {"subjects_filter": "t.>"})
    assert "subjects" not in none["state"]


async def test_names_and_list(api: Api) -> None:
    """Names are sorted, and can be filtered by subject."""
    for name in ("C", "A", "B"):
        await api.create_stream(name, subjects=[f"{name.lower()}.*", f"{name.lower()}x"])
    names = await api.ok("STREAM.NAMES")
    assert names["streams"] == ["A", "B", "C"]
    assert (names["total"], names["offset"], names["limit"]) == (3, 0, 1024)
    assert (await api.ok("STREAM.NAMES", {"subject": "b.1"}))["streams"] == ["B"]
    assert (await api.ok("STREAM.NAMES", {"subject": "*.1"}))["streams"] == ["A", "B", "C"]
    assert (await api.ok("STREAM.NAMES", {"subject": "none"}))["streams"] is None
    assert (await api.ok("STREAM.NAMES", {"offset": 2}))["streams"] == ["C"]
    listed = await api.ok("STREAM.LIST", {"offset": 1})
    assert [info["config"]["name"] for info in listed["streams"]] == ["B", "C"]
    assert (listed["total"], listed["offset"], listed["limit"]) == (3, 1, 256)
    narrow = await api.ok("STREAM.LIST", {"subject": "cx"})
    assert [info["config"]["name"] for info in narrow["streams"]] == ["C"]
    assert (await api.ok("STREAM.LIST", {"offset": 9}))["streams"] == []


async def test_deleted(api: Api) -> None:
    await api.create_stream("S")
    await api.publish("s")
    assert (await api.ok("STREAM.DELETE.S"))["success"] is True
    await api.fails("STREAM.DELETE.S", 10059)
    await api.fails("STREAM.INFO.S", 10059)
    await api.create_stream("S")
    assert (await api.publish("s"))["seq"] == 1


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_updated(api: Api, storage: str) -> None:
    """Limits, subjects, description, age and window change; messages over limits go."""
    await api.create_stream("S", storage=storage, subjects=["s.*"])
    for number in range(10):
        await api.publish(f"s.{number % 2}")
    updated = await api.update_stream(
        "S",
        storage=storage,
        subjects=["s.*", "t"],
        max_msgs=4,
        description="less of it",
        max_age=3600 * SECOND,
        duplicate_window=5 * SECOND,
        metadata={"owner": "me"},
    )
    assert updated["config"]["description"] == "less of it"
    assert updated["config"]["metadata"]["owner"] == "me"
    assert (updated["state"]["messages"], updated["state"]["first_seq"]) == (4, 7)
    assert (await api.publish("t"))["seq"] == 11
    await api.update_stream("S", storage=storage, subjects=["t"], max_msgs=4)
    with pytest.raises(Exception, match="no responders"):
        await api.publish("s.1")


REFUSED_UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any], int, str]] = {
    "storage": ({}, {"storage": "file"}, 10052, "can not change storage type"),
    "to work queue": ({}, {"retention": "workqueue"}, 10052, "change retention policy"),
    "from work queue": ({"retention": "workqueue"}, {}, 10052, "change retention policy"),
    "deny delete": ({"deny_delete": True}, {}, 10052, "can not cancel deny message deletes"),
    "deny purge": ({"deny_purge": True}, {}, 10052, "can not cancel deny purge"),
    "name": ({}, {"name": "T"}, 10056, ""),
    "no TTL any more": ({"allow_msg_ttl": True}, {}, 10052, "can not be disabled"),
}


@pytest.mark.parametrize("case", REFUSED_UPDATES)
async def test_update_refused(api: Api, case: str) -> None:
    """Changes that are not allowed are refused with the reason (`configUpdateCheck`)."""
    before, after, code, text = REFUSED_UPDATES[case]
    if (await api.request("STREAM.CREATE.S", {"name": "S", "storage": "memory", **before})).get(
        "error"
    ):
        pytest.skip("a stream of the next issue")
    body = {"name": "S", "storage": "memory", **after}
    assert text in await api.fails("STREAM.UPDATE.S", code, body)


@pytest.mark.parametrize("case", ["limits to interest", "interest to limits"])
async def test_retention_may_change(api: Api, case: str) -> None:
    before, _, after = case.split()
    await api.create_stream("S", retention=before)
    updated = await api.update_stream("S", retention=after)
    assert updated["config"]["retention"] == after


async def test_missing_is_not_updated(api: Api) -> None:
    await api.refuses_update("S", 10059)


async def test_sealed_by_update(api: Api) -> None:
    """Only an update seals a stream, permanently; then no message is added or removed (10109)."""
    await api.refuses_stream("S", 10052, sealed=True)
    await api.create_stream("S", max_age=3600 * SECOND)
    await api.fill("s", 3)
    config = (await api.update_stream("S", sealed=True, max_age=3600 * SECOND))["config"]
    assert (config["sealed"], config["max_age"], config["discard"]) == (True, 0, "new")
    assert (config["deny_delete"], config["deny_purge"]) == (True, True)
    await api.refuses_publish("s", 10109)
    await api.fails("STREAM.PURGE.S", 10109)
    await api.fails("STREAM.MSG.DELETE.S", 10109, {"seq": 1})
    await api.fails("STREAM.UPDATE.S", 10052, {**config, "sealed": False})
    assert (await api.stream_state("S"))["messages"] == 3
    await api.ok("STREAM.DELETE.S")


async def test_first_sequence(api: Api) -> None:
    await api.create_stream("S", first_seq=1000)
    state = await api.stream_state("S")
    assert (state["first_seq"], state["last_seq"]) == (1000, 999)
    assert (await api.publish("s"))["seq"] == 1000


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_restarted(start_jetstream: StartJetStream, connect: Connect, storage: str) -> None:
    """A file stream is restored unchanged; a memory stream is gone."""
    api = Api(await connect(await start_jetstream()))
    before = await api.create_stream("S", storage=storage, subjects=["s.*"], max_msgs=100)
    for number in range(20):
        await api.publish(f"s.{number}", b"%d" % number)
    await api.ok("STREAM.MSG.DELETE.S", {"seq": 7})
    state = await api.stream_state("S", deleted_details=True, subjects_filter=">")
    api = Api(await connect(await start_jetstream()))
    if storage == "memory":
        await api.fails("STREAM.INFO.S", 10059)
        return
    after = await api.ok("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})
    assert after["config"] == before["config"]
    assert after["created"] == before["created"]
    assert after["state"] == state
    assert (await api.publish("s.0"))["seq"] == 21


async def test_subjects_overlap(api: Api) -> None:
    """No subject belongs to two streams (10065)."""
    await api.create_stream("A", subjects=["a.*", "b"])
    for subject in ("a.1", "a.*", "a.>", "b", "*"):
        await api.refuses_stream("B", 10065, subjects=[subject])
    await api.create_stream("B", subjects=["a.*.c", "a"])
    await api.refuses_update("B", 10065, subjects=["a.c"])
    await api.ok("STREAM.DELETE.A")
    await api.update_stream("B", subjects=["a.c"])


async def test_changes_at_once(api: Api) -> None:
    """Simultaneous requests about one stream have one consistent outcome."""
    outcomes = await asyncio.gather(
        *(api.request("STREAM.CREATE.S", {"name": "S", "max_msgs": 5}) for _ in range(20))
    )
    assert not [outcome for outcome in outcomes if "error" in outcome]
    assert len({outcome["created"] for outcome in outcomes}) == 1


async def test_what_an_update_says_is_checked_before_its_name(api: Api) -> None:
    """Of several errors the configuration's is answered before the name's."""
    body = {"name": "OTHER", "subjects": ["x"], "max_age": -1}
    assert "max age" in await api.fails("STREAM.UPDATE.NONE", 10052, body)
    await api.fails("STREAM.UPDATE.NONE", 10056, {"name": "OTHER", "subjects": ["x"]})
    await api.fails("STREAM.UPDATE.NONE", 10059, {"name": "NONE", "subjects": ["x"]})


async def test_a_transform_to_nowhere_changes_nothing(api: Api) -> None:
    """An empty destination leaves subjects unchanged, before and after a restart."""
    await api.create_stream("S", subjects=["s.>"])
    for transform in ({}, {"src": "s.*"}, {"src": "", "dest": ""}):
        info = await api.update_stream("S", subjects=["s.>"], subject_transform=transform)
        assert info["config"]["subject_transform"] == {"src": "", "dest": "", **transform}
        await api.publish("s.a")
    message = (await api.ok("STREAM.MSG.GET.S", {"seq": 3}))["message"]
    assert message["subject"] == "s.a"
