"""`/summaryz` of a real server, requested over HTTP."""

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StorageType

from natsd import Server
from natsd.core.steps import at_once
from natsd.monitor.clock import Clock
from natsd.monitor.summary import history, summaryz
from natsd.monitor.summary.history import FIELDS, SAMPLES_MAX
from natsd.monitor.summary.ranking import TEXT_MAX
from natsd.monitor.summary.subjects import SUBSCRIPTIONS_MAX
from natsd.monitor.summary.summaryz import Summary
from natsd.monitor.turns import Turns
from tests.clients.wire import Wire
from tests.monitor.probing import Probe, closed_client, probing, probing_own


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every answer anew, and take samples often."""
    monkeypatch.setattr(summaryz, "PAUSE_S", 0.0)
    monkeypatch.setattr(summaryz, "PAUSE_FACTOR", 0)
    monkeypatch.setattr(history, "SAMPLE_S", 0.02)


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    async with probing() as probe:
        yield probe


async def test_it_says_who_the_server_is(probe: Probe) -> None:
    answer = await probe.get("/summaryz")
    server = answer["server"]
    assert (server["id"], server["port"]) == (probe.server.id, probe.server.client_port)
    assert answer["problems"] == []
    assert answer["jetstream"] is None
    assert answer["streams"] == answer["consumers"] == {"total": 0, "rows": []}


async def test_connections_and_subjects_have_rates_from_the_second_answer_on(probe: Probe) -> None:
    async with probe.client("alpha") as one, probe.client("beta") as two:
        await one.subscribe("orders.*")
        await one.subscribe("orders.*", queue="workers")
        await one.flush()
        first = await probe.get("/summaryz")
        for _ in range(30):
            await two.publish("orders.new", b"12345")
        await two.flush()
        second = await probe.get("/summaryz")
    assert [row["in_msgs_rate"] for row in first["connections"]["rows"]] == [None, None]
    rows = {row["name"]: row for row in second["connections"]["rows"]}
    assert rows["alpha"]["out_msgs_rate"] > 0
    assert (rows["beta"]["in_msgs"], rows["beta"]["in_bytes"]) == (30, 150)
    (subject,) = second["subjects"]["rows"]
    assert subject["msgs_rate"] > 0
    assert (subject["subject"], subject["msgs"]) == ("orders.*", 60)
    assert (subject["subscriptions"], subject["queue_subscriptions"]) == (2, 1)


async def test_inboxes_are_one_subject(probe: Probe) -> None:
    async with probe.client() as client:
        for name in ("_INBOX.a.*", "_INBOX.b.*", "_R_.x.y"):
            await client.subscribe(name)
        await client.flush()
        rows = (await probe.get("/summaryz"))["subjects"]["rows"]
    counts = {row["subject"]: row["subscriptions"] for row in rows}
    assert counts == {"_INBOX.>": 2, "_R_.>": 1}


async def test_subscriptions_beyond_the_bound_are_not_looked_at(probe: Probe) -> None:
    lines = b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(SUBSCRIPTIONS_MAX + 1))
    wire = await asyncio.to_thread(Wire, ("127.0.0.1", probe.server.client_port))
    wire.send(b"CONNECT {}\r\n" + lines)
    await asyncio.to_thread(wire.sync)
    async with probe.client() as client:
        await client.subscribe("few")
        await client.flush()
        answer = await probe.get("/summaryz")
    wire.close()
    assert answer["totals"]["subscriptions"] > SUBSCRIPTIONS_MAX
    assert answer["subjects"]["subscriptions_seen"] == 1


async def test_streams_and_consumers_are_shown(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"jetstream": {"store_dir": str(tmp_path)}, "http_port": -1}
    async with Server(host="127.0.0.1", port=-1, **settings) as server, probing_own(server) as own:
        async with own.client() as client:
            stream = client.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders.*", "x.>"], max_msgs=20)
            config = ConsumerConfig(durable_name="billing", max_ack_pending=7)
            await stream.add_consumer("ORDERS", config)
            await own.get("/summaryz")
            for _ in range(10):
                await stream.publish("orders.new", b"two apples")
            pulled = await stream.pull_subscribe_bind(consumer="billing", stream="ORDERS")
            await pulled.fetch(4)
            answer = await own.get("/summaryz")
    (row,) = answer["streams"]["rows"]
    assert (row["name"], row["messages"], row["consumers"], row["full"]) == ("ORDERS", 10, 1, 0.5)
    assert (row["subjects"], row["last_seq"]) == (["orders.*", "x.>"], 10)
    assert row["msgs_rate"] > 0
    assert row["first_ts"] <= row["last_ts"]
    (row,) = answer["consumers"]["rows"]
    assert (row["stream"], row["name"], row["push"]) == ("ORDERS", "billing", False)
    assert (row["num_pending"], row["num_ack_pending"], row["max_ack_pending"]) == (6, 4, 7)
    assert row["msgs_rate"] > 0
    into = [row for row in answer["subjects"]["rows"] if row["stream"]]
    assert [(row["subject"], row["stream"], row["msgs"]) for row in into] == [
        ("orders.* (+1)", "ORDERS", 10)
    ]
    js = answer["jetstream"]
    assert (js["streams"], js["consumers"], js["messages"]) == (1, 1, 10)
    account = next(row for row in answer["accounts"]["rows"] if row["name"] == "$G")
    assert (account["streams"], account["storage"]) == (1, js["storage"])


@pytest.mark.parametrize("before", range(0, 30, 4))
async def test_what_ends_between_two_steps_is_left_out_or_shown(
    tmp_path: Path, before: int
) -> None:
    """Everything is deleted after so many steps."""
    async with Server(host="127.0.0.1", port=-1, jetstream={"store_dir": str(tmp_path)}) as server:
        client = await nats.connect(server.client_url)
        stream = client.jetstream()
        for name in ("A", "B", "C"):
            await stream.add_stream(name=name, subjects=[name], storage=StorageType.MEMORY)
            for durable in ("one", "two"):
                await stream.add_consumer(name, ConsumerConfig(durable_name=durable))
        summary = Summary(server, Clock(), Turns())
        steps = summary._make()
        for _ in range(before):
            next(steps, None)
        await stream.delete_consumer("A", "one")
        for name in ("A", "B", "C"):
            await stream.delete_stream(name)
        await client.close()
        at_once(steps)
        answer = await summary.answer(0)
    assert answer["streams"] == {"total": 0, "rows": []}


async def test_slow_consumers_are_the_latest_first(probe: Probe) -> None:
    for cid in range(30):
        client = closed_client(cid)
        client.reason = "Slow Consumer (Pending Bytes)" if cid % 2 else "Client Closed"
        probe.server.closed_clients.append(client)
    rows = (await probe.get("/summaryz"))["slow_consumers"]["rows"]
    assert [row["cid"] for row in rows] == list(range(29, 0, -2))


async def test_a_token_is_not_shown() -> None:
    async with probing(token="s3cr3t-token") as probe, probe.client(token="s3cr3t-token"):
        answer = await probe.get("/summaryz")
        assert [row["user"] for row in answer["connections"]["rows"]] == ["[REDACTED]"]
        assert "s3cr3t-token" not in json.dumps(answer)


async def test_hostile_texts_are_cut_and_valid(probe: Probe) -> None:
    wire = await asyncio.to_thread(Wire, ("127.0.0.1", probe.server.client_port))
    name = json.dumps({"name": "<script>" + "x" * 3000}).encode()
    wire.send(b"CONNECT " + name + b"\r\n")
    wire.send(b"SUB a\xff\xfe.<b> 1\r\nSUB " + b"long" * 900 + b" 2\r\n")
    await asyncio.to_thread(wire.sync)
    status, answer, headers = await probe.ask("/summaryz")
    wire.close()
    assert status == 200
    (row,) = answer["connections"]["rows"]
    assert row["name"].startswith("<script>xxx")
    assert len(row["name"]) == TEXT_MAX
    assert max(len(row["subject"]) for row in answer["subjects"]["rows"]) == TEXT_MAX
    assert "no-store" in headers["Cache-Control"]


async def test_the_history_is_asked_for_from_a_sample_on(probe: Probe) -> None:
    async with probe.client() as client:
        await client.subscribe("a")
        for _ in range(50):
            await client.publish("a", b"x")
        await client.flush()
        await _samples(probe, 5)
    told = (await probe.get("/summaryz"))["history"]
    columns = [told[field] for field in FIELDS]
    assert {len(column) for column in columns} == {told["last"]}
    assert max(told["in_msgs"]) > 0
    assert max(told["connections"]) == 1
    assert told["time"] == sorted(told["time"])
    later = (await probe.get(f"/summaryz?after={told['last'] - 1}"))["history"]
    assert len(later["time"]) == later["last"] - told["last"] + 1
    all_again = (await probe.get(f"/summaryz?after={10**6}"))["history"]
    assert len(all_again["time"]) == all_again["last"]
    assert all_again["samples_max"] == SAMPLES_MAX


async def _samples(probe: Probe, count: int) -> None:
    """Wait until the history has that many samples."""
    taken = 0
    while taken < count:
        taken = (await probe.get("/summaryz"))["history"]["last"]


async def test_many_viewers_share_an_answer(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaryz, "PAUSE_S", 60.0)
    answers = await asyncio.gather(*(probe.get("/summaryz") for _ in range(20)))
    assert len({answer["server"]["now"] for answer in answers}) == 1


async def test_what_only_viewers_need_is_freed(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = Summary(probe.server, Clock(), Turns())
    async with probe.client() as client:
        await client.flush()
        await summary.answer(0)
        assert summary._is_watched()
        (row,) = (await summary.answer(0))["connections"]["rows"]
        assert row["in_msgs_rate"] == 0
        monkeypatch.setattr(summaryz, "WATCHED_S", 0.0)
        assert not summary._is_watched()
        (row,) = (await summary.answer(0))["connections"]["rows"]
        assert row["in_msgs_rate"] is None


async def test_many_connections_and_subjects_are_looked_at_in_short_steps(probe: Probe) -> None:
    lines = b"".join(b"SUB subject.%d %d\r\n" % (n, n) for n in range(3000))
    wires = []
    for _ in range(3):
        wire = await asyncio.to_thread(Wire, ("127.0.0.1", probe.server.client_port))
        wire.send(b"CONNECT {}\r\n" + lines)
        await asyncio.to_thread(wire.sync)
        wires.append(wire)
    for cid in range(5000):
        probe.server.closed_clients.append(closed_client(cid))
    steps, took_s = Summary(probe.server, Clock(), Turns())._make(), []
    gc.disable()
    try:
        with contextlib.suppress(StopIteration):
            while True:
                began_s = time.thread_time()
                next(steps)
                took_s.append(time.thread_time() - began_s)
    finally:
        gc.enable()
    assert len(took_s) > 100
    assert sorted(took_s)[len(took_s) * 99 // 100] < 0.005
    for wire in wires:
        wire.close()


async def test_a_bad_sequence_is_refused(probe: Probe) -> None:
    assert (await probe.ask("/summaryz?after=x"))[0] == 400
