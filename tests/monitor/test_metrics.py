"""/metrics: the names of the Prometheus NATS exporter, and the numbers of the JSON endpoints."""

import asyncio
import gzip
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession
from nats.js.api import ConsumerConfig, StreamSource
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from natsd import Server
from natsd.core.steps import at_once
from natsd.monitor import endpoints, metrics, turns
from natsd.monitor.clock import Clock
from natsd.monitor.connection_metrics import connection_rows
from natsd.monitor.jetstream_metrics import jetstream_rows
from natsd.monitor.metric_text import families, label_text, row
from natsd.monitor.observed import ObservedServer
from tests.monitor.probing import Probe, probing, probing_own
from tests.waiting import DEADLINE_S

SERVER_ID = "server_id"
ACCOUNT_LABELS = "account account_id account_name"
JETSTREAM_LABELS = "cluster domain is_meta_leader meta_leader server_id server_name"
STREAM_LABELS = f"""{JETSTREAM_LABELS} {ACCOUNT_LABELS} stream_name stream_leader is_stream_leader
    stream_raft_group"""
CONSUMER_LABELS = f"{STREAM_LABELS} consumer_name consumer_leader is_consumer_leader consumer_desc"

# What prometheus-nats-exporter (June 2026) shows of nats-server 2.14.5, called with -varz -connz
# -subz -routez -leafz -accstatz -accountz -jsz=all and the three -healthz flags: names and labels.
EXPORTER = {
    "gnatsd_varz_": (
        """auth_timeout config_load_time connections cores cpu disk_io_wait_stats_max_wait_time
        disk_io_wait_stats_wait_time disk_io_wait_stats_waiters disk_io_wait_stats_waits gomaxprocs
        http_port https_port in_bytes in_client_bytes in_client_msgs in_msgs
        jetstream_config_max_memory jetstream_config_max_storage jetstream_config_sync_interval
        jetstream_stats_accounts jetstream_stats_api_errors jetstream_stats_api_level
        jetstream_stats_api_total jetstream_stats_ha_assets jetstream_stats_memory
        jetstream_stats_reserved_memory jetstream_stats_reserved_storage jetstream_stats_storage
        leafnodes max_connections max_control_line max_payload max_pending mem out_bytes
        out_client_bytes out_client_msgs out_msgs ping_interval ping_max port proto remotes routes
        slow_consumer_stats_clients slow_consumer_stats_gateways slow_consumer_stats_leafs
        slow_consumer_stats_routes slow_consumers stale_connection_stats_clients
        stale_connection_stats_gateways stale_connection_stats_leafs
        stale_connection_stats_routes stale_connections stalled_clients start subscriptions
        tls_timeout total_connections write_deadline""",
        SERVER_ID,
    ),
    "gnatsd_varz": ("_server_id _server_name _version", "server_id value"),
    "gnatsd_subsz_": (
        """avg_fanout cache_hit_rate limit max_fanout num_cache num_inserts num_matches num_removes
        num_subscriptions offset total""",
        SERVER_ID,
    ),
    "gnatsd_subsz": ("_server_id", "server_id value"),
    "gnatsd_routez": ("_num_routes", SERVER_ID),
    "gnatsd_routez_": ("server_id server_name", "server_id value"),
    "gnatsd_leafz_": ("conn_nodes_total", SERVER_ID),
    "gnatsd_healthz_": ("status js_enabled_only_status js_server_only_status", SERVER_ID),
    "gnatsd_healthz": (
        "_status_value _js_enabled_only_status_value _js_server_only_status_value",
        "server_id value",
    ),
    "gnatsd_connz_": (
        """in_bytes in_msgs limit num_connections offset out_bytes out_msgs pending_bytes
        subscriptions total""",
        SERVER_ID,
    ),
    "gnatsd_accstatz_": (
        """current_connections leaf_nodes received_bytes received_messages sent_bytes sent_messages
        slow_consumers subscriptions total_connections""",
        f"server_id {ACCOUNT_LABELS}",
    ),
    "gnatsd_accountz_": (
        """client_connections complete expired is_system jetstream_enabled leafnode_connections
        limit_conn limit_data limit_exports limit_imports limit_leaf limit_payload limit_subs
        limit_wildcards subscriptions""",
        "server_id account_id account_name",
    ),
    "jetstream_server_": (
        """jetstream_disabled max_memory max_storage total_consumers total_message_bytes
        total_messages total_streams""",
        JETSTREAM_LABELS,
    ),
    "jetstream_account_": (
        "max_memory max_storage memory_used storage_used",
        f"{JETSTREAM_LABELS} {ACCOUNT_LABELS}",
    ),
    "jetstream_stream_": (
        """consumer_count first_seq last_seq limit_bytes limit_messages subject_count total_bytes
        total_messages""",
        STREAM_LABELS,
    ),
    "jetstream_stream_mirror_": (
        "lag active_duration_ns",
        f"{STREAM_LABELS} mirror_name mirror_api mirror_deliver",
    ),
    "jetstream_stream_source_": (
        "lag active_duration_ns",
        f"{STREAM_LABELS} source_name source_api source_deliver",
    ),
    "jetstream_consumer_": (
        """ack_floor_consumer_seq ack_floor_stream_seq delivered_consumer_seq delivered_stream_seq
        last_ack_seconds last_delivery_seconds num_ack_pending num_pending num_redelivered
        num_waiting""",
        CONSUMER_LABELS,
    ),
}
DETAILED_LABELS = """server_id cid kind type ip port name name_tag account account_id lang version
    tls_version tls_cipher_suite"""

Samples = dict[str, list[tuple[dict[str, str], float]]]


async def scrape(probe: Probe, query: str = "") -> Samples:
    """Return the samples by name."""
    status, text, _ = await probe.ask(f"/metrics{query}")
    assert status == 200, text
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(samples: Samples, metric: str, /, **labels: str) -> float:
    """Return the value of the only sample with these labels."""
    [found] = [number for told, number in samples[metric] if labels.items() <= told.items()]
    return found


@pytest.fixture
async def probe(tmp_path: Path) -> AsyncIterator[Probe]:
    """Yield a server with a stream of three messages, of which a consumer has acknowledged one."""
    settings = {"max_mem": "1M", "max_file": "1G"}
    async with (
        probing(jetstream=settings, store_dir=tmp_path, server_name="here") as probe,
        probe.client("alpha") as client,
    ):
        stream = client.jetstream()
        await stream.add_stream(name="FILE", subjects=["f.*"], max_bytes=1 << 20)
        for subject in ("f.1", "f.2", "f.3"):
            await stream.publish(subject, b"hello")
        config = ConsumerConfig(description="reads f")
        reading = await stream.pull_subscribe("f.*", "C", "FILE", config=config)
        one, _ = await reading.fetch(2)
        await one.ack_sync()
        yield probe


async def test_names_and_labels_are_those_of_the_exporter(probe: Probe) -> None:
    async with probe.client() as client:
        stream, origin = client.jetstream(), StreamSource(name="FILE")
        await stream.add_stream(name="MIRROR", mirror=origin)
        await stream.add_stream(name="SOURCED", sources=[origin])
    samples = await scrape(probe)
    expected = {
        prefix + name: set(labels.split())
        for prefix, (names, labels) in EXPORTER.items()
        for name in names.split()
    }
    shown = {
        name: set(rows[0][0])
        for name, rows in samples.items()
        if name.startswith(("gnatsd_", "jetstream_"))
    }
    shown.pop("gnatsd_varz_http_req_stats_metrics")
    assert shown == expected


async def test_every_row_of_a_family_has_the_same_labels(probe: Probe) -> None:
    for name, rows in (await scrape(probe)).items():
        assert len({frozenset(labels) for labels, _ in rows}) == 1, name


async def test_the_numbers_are_those_of_varz(probe: Probe) -> None:
    samples, varz = await scrape(probe), await probe.get("/varz")
    for name in ("in_msgs", "out_bytes", "connections", "subscriptions", "max_payload", "port"):
        assert value(samples, f"gnatsd_varz_{name}", server_id=probe.server.id) == varz[name]
    storage = varz["jetstream"]["stats"]["storage"]
    assert value(samples, "gnatsd_varz_jetstream_stats_storage") == storage > 0
    assert value(samples, "gnatsd_varz_version", value=varz["version"]) == 1
    started_s = value(samples, "gnatsd_varz_start") / 1e3
    assert started_s == pytest.approx(time.time(), abs=60)


async def test_the_numbers_are_those_of_jsz(probe: Probe) -> None:
    samples, jsz = await scrape(probe), await probe.get("/jsz?consumers=1&config=1")
    assert value(samples, "jetstream_server_total_messages", server_name="here") == jsz["messages"]
    assert value(samples, "jetstream_server_total_message_bytes") == jsz["bytes"]
    assert value(samples, "jetstream_server_max_storage") == 1 << 30
    [account] = jsz["account_details"]
    assert value(samples, "jetstream_account_storage_used", account="$G") == account["storage"]
    assert value(samples, "jetstream_account_max_memory") == 2**64 - 1
    [stream] = account["stream_detail"]
    state, [consumer] = stream["state"], stream["consumer_detail"]
    for name, key in (("total_messages", "messages"), ("total_bytes", "bytes")):
        assert value(samples, f"jetstream_stream_{name}", stream_name="FILE") == state[key]
    assert value(samples, "jetstream_stream_limit_bytes", stream_leader="here") == 1 << 20
    assert value(samples, "jetstream_stream_subject_count") == 3
    of_consumer = {"stream_name": "FILE", "consumer_name": "C", "consumer_desc": "reads f"}
    for name in ("num_ack_pending", "num_pending", "num_waiting", "num_redelivered"):
        assert value(samples, f"jetstream_consumer_{name}", **of_consumer) == consumer[name]
    assert value(samples, "jetstream_consumer_num_pending") == 1
    assert value(samples, "jetstream_consumer_delivered_stream_seq") == 2
    assert value(samples, "jetstream_consumer_ack_floor_stream_seq") == 1
    assert 0 <= value(samples, "jetstream_consumer_last_ack_seconds") < 60


async def test_what_never_happened_has_no_sample(probe: Probe) -> None:
    async with probe.client() as client:
        await client.jetstream().pull_subscribe("f.*", "IDLE", "FILE")
    samples = await scrape(probe)
    value(samples, "jetstream_consumer_num_pending", consumer_name="IDLE")
    for name in ("last_delivery", "last_ack"):
        [(labels, _)] = samples[f"jetstream_consumer_{name}_seconds"]
        assert labels["consumer_name"] == "C"
    assert "jetstream_stream_mirror_lag" not in samples


async def test_accounts_are_told_apart(probe: Probe) -> None:
    samples = await scrape(probe)
    assert value(samples, "gnatsd_accstatz_current_connections", account="$G") == 1
    assert value(samples, "gnatsd_accstatz_current_connections", account="$SYS") == 0
    assert value(samples, "gnatsd_accountz_is_system", account_id="$SYS") == 1
    assert value(samples, "gnatsd_accountz_jetstream_enabled", account_id="$G") == 1


async def test_health(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = await scrape(probe)
    assert value(samples, "gnatsd_healthz_status") == 0
    assert value(samples, "gnatsd_healthz_status_value", value="ok") == 1
    monkeypatch.setattr(Server, "is_ready", False)
    samples = await scrape(probe)
    assert value(samples, "gnatsd_healthz_status") == 1
    assert value(samples, "gnatsd_healthz_js_server_only_status_value", value="error") == 0


async def test_connections_are_summed_and_told_one_by_one_on_request(probe: Probe) -> None:
    async with probe.client('"beta"\n\\') as client:
        await client.subscribe("a")
        await client.flush()
        plain, detailed = await scrape(probe), await scrape(probe, "?connz_detailed=true")
    assert value(plain, "gnatsd_connz_num_connections") == 2
    subscriptions = value(plain, "gnatsd_connz_subscriptions")
    rows = detailed["gnatsd_connz_subscriptions"]
    assert [number for labels, number in rows if "cid" not in labels] == [subscriptions]
    assert sum(number for labels, number in rows if "cid" in labels) == subscriptions
    assert set(rows[0][0]) == set(DETAILED_LABELS.split())
    assert value(detailed, "gnatsd_connz_subscriptions", name='"beta"\n\\') == 1
    for name in ("rtt", "uptime", "idle", "start", "last_activity"):
        assert len(detailed[f"gnatsd_connz_{name}"]) == 2
        assert f"gnatsd_connz_{name}" not in plain


async def test_options_of_the_exporter(probe: Probe) -> None:
    named = await scrape(probe, "?prefix=nats&use_internal_server_name=1")
    assert value(named, "nats_varz_connections", server_id="here") == 1
    assert value(named, "nats_consumer_num_pending", server_id="here") == 1
    assert not any(name.startswith(("gnatsd_", "jetstream_")) for name in named)
    streams = await scrape(probe, "?jsz=streams")
    assert "jetstream_stream_last_seq" in streams
    assert "jetstream_consumer_num_pending" not in streams
    accounts = await scrape(probe, "?jsz=ACCOUNTS")
    assert "jetstream_account_storage_used" in accounts
    assert value(accounts, "jetstream_server_total_messages") == 3
    assert "jetstream_stream_last_seq" not in accounts
    assert "jetstream_server_total_streams" not in await scrape(probe, "?jsz=none")


@pytest.mark.parametrize(
    "query", ["prefix=a-b", "prefix=1", f"prefix={'a' * 65}", "jsz=some", "connz_detailed=maybe"]
)
async def test_a_bad_option_is_refused(probe: Probe, query: str) -> None:
    status, text, _ = await probe.ask(f"/metrics?{query}")
    assert status == 400, text


async def test_metadata_is_not_taken_for_fields_of_varz() -> None:
    metadata = {"start": "yesterday", "name": 'a"b', "a b": "1", "port": "7"}
    async with probing(server_metadata=metadata) as probe:
        samples = await scrape(probe)
    assert value(samples, "gnatsd_varz_metadata_name", value='a"b') == 1
    assert [name for name in samples if "metadata" in name] == ["gnatsd_varz_metadata_name"]


async def test_a_server_without_jetstream() -> None:
    async with probing() as probe:
        samples = await scrape(probe)
    assert value(samples, "jetstream_server_jetstream_disabled") == 1
    assert value(samples, "jetstream_server_total_streams") == 0


HOSTILE = ['a"b', "a\\", 'a\\"} 1\nfake 2', "<script>", "a\rb\u2028c\x85d\x00", "\ud800", "ä" * 999]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_label_stays_a_label(name: str) -> None:
    rows = [row(label_text(name=name, other="x"), (1,)), row(label_text(name=name), (2,))]
    text = b"".join(families("p_", [("f", "help")], rows)).decode()
    [family] = text_string_to_metric_families(text)
    shown = name.replace("\ud800", "?").replace("\0", "\ufffd")  # Prometheus refuses a page with \0
    assert [sample.labels for sample in family.samples] == [
        {"name": shown, "other": "x"},
        {"name": shown},
    ]


async def test_hostile_names_of_clients_and_consumers(probe: Probe) -> None:
    """A name from the wire neither ends its line nor appears as a name of a metric."""
    evil = 'x"} 1\nevil_metric{a="\\'
    async with probe.client(evil) as client:
        config = ConsumerConfig(durable_name="D", description=evil)
        await client.jetstream().add_consumer("FILE", config)
        samples = await scrape(probe, "?connz_detailed=1")
    assert "evil_metric" not in samples
    value(samples, "gnatsd_connz_in_msgs", name=evil)
    value(samples, "jetstream_consumer_num_pending", consumer_desc=evil)


async def get(probe: Probe, **headers: str) -> tuple[bytes, Any]:
    """Return body and headers, without decompressing."""
    async with ClientSession(auto_decompress=False) as session:
        async with session.get(probe.url("/metrics"), headers=headers) as response:
            return await response.read(), response.headers


async def test_the_format_is_negotiated(probe: Probe) -> None:
    plain, headers = await get(probe, **{"Accept-Encoding": "identity"})
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "Content-Encoding" not in headers
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    text, headers = await get(probe, Accept=accept, **{"Accept-Encoding": "identity"})
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n")
    names = {each.name for each in openmetrics.text_string_to_metric_families(text.decode())}
    assert {"gnatsd_varz_in_msgs", "jetstream_consumer_num_pending", "natsd"} <= names
    small, headers = await get(probe, **{"Accept-Encoding": "gzip, deflate"})
    assert headers["Content-Encoding"] == "gzip"
    assert len(small) < len(plain) / 3
    assert gzip.decompress(small).startswith(b"# HELP gnatsd_varz_server_id server_id\n")


@pytest.mark.parametrize("written_bytes", [1, 1_000])
async def test_a_long_answer_is_compressed_piece_by_piece(
    probe: Probe, monkeypatch: pytest.MonkeyPatch, written_bytes: int
) -> None:
    monkeypatch.setattr(turns, "CHUNK_BYTES", 1)
    monkeypatch.setattr(endpoints, "WRITTEN_BYTES", written_bytes)
    monkeypatch.setattr(metrics, "GZIP_BYTES", 1_000)
    small, headers = await get(probe, **{"Accept-Encoding": "gzip"})
    assert headers["Transfer-Encoding"] == "chunked"
    text = gzip.decompress(small).decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(set(names)) == len(names) > 100


async def test_metrics_of_the_process(probe: Probe) -> None:
    lag = "natsd_event_loop_lag_seconds_count"
    samples = await scrape(probe)
    assert value(samples, "process_resident_memory_bytes") > 1 << 20
    assert samples["natsd_info"][0][0]["nats_version"] == "2.14.5"
    async with asyncio.timeout(DEADLINE_S):
        while not value(samples, lag):
            samples = await scrape(probe)


def test_prometheus_client_is_imported_by_the_first_scrape() -> None:
    program = """
import asyncio, sys, urllib.request
from natsd import Server

def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        answer.read()

async def serve():
    async with Server(host="127.0.0.1", port=-1, http_port=-1) as server:
        for path in ("/varz", "/metrics"):
            await asyncio.to_thread(get, server.http_port, path)
            print("prometheus_client" in sys.modules)

asyncio.run(serve())
"""
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "True"]


async def test_the_path_is_below_the_base_path_and_counted() -> None:
    async with Server(host="127.0.0.1", port=-1, http_port=-1, http_base_path="/nats") as server:
        async with probing_own(server) as probe:
            status, _, _ = await probe.ask("/metrics")
            assert status == 404
            status, text, _ = await probe.ask("/nats/metrics")
            assert status == 200
            assert (await probe.get("/nats/varz"))["http_req_stats"] == {"/metrics": 1, "/varz": 1}
    assert "gnatsd_varz_http_req_stats_metrics" in text


async def test_a_reload_changes_what_is_told() -> None:
    async with Server(host="127.0.0.1", port=-1, http_port=-1) as server:
        async with probing_own(server) as probe:
            before = value(await scrape(probe), "gnatsd_varz_max_payload")
            server.reload(max_payload=2 << 20)
            assert value(await scrape(probe), "gnatsd_varz_max_payload") == 2 << 20 != before


async def test_scrapes_at_once_are_all_answered(probe: Probe) -> None:
    answers = await asyncio.gather(*(scrape(probe) for _ in range(20)))
    assert all(value(each, "jetstream_stream_last_seq") == 3 for each in answers)


@pytest.mark.parametrize("steps_before", [1, 2])
async def test_a_stream_is_deleted_while_it_is_read(probe: Probe, steps_before: int) -> None:
    steps = jetstream_rows(probe.server, "id", "consumers")
    for _ in range(steps_before):
        next(steps)
    async with probe.client() as client:
        stream = client.jetstream()
        await stream.add_stream(name="OTHER", subjects=["o"])
        await stream.delete_stream("FILE")
    rows = at_once(steps)
    assert not rows.consumers
    assert len(rows.server) == len(rows.accounts) == 1


async def test_ten_thousand_connections_are_read_in_small_steps() -> None:
    async with probing() as probe, probe.client():
        [client] = probe.server.clients.values()
        crowd = dict.fromkeys(range(10_000), client)
        crowded = SimpleNamespace(clients=crowd, accounts=probe.server.accounts)
        server = cast(ObservedServer, crowded)
        steps = connection_rows(server, "id", Clock(), detailed=True)
        assert sum(1 for _ in steps) >= 100
        rows = at_once(connection_rows(server, "id", Clock(), detailed=False))
    assert rows[-1][1][6] == 10_000
