"""Traces of messages that pass several servers (reference §3.7, ADR-41).

The events were compared with those of a cluster of three nats-servers 2.14.5.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.accounts.message_trace import TraceRequest, with_header
from tests.cluster.mesh import Inbox, client, inbox, interested, mesh, routes_of

TRACED = {"Nats-Trace-Dest": "traces"}
ONLY = {**TRACED, "Nats-Trace-Only": "true"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MOMENTARY = ("ts", "cid")


class Traces:
    """Three servers with a client each; the first client gets the traces."""

    def __init__(self, servers: list[Server], clients: list[NatsClient], traces: Inbox) -> None:
        self.servers = servers
        self.clients = clients
        self._traces = traces

    async def publish(
        self, subject: str, headers: dict[str, str], count: int
    ) -> dict[str, dict[str, Any]]:
        """Publish to the first server; return so many traces by the names of their servers."""
        self._traces.clear()
        await self.clients[0].publish(subject, b"x", headers=headers)
        await self._traces.filled(count)
        await self.clients[0].flush()
        assert len(self._traces) == count
        found = [json.loads(each.data) for each in self._traces]
        return {each["server"]["name"]: each for each in found}


def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events without what differs each time."""
    return [
        {name: value for name, value in event.items() if name not in MOMENTARY}
        for event in trace["events"]
    ]


@asynccontextmanager
async def tracing(**settings: Any) -> AsyncIterator[Traces]:
    async with mesh(3, {"pool_size": 1}, **settings) as servers, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(client(server, name=f"c{index}"))
            for index, server in enumerate(servers)
        ]
        traces = await inbox(clients[0], "traces")
        for server in servers:
            await interested(server, "traces")
        yield Traces(servers, clients, traces)


async def test_each_server_that_gets_the_message_tells_what_it_does() -> None:
    async with tracing() as there:
        received = [await inbox(each, "orders") for each in there.clients[1:]]
        await interested(there.servers[0], "orders", 2)
        found = await there.publish("orders", TRACED, 3)
        first, *others = events(found["S0"])
        assert first == {"type": "in", "kind": 0, "name": "c0", "acc": "$G", "subj": "orders"}
        assert found["S0"]["hops"] == 2
        hops = {each["name"]: each.pop("hop") for each in others}
        assert sorted(hops.values()) == ["1", "2"]
        assert all(each == {"type": "eg", "kind": 1, "name": each["name"]} for each in others)
        for name, recipient in (("S1", "c1"), ("S2", "c2")):
            assert events(found[name]) == [
                {"type": "in", "kind": 1, "name": "S0", "acc": "$G", "subj": "orders"},
                {"type": "eg", "kind": 0, "name": recipient, "sub": "orders"},
            ]
            assert "hops" not in found[name]
            headers = found[name]["request"]["header"]
            assert headers == {"Nats-Trace-Dest": ["traces"], "Nats-Trace-Hop": [hops[name]]}
        rids = {route.rid for route in routes_of(there.servers[0])}
        assert {each["cid"] for each in found["S0"]["events"][1:]} <= rids
        for messages in received:
            await messages.filled(1)
            assert messages.texts == ["x"]


async def test_with_trace_only_nobody_gets_the_message() -> None:
    async with tracing() as there:
        received = [await inbox(each, "orders") for each in there.clients]
        await interested(there.servers[0], "orders", 3)
        found = await there.publish("orders", ONLY, 3)
        assert [each["type"] for each in events(found["S0"])] == ["in", "eg", "eg", "eg"]
        assert events(found["S1"])[1]["name"] == "c1"
        await there.clients[0].publish("orders", b"last")
        for messages in received:
            await messages.filled(1)
            assert messages.texts == ["last"]


async def test_a_queue_group_is_served_by_one_server() -> None:
    async with tracing() as there:
        for each in there.clients[1:]:
            await inbox(each, "jobs", "workers")
        await interested(there.servers[0], "jobs", 2)
        found = await there.publish("jobs", TRACED, 2)
        assert found["S0"]["hops"] == 1
        (chosen,) = found.keys() - {"S0"}
        delivery = events(found[chosen])[1]
        assert (delivery["sub"], delivery["queue"]) == ("jobs", "workers")
        await inbox(there.clients[0], "jobs", "workers")
        alone = await there.publish("jobs", TRACED, 1)
        assert "hops" not in alone["S0"]
        assert events(alone["S0"])[1]["queue"] == "workers"


async def test_nobody_listens() -> None:
    async with tracing() as there:
        found = await there.publish("nobody", TRACED, 1)
        assert [each["type"] for each in events(found["S0"])] == ["in"]


async def test_a_hop_that_a_client_names_does_not_count() -> None:
    async with tracing() as there:
        await inbox(there.clients[1], "orders")
        await interested(there.servers[0], "orders")
        found = await there.publish("orders", {**TRACED, "Nats-Trace-Hop": "9.9"}, 2)
        assert found["S1"]["request"]["header"]["Nats-Trace-Hop"] == ["1"]


async def test_a_sampled_traceparent_is_traced_by_the_settings_of_the_account() -> None:
    accounts: dict[str, Any] = {
        "A": {
            "users": [{"user": "ann", "password": "right"}],
            "msg_trace": {"dest": "traces"},
        }
    }
    login = {"user": "ann", "password": "right"}
    async with (
        mesh(2, accounts=accounts) as (near, far),
        client(near, **login) as one,
        client(far, **login) as other,
    ):
        traces, received = await inbox(one, "traces"), await inbox(other, "orders")
        await interested(near, "orders", account="A")
        await interested(far, "traces", account="A")
        await one.publish("orders", b"x", headers={"traceparent": PARENT})
        await traces.filled(2)
        kinds = sorted(json.loads(each.data)["events"][0]["kind"] for each in traces)
        assert kinds == [0, 1]
        await received.filled(1)


@pytest.mark.parametrize(
    ("headers", "is_delivered"),
    [
        ({"Nats-Trace-Dest": "bad subject"}, True),
        ({"Nats-Trace-Dest": "$NRG.x"}, False),
        ({"Nats-Trace-Dest": "bad subject", "Nats-Trace-Only": "1"}, False),
        ({**TRACED, "Nats-Trace-Origin-Account": "A"}, True),
        ({**ONLY, "Nats-Trace-Origin-Account": "A"}, False),
    ],
)
async def test_a_peer_that_asks_for_an_impossible_trace(
    headers: dict[str, str], is_delivered: bool
) -> None:
    """The first server would refuse these; an older one forwards them."""
    async with mesh(2) as (near, far), client(far) as connection:
        received = await inbox(connection, "orders")
        traces = await inbox(connection, "traces")
        await interested(near, "orders")
        await interested(near, "traces")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        near.accounts.default.internal_client.publish(
            "orders", b"x", headers=f"NATS/1.0\r\n{lines}\r\n".encode()
        )
        near.accounts.default.internal_client.publish("orders", b"last")
        await received.filled(1 + is_delivered)
        await connection.flush()
        assert received.texts == (["x"] * is_delivered) + ["last"]
        assert traces == []


@pytest.mark.parametrize(
    ("headers", "error", "is_delivered"),
    [
        (
            TRACED,
            "Message delivered but remote does not support message tracing so no trace event "
            "generated from there",
            True,
        ),
        (ONLY, "Not delivered because remote does not support message tracing", False),
    ],
)
async def test_a_peer_that_cannot_trace_is_named(
    headers: dict[str, str], error: str, is_delivered: bool
) -> None:
    async with tracing() as there:
        received = await inbox(there.clients[1], "orders")
        await interested(there.servers[0], "orders")
        for route in routes_of(there.servers[0]):
            assert route.remote is not None
            route.remote.proto = 2
        found = await there.publish("orders", headers, 1 + is_delivered)  # the peer can, after all
        (delivery,) = events(found["S0"])[1:]
        assert delivery == {"type": "eg", "kind": 1, "name": "S1", "hop": "1", "error": error}
        await there.clients[0].publish("orders", b"last")
        await received.filled(1 + is_delivered)
        assert received.texts == ["x"] * is_delivered + ["last"]


def test_the_hop_replaces_an_older_one_at_the_end_of_the_headers() -> None:
    block = b"NATS/1.0\r\nNats-Trace-Hop: 1\r\nX: y\r\nNats-Trace-Dest: t\r\n\r\n"
    changed = with_header(block, b"Nats-Trace-Hop", b"1.2")
    assert changed == b"NATS/1.0\r\nX: y\r\nNats-Trace-Dest: t\r\nNats-Trace-Hop: 1.2\r\n\r\n"
    request = TraceRequest.read(changed)
    assert request is not None
    assert request.hop == "1.2"


async def test_many_traced_messages_arrive_once_each() -> None:
    async with tracing() as there:
        received = [await inbox(each, "orders") for each in there.clients[1:]]
        await interested(there.servers[0], "orders", 2)
        for index in range(100):
            await there.clients[0].publish("orders", str(index).encode(), headers=TRACED)
        expected = [str(index) for index in range(100)]
        for messages in received:
            await messages.filled(100)
            assert messages.texts == expected
        await asyncio.sleep(0)
