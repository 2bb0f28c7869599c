"""JetStream in the monitoring endpoints: /varz, /jsz and /healthz."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StorageType, StreamSource

from natsd import Server
from natsd.monitor.answers import Answers
from natsd.monitor.clock import Clock
from natsd.monitor.query import Query
from natsd.store.errors import StoreReadOnly
from tests.monitor.probing import Probe, probing, probing_own
from tests.waiting import Eventually

# The keys of nats-server 2.14.5's answers.
JSZ = """
    memory storage reserved_memory reserved_storage accounts ha_assets api server_id now config
    limits scrub streams consumers messages bytes total"""
JSZ_DISABLED = """
    memory storage reserved_memory reserved_storage accounts ha_assets api server_id now disabled
    config streams consumers messages bytes total"""
ACCOUNT = """
    name id memory storage reserved_memory reserved_storage accounts ha_assets api"""
STREAM = "name created cluster state"
CONSUMER = """
    stream_name name created delivered ack_floor num_ack_pending num_redelivered num_waiting
    num_pending ts"""
NO_LIMIT = 2**64 - 1


@pytest.fixture
async def probe(tmp_path: Path) -> AsyncIterator[Probe]:
    """Yield a server with two streams.

    FILE has three messages and a consumer; MEMORY has one message.
    """
    settings = {"max_mem": "1M", "max_file": "1G", "limits": {"max_ack_pending": 5}}
    async with probing(jetstream=settings, store_dir=tmp_path) as probe, probe.client() as client:
        stream = client.jetstream()
        await stream.add_stream(name="FILE", subjects=["f.*"], max_bytes=1 << 20)
        await stream.add_stream(name="MEMORY", subjects=["m"], storage=StorageType.MEMORY)
        await stream.pull_subscribe("f.*", "C", "FILE")
        for subject in ("f.1", "f.2", "f.3", "m"):
            await stream.publish(subject, b"hello")
        yield probe


def keys(answer: dict[str, Any]) -> str:
    return " ".join(answer)


def same_keys(answer: dict[str, Any], expected: str) -> bool:
    return list(answer) == expected.split()


async def test_varz_tells_settings_use_and_bounds(probe: Probe, tmp_path: Path) -> None:
    block = (await probe.get("/varz"))["jetstream"]
    assert list(block) == ["config", "stats", "limits"]
    assert block["config"] == {
        "max_memory": 1 << 20,
        "max_storage": 1 << 30,
        "store_dir": str(tmp_path / "jetstream"),
        "sync_interval": 120_000_000_000,  # as nats-server shows it beside sync_always
        "sync_always": True,
        "compress_ok": True,
        "strict": True,
    }
    assert block["limits"] == {"max_ack_pending": 5}
    stats = block["stats"]
    assert stats["accounts"] == 1
    assert (stats["reserved_memory"], stats["reserved_storage"]) == (0, 1 << 20)
    assert stats["memory"] > 0
    assert stats["storage"] > stats["memory"]
    assert stats["api"]["level"] == 4
    assert (
        stats["api"]["total"] > stats["api"]["errors"] == 1
    )  # the error: nats-py asks for consumer C before it makes it


async def test_jsz_counts_everything(probe: Probe) -> None:
    jsz = await probe.get("/jsz")
    assert same_keys(jsz, JSZ), keys(jsz)
    assert (jsz["streams"], jsz["consumers"], jsz["messages"]) == (2, 1, 4)
    assert jsz["bytes"] == jsz["memory"] + jsz["storage"]
    assert jsz["total"] == 1


async def test_jsz_tells_of_scrubs(probe: Probe) -> None:
    engine = probe.server.jetstream
    assert engine is not None
    assert (await probe.get("/jsz"))["scrub"] == {
        "interval": 7 * 24 * 3600 * 1_000_000_000,
        "speed": 8 << 20,
        "runs": 0,
        "repaired_blocks": 0,
        "repaired_messages": 0,
    }
    await engine.scrubber.scrub()
    scrub = (await probe.get("/jsz"))["scrub"]
    assert scrub["runs"] == 1
    assert scrub["last"]["streams"] == 2
    assert scrub["last"]["repaired"] == scrub["last"]["damaged"] == 0


async def test_jsz_by_account(probe: Probe) -> None:
    for query in ("accounts=1", "acc=$G", "accounts=true&acc=nobody"):
        [account] = (await probe.get(f"/jsz?{query}"))["account_details"]
        assert same_keys(account, ACCOUNT), keys(account)
        assert (account["name"], account["id"]) == ("$G", "$G")
        assert account["reserved_memory"] == account["reserved_storage"] == NO_LIMIT
    assert "account_details" not in await probe.get("/jsz?acc=nobody")


async def test_jsz_pages_its_accounts(probe: Probe) -> None:
    assert "account_details" not in await probe.get("/jsz?accounts=1&offset=1")
    assert len((await probe.get("/jsz?accounts=1&limit=-1"))["account_details"]) == 1


async def test_jsz_by_stream(probe: Probe) -> None:
    [account] = (await probe.get("/jsz?streams=1"))["account_details"]
    file, memory = account["stream_detail"]
    assert same_keys(file, STREAM), keys(file)
    assert (file["name"], file["state"]["messages"], file["state"]["consumer_count"]) == (
        "FILE",
        3,
        1,
    )
    assert (memory["name"], memory["state"]["num_subjects"]) == ("MEMORY", 1)


async def test_a_stream_is_deleted_while_its_consumers_are_written(probe: Probe) -> None:
    answers = Answers(probe.server, Clock(), 0)
    answer = await answers.jsz(Query({"consumers": "1"}))
    [account] = answer["account_details"]
    file = next(account["stream_detail"])
    assert file["name"] == "FILE"
    async with probe.client() as client:
        await client.jetstream().delete_stream("FILE")
    assert list(file["consumer_detail"]) == []


async def test_jsz_of_streams_that_are_filled_from_others(probe: Probe) -> None:
    async with probe.client() as client:
        stream, origin = client.jetstream(), StreamSource(name="MEMORY")
        await stream.add_stream(name="MIRROR", mirror=origin)
        await stream.add_stream(name="SOURCED", sources=[origin])
    [account] = (await probe.get("/jsz?streams=1"))["account_details"]
    details = {detail["name"]: detail for detail in account["stream_detail"]}
    assert details["MIRROR"]["mirror"]["name"] == "MEMORY"
    assert [source["name"] for source in details["SOURCED"]["sources"]] == ["MEMORY"]


async def test_jsz_shows_the_consumers_of_mirrors_and_sources_when_asked(
    probe: Probe, eventually: Eventually
) -> None:
    async with probe.client() as client:
        stream, origin = client.jetstream(), StreamSource(name="FILE")
        await stream.add_stream(name="MIRROR", mirror=origin)
        await stream.add_stream(name="SOURCED", sources=[origin])
        engine = probe.server.jetstream
        assert engine is not None
        reading = engine.accounts["$G"].streams["FILE"].consumers
        await eventually(lambda: len(reading) == 3)
        assert (await stream.account_info()).consumers == 3
        assert (await stream.stream_info("FILE")).state.consumer_count == 1
    jsz = await probe.get("/jsz?consumers=1&raft=1")
    file = jsz["account_details"][0]["stream_detail"][0]
    assert jsz["consumers"] == jsz["consumers_leader"] == file["state"]["consumer_count"] == 1
    assert [each["name"] for each in file["consumer_detail"]] == ["C"]
    assert "direct_consumer_detail" not in file
    [account] = (await probe.get("/jsz?consumers=1&direct-consumers=1"))["account_details"]
    file, direct = account["stream_detail"][0], "direct_consumer_detail"
    assert same_keys(file, f"{STREAM} consumer_detail {direct}"), keys(file)
    assert [each["name"] for each in file["consumer_detail"]] == ["C"]
    assert [each["name"].split("_")[:2] for each in file[direct]] == [
        ["JS", "MIRROR"],
        ["JS", "SRC"],
    ]
    [account] = (await probe.get("/jsz?streams=1&direct-consumers=1"))["account_details"]
    assert direct not in account["stream_detail"][0]


async def test_jsz_by_consumer_with_settings(probe: Probe) -> None:
    [account] = (await probe.get("/jsz?consumers=1"))["account_details"]
    [consumer] = account["stream_detail"][0]["consumer_detail"]
    assert same_keys(consumer, CONSUMER), keys(consumer)
    assert (consumer["name"], consumer["num_pending"]) == ("C", 3)
    [account] = (await probe.get("/jsz?acc=$G&consumers=1&config=1"))["account_details"]
    file = account["stream_detail"][0]
    assert file["config"]["subjects"] == ["f.*"]
    assert file["consumer_detail"][0]["config"]["durable_name"] == "C"


async def test_jsz_one_server_leads_all_it_has(probe: Probe) -> None:
    jsz = await probe.get("/jsz?raft=1&leader-only=1&stream-leader-only=1&streams=1")
    assert (jsz["streams_leader"], jsz["consumers_leader"]) == (2, 1)


async def test_without_jetstream() -> None:
    async with probing() as probe:
        jsz = await probe.get("/jsz?consumers=1")
        assert same_keys(jsz, JSZ_DISABLED), keys(jsz)
        assert jsz["disabled"] is True
        assert jsz["config"] == {"max_memory": 0, "max_storage": 0}
        assert (await probe.get("/varz"))["jetstream"] == {}
        assert await probe.get("/healthz?account=X&stream=Y") == {"status": "ok"}
        status, body, _ = await probe.ask("/jsz?leader-only=1")
        assert (status, body) == (400, "filtered response: not leader")


@pytest.mark.parametrize("query", ["accounts=x", "limit=a", "direct-consumers=2"])
async def test_a_bad_parameter(query: str) -> None:
    async with probing() as probe:
        status, body, _ = await probe.ask(f"/jsz?{query}")
    assert status == 400
    assert body.startswith("Error decoding")


# ---- healthz

HEALTHY = ["", "account=$G", "account=$G&stream=FILE", "account=$G&stream=FILE&consumer=C"]
MISSING = {
    "account=X": ("ACCOUNT", 'JetStream account "X" not found'),
    "account=$G&stream=X": ("STREAM", 'JetStream stream "X" not found on account "$G"'),
    "account=$G&stream=FILE&consumer=X": (
        "CONSUMER",
        'JetStream consumer "X" not found for stream "FILE" on account "$G"',
    ),
}


@pytest.mark.parametrize("query", HEALTHY)
async def test_all_is_well(probe: Probe, query: str) -> None:
    for more in ("", "&details=1", "&js-enabled=1", "&js-enabled-only=1", "&js-server-only=1"):
        assert await probe.get(f"/healthz?{query}{more}") == {"status": "ok"}


@pytest.mark.parametrize("query", MISSING)
async def test_what_is_not_there(probe: Probe, query: str) -> None:
    kind, text = MISSING[query]
    status, body, _ = await probe.ask(f"/healthz?{query}")
    assert (status, body) == (404, {"status": "unavailable", "error": text})
    status, body, _ = await probe.ask(f"/healthz?{query}&details=1")
    assert (status, body["status"]) == (404, "error")
    [error] = body["errors"]
    assert (error["type"], error["error"]) == (kind, text)
    for shallow in ("js-enabled-only", "js-server-only"):
        assert await probe.get(f"/healthz?{query}&{shallow}=1") == {"status": "ok"}


async def test_a_stream_that_cannot_be_served(probe: Probe) -> None:
    engine = probe.server.jetstream
    assert engine is not None
    engine.accounts["$G"].offline["GONE"] = "its meta file is damaged"
    text = "JetStream stream '$G > GONE' could not be recovered"
    for query in ("", "account=$G", "account=$G&stream=GONE"):
        status, body, _ = await probe.ask(f"/healthz?{query}")
        assert (status, body) == (503, {"status": "unavailable", "error": text})
    assert await probe.get("/healthz?account=$G&stream=FILE") == {"status": "ok"}


async def test_a_stream_that_cannot_write(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = probe.server.jetstream
    assert engine is not None
    store = engine.accounts["$G"].streams["FILE"].store
    monkeypatch.setattr(type(store), "write_error", StoreReadOnly("EIO"))
    status, body, _ = await probe.ask("/healthz?details=1")
    assert (status, body["status"]) == (503, "error")
    assert body["errors"] == [
        {
            "type": "STREAM",
            "account": "$G",
            "stream": "FILE",
            "error": "JetStream stream '$G > FILE' write error: EIO",
        }
    ]


async def test_not_before_it_has_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Monitoring answers while JetStream recovers; clients are not accepted yet."""
    from natsd.jetstream.jetstream import JetStream

    recovered = asyncio.Event()
    start = JetStream.start

    async def slow_start(engine: JetStream, accounts: Any) -> None:
        await recovered.wait()
        await start(engine, accounts)

    monkeypatch.setattr(JetStream, "start", slow_start)
    server = Server(host="127.0.0.1", port=-1, http_port=-1, jetstream=True, store_dir=tmp_path)
    starting = asyncio.create_task(server.start())
    try:
        await eventually(lambda: server.http_port)
        async with probing_own(server) as probe:
            status, body, _ = await probe.ask("/healthz")
            assert (status, body["status"]) == (500, "error")
            recovered.set()
            await starting
            assert await probe.get("/healthz") == {"status": "ok"}
    finally:
        await starting
        await server.stop()
