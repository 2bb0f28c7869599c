"""`/routez`, and what other answers tell of the routes of a cluster (reference §8)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from natsd import Server
from tests.cluster.mesh import client, cluster_of, interested, mesh, routes_of
from tests.monitor.probing import Probe, probing_own
from tests.waiting import eventually_within

ACCOUNTS: dict[str, Any] = {
    "A": {"users": [{"user": "ann", "password": "right"}]},
    "B": {"users": [{"user": "ben", "password": "right"}]},
    "SYS": {"users": [{"user": "sys", "password": "right"}]},
}
SETTINGS: dict[str, Any] = {"accounts": ACCOUNTS, "system_account": "SYS", "http_port": -1}
ANN, BEN = {"user": "ann", "password": "right"}, {"user": "ben", "password": "right"}
FIELDS = [
    *("rid", "remote_id", "remote_name", "did_solicit", "is_configured", "ip", "port", "start"),
    *("last_activity", "rtt", "uptime", "idle", "pending_size", "in_msgs", "out_msgs"),
    *("in_bytes", "out_bytes", "subscriptions", "compression"),
]


async def routes(probe: Probe, query: str = "") -> list[dict[str, Any]]:
    rows = (await probe.get(f"/routez?{query}"))["routes"]
    assert isinstance(rows, list)
    return rows


async def test_each_connection_to_another_server_is_a_row() -> None:
    cluster = {"accounts": ["B"], "pool_size": 2}
    async with mesh(3, cluster, **SETTINGS) as servers, probing_own(servers[1]) as probe:
        answer = await probe.get("/routez")
        rows = answer.pop("routes")
        assert list(answer) == ["server_id", "server_name", "now", "num_routes"]
        assert (answer["server_id"], answer["server_name"]) == (servers[1].id, "S1")
        assert answer["num_routes"] == len(rows) == 8  # to each: two of the pool, B, SYS
        assert sorted(row["rid"] for row in rows) == sorted(r.rid for r in routes_of(servers[1]))
        for row in rows:
            other = next(each for each in servers if each.name == row["remote_name"])
            assert row["remote_id"] == other.id
            assert [name for name in row if name != "account"] == FIELDS
            assert row["is_configured"] is (other is servers[0])
            assert (row["ip"], row["compression"]) == ("127.0.0.1", "off")
        told = sorted(row.get("account", "") for row in rows)
        assert told == ["", "", "", "", "B", "B", "SYS", "SYS"]
        dialed = [row for row in rows if row["did_solicit"] and row["remote_name"] == "S0"]
        assert dialed
        assert {row["port"] for row in dialed} == {cluster_of(servers[0]).port}


async def test_subscriptions_of_the_peer_are_listed() -> None:
    async with (
        mesh(2, {"accounts": ["B"], "pool_size": 1}, **SETTINGS) as (near, far),
        client(far, **ANN) as ann,
        client(far, **BEN) as ben,
        client(near, **ANN) as publisher,
        probing_own(near) as probe,
    ):
        await ann.subscribe("orders.*")
        await ann.subscribe("jobs", "workers")
        await ben.subscribe("jobs", "workers")
        await ann.flush()
        await ben.flush()
        for subject, account in (("orders.*", "A"), ("jobs", "A"), ("jobs", "B")):
            await interested(near, subject, account=account)
        await publisher.publish("orders.new", b"1")
        await publisher.flush()
        assert not any("subscriptions_list" in str(row) for row in await routes(probe))
        named = {row.get("account", ""): row for row in await routes(probe, "subs=1")}
        assert sorted(named[""]["subscriptions_list"]) == ["jobs", "orders.*"]
        assert named["B"]["subscriptions_list"] == ["jobs"]
        assert "subscriptions_list_detail" not in named["B"]
        detailed = {row.get("account", ""): row for row in await routes(probe, "subs=detail")}
        rid = detailed[""]["rid"]
        details = sorted(detailed[""]["subscriptions_list_detail"], key=lambda row: row["sid"])
        assert details == [
            {"subject": "jobs", "qgroup": "workers", "sid": "R A jobs workers", "msgs": 0}
            | {"cid": rid},
            {"subject": "orders.*", "sid": "R A orders.*", "msgs": 1, "cid": rid},
        ]
        assert detailed["B"]["subscriptions_list_detail"][0]["sid"] == "R jobs workers"
        assert detailed[""]["subscriptions"] == 2
        listed = (await probe.get("/subsz?subs=1&acc=A"))["subscriptions_list"]
        assert not {"jobs", "orders.*"} & {row["subject"] for row in listed}
        found = await probe.get("/subsz?subs=1&acc=A&test=orders.new")
        assert found["total"] == 0


async def test_permissions_are_shown_for_both_servers() -> None:
    permissions = {"import": {"allow": ["in.>"]}, "export": {"deny": ["out.secret"]}}
    async with (
        mesh(2, {"permissions": permissions}, **SETTINGS) as (near, _),
        probing_own(near) as probe,
    ):
        answer = await probe.get("/routez")
        for shown in (answer, answer["routes"][0]):
            assert shown["import"] == {"allow": ["in.>"]}
            assert shown["export"] == {"deny": ["out.secret"]}


@pytest.mark.parametrize("query", ["subs=x", "subs=2"])
async def test_a_bad_parameter_is_refused(query: str) -> None:
    async with mesh(2, **SETTINGS) as (near, _), probing_own(near) as probe:
        status, text, _ = await probe.ask(f"/routez?{query}")
        assert status == 400
        assert "Error decoding boolean for 'subs'" in text


async def test_traffic_of_clients_and_of_routes_is_told_apart() -> None:
    async with (
        mesh(2, {"pool_size": -1}, **SETTINGS) as (near, far),
        client(far, **ANN) as ann,
        client(near, **ANN) as publisher,
        probing_own(near) as sender,
        probing_own(far) as receiver,
    ):
        messages = await ann.subscribe("orders")
        await ann.flush()
        await interested(near, "orders", account="A")
        for _ in range(3):
            await publisher.publish("orders", b"12345")
        await publisher.flush()
        await eventually_within(lambda: messages.pending_msgs == 3)
        before, after = await sender.get("/varz"), await receiver.get("/varz")
        assert (before["in_client_msgs"], before["in_client_bytes"]) == (3, 15)
        assert (before["out_client_msgs"], before["out_client_bytes"]) == (0, 0)
        assert before["out_msgs"] >= 3
        assert (after["out_client_msgs"], after["out_client_bytes"]) == (3, 15)
        assert (after["in_client_msgs"], after["in_client_bytes"]) == (0, 0)
        assert (before["routes"], before["remotes"]) == (1, 1)
        of_accounts = [
            {row["acc"]: row for row in (await each.get("/accstatz"))["account_statz"]}["A"]
            for each in (sender, receiver)
        ]
        traffic = {"msgs": 3, "bytes": 15}
        assert of_accounts[0]["sent"]["routes"] == of_accounts[1]["received"]["routes"] == traffic
        nothing = {"msgs": 0, "bytes": 0}
        assert of_accounts[0]["received"]["routes"] == of_accounts[1]["sent"]["routes"] == nothing
        assert of_accounts[1]["sent"]["msgs"] == of_accounts[0]["received"]["msgs"] == 3


async def test_varz_tells_the_settings_of_routes() -> None:
    cluster = {"pool_size": 2, "write_deadline": "5s", "write_timeout": "close"}
    async with mesh(2, cluster, **SETTINGS) as servers, probing_own(servers[1]) as probe:
        answer = await probe.get("/varz")
        own = cluster_of(servers[1])
        assert answer["cluster"] == {
            "name": "C",
            "addr": "127.0.0.1",
            "cluster_port": own.port,
            "auth_timeout": 2,
            "urls": [f"127.0.0.1:{own.targets[0].port}"],
            "tls_timeout": 2,
            "pool_size": 2,
            "write_deadline": 5_000_000_000,
            "write_timeout": "close",
        }
        urls = {f"127.0.0.1:{each.client_port}" for each in servers}
        assert set(answer["connect_urls"]) == urls
        assert answer["slow_consumer_stats"]["routes"] == 0


async def test_a_server_without_a_cluster_has_no_routes() -> None:
    async with Server(host="127.0.0.1", port=-1, http_port=-1) as server:
        async with probing_own(server) as probe:
            answer = await probe.get("/routez?subs=detail")
            assert (answer["num_routes"], answer["routes"]) == (0, [])
            assert (await probe.get("/varz"))["cluster"] == {}
            assert (await probe.get("/summaryz"))["cluster"] is None


async def test_metrics_have_a_row_for_each_route() -> None:
    async with mesh(2, {"pool_size": 1}, **SETTINGS) as (near, far), probing_own(near) as probe:
        _, text, _ = await probe.ask("/metrics")
        rows = {
            json.dumps(re.findall(r'(\w+)="([^"]*)"', labels)): value
            for labels, value in re.findall(r"gnatsd_routez_route_info{(.*)} (\d)", text)
        }
        assert len(rows) == len(routes_of(near)) == 2
        assert all(far.id in labels for labels in rows)
        assert set(rows.values()) == {"1"}
        for name in ("rtt_seconds", "uptime_seconds", "subscriptions", "in_msgs", "out_bytes"):
            assert len(re.findall(rf"^gnatsd_routez_route_{name}{{", text, re.MULTILINE)) == 2
        assert f'gnatsd_routez_num_routes{{server_id="{near.id}"}} 2' in text


async def test_the_summary_has_the_routes_for_the_dashboard() -> None:
    async with mesh(3, {"pool_size": 1}, **SETTINGS) as servers, probing_own(servers[0]) as probe:
        answer = await probe.get("/summaryz")
        assert answer["cluster"] == {"name": "C", "servers": 3}
        assert answer["routes"]["total"] == len(answer["routes"]["rows"]) == 4
        assert {row["remote_name"] for row in answer["routes"]["rows"]} == {"S1", "S2"}
