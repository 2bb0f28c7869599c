"""Latency of services and traces of requests whose responder is connected to another server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from natsd import Server
from natsd.accounts import remote_latency, request_times
from natsd.accounts.remote_latency import RemoteMeasures, short_hash
from natsd.accounts.request_times import RequestTimes
from tests.cluster.mesh import client, inbox, interested, mesh
from tests.waiting import eventually_within

LATENCY = {"subject": "metrics", "sampling": "100%"}
ACCOUNTS: dict[str, Any] = {
    "SERVICE": {
        "users": [{"user": "sam", "password": "right"}],
        "exports": [
            {"service": "help", "latency": LATENCY},
            {"service": "traced", "allow_trace": True},
        ],
    },
    "USER": {
        "users": [{"user": "una", "password": "right"}],
        "imports": [
            {"service": {"account": "SERVICE", "subject": "help"}, "share": True},
            {"service": {"account": "SERVICE", "subject": "traced"}},
        ],
    },
}
SAM, UNA = {"user": "sam", "password": "right"}, {"user": "una", "password": "right"}
HELP_S = 0.05


@asynccontextmanager
async def sharing() -> AsyncIterator[tuple[list[Server], NatsClient, NatsClient]]:
    """Run two servers; a client of the first one asks, a client of the second one answers."""

    async def help_out(message: Msg) -> None:
        await asyncio.sleep(HELP_S)
        await message.respond(b"helped")

    async with (
        mesh(2, {"pool_size": 1}, accounts=ACCOUNTS) as servers,
        client(servers[0], name="asker", **UNA) as una,
        client(servers[1], name="helper", **SAM) as sam,
    ):
        await sam.subscribe("help", cb=help_out)
        await sam.flush()
        await interested(servers[0], "help", account="SERVICE")
        yield servers, una, sam


async def test_each_server_measures_its_part() -> None:
    async with sharing() as (servers, una, sam):
        metrics = await inbox(sam, "metrics")
        await interested(servers[0], "metrics", account="SERVICE")
        assert (await una.request("help", b"", timeout=5)).data == b"helped"
        await metrics.filled(1)
        told = json.loads(metrics[0].data)
        assert told["status"] == 200
        assert (told["requestor"]["name"], told["requestor"]["acc"]) == ("asker", "USER")
        responder = told["responder"]
        assert (responder["name"], responder["acc"]) == ("helper", "SERVICE")
        assert (responder["server"], responder["cluster"]) == ("S1", "C")
        # less than the time of a ping, which a busy machine answers late
        assert told["service"] + responder["rtt"] >= HELP_S * 0.9 * 1e9
        assert told["total"] >= told["service"]
        assert told["system"] >= 0


async def test_a_server_that_does_not_tell_its_part_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_latency, "WAIT_S", 0.01)
    monkeypatch.setattr(RequestTimes, "response", lambda *_: None)
    async with sharing() as (servers, una, sam):
        metrics = await inbox(sam, "metrics")
        await interested(servers[0], "metrics", account="SERVICE")
        await una.request("help", b"", timeout=5)
        await metrics.filled(1)
        told = json.loads(metrics[0].data)
        assert told["status"] == 200
        assert "responder" not in told
        assert told["service"] >= HELP_S * 0.9 * 1e9


async def test_parts_that_come_early_or_never_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_latency, "WAITING_MAX", 2)
    async with mesh(1, accounts=ACCOUNTS) as (server,):
        system = server.accounts.system
        measures = RemoteMeasures("other", system)
        subject = f"$SYS.LATENCY.M2.{short_hash('other')}"
        parts: list[Any] = []
        for key in "abc":
            data = json.dumps({"req_id": key, "m2": {"service": 5}}).encode()
            system.internal_client.publish(subject, data)
        system.internal_client.publish(subject, b"bad")
        await eventually_within(lambda: list(measures._early) == ["b", "c"])
        measures.complete("c", parts.append)
        assert parts[0].service == 5
        for key in "xyz":
            measures.complete(key, parts.append)
        assert parts[1:] == [None]  # the third one does not wait
        assert measures.reply_suffix == f".{short_hash('other')}.T".encode()


async def test_requests_that_are_never_answered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_times, "REQUESTS_MAX", 2)
    async with mesh(1, accounts=ACCOUNTS) as (server,):
        times = RequestTimes(server.accounts.system, lambda *_: {"rtt": 7})
        heard: list[dict[str, Any]] = []

        def hear(_subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            heard.append(json.loads(data))

        server.accounts.system.internal_client.subscribe("$SYS.LATENCY.M2.*", hear)
        replies = [f"_R_.x.{key}.HASH.T".encode() for key in "abc"]
        for reply in replies:
            times.request("SERVICE", reply)
        for reply in (*replies, replies[-1]):
            times.response(reply, None)
        await eventually_within(lambda: len(heard) == 2)
        assert [each["req_id"] for each in heard] == [each.decode() for each in replies[1:]]
        assert heard[0]["m2"]["responder"] == {"rtt": 7}


def test_the_hash_of_a_server_is_that_of_nats_server() -> None:
    """The server S1 subscribes to this subject if it is a nats-server 2.14.5."""
    assert short_hash("G2") == "ACfM4cYy"


async def test_a_service_that_allows_it_is_traced_on_the_other_server() -> None:
    async with sharing() as (servers, una, sam):
        answered = await inbox(sam, "traced")
        await interested(servers[0], "traced", account="SERVICE")
        traces = await inbox(una, "traces")
        headers = {"Nats-Trace-Dest": "traces"}
        await una.publish("traced", b"x", reply="answers", headers=headers)
        await traces.filled(2)
        found = {each["server"]["name"]: each for each in (json.loads(t.data) for t in traces)}
        kinds = [event["type"] for event in found["S0"]["events"]]
        assert kinds == ["in", "si", "eg"]
        assert found["S0"]["hops"] == 1
        beyond = found["S1"]["events"]
        assert (beyond[0]["kind"], beyond[0]["acc"]) == (1, "SERVICE")
        assert (beyond[1]["name"], beyond[1]["sub"]) == ("helper", "traced")
        await answered.filled(1)
