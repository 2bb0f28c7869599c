"""Servers of a cluster know each other: STATSZ, SHUTDOWN, CONNS, and limits across servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.monitor import remote_servers
from natsd.monitor.remote_servers import RemoteServers
from tests.cluster.mesh import client, inbox, interested, mesh
from tests.waiting import eventually_within

ACCOUNTS: dict[str, Any] = {
    "A": {"users": [{"user": "ann", "password": "right"}]},
    "B": {"users": [{"user": "ben", "password": "right"}], "limits": {"max_connections": 2}},
    "SYS": {"users": [{"user": "sys", "password": "right"}]},
}
SETTINGS: dict[str, Any] = {"accounts": ACCOUNTS, "system_account": "SYS"}
ANN = {"user": "ann", "password": "right"}
BEN = {"user": "ben", "password": "right"}
SYS = {"user": "sys", "password": "right"}


@asynccontextmanager
async def acquainted(size: int = 3) -> AsyncIterator[list[Server]]:
    """Run servers that know each other."""
    async with mesh(size, **SETTINGS) as servers:
        await eventually_within(lambda: all(each.known_servers == size - 1 for each in servers))
        yield servers


def others_of(server: Server) -> RemoteServers:
    others = server._events._others
    assert others is not None
    return others


async def replies(admin: NatsClient, subject: str, count: int, body: Any = None) -> list[Any]:
    """Return so many decoded replies to a request, sorted by the names of their servers."""
    answers = await inbox(admin, admin.new_inbox())
    subscription = next(reversed(admin._subs.values()))
    data = b"" if body is None else json.dumps(body).encode()
    await admin.publish(subject, data, reply=subscription.subject)
    await answers.filled(count)
    found = [json.loads(each.data) for each in answers]
    return sorted(found, key=lambda each: each.get("server", each).get("name", ""))


async def test_every_server_answers_a_ping() -> None:
    async with acquainted() as servers, client(servers[2], **SYS) as admin:
        names = [each.name for each in servers]
        for subject in ("PING", "PING.IDZ", "PING.STATSZ", "PING.VARZ", "PING.ROUTEZ"):
            found = await replies(admin, f"$SYS.REQ.SERVER.{subject}", 3)
            assert [each.get("server", each)["name"] for each in found] == names, subject
        stats = (await replies(admin, "$SYS.REQ.SERVER.PING", 3))[0]
        assert stats["server"]["cluster"] == "C"
        assert stats["statsz"]["active_servers"] == 3
        routes = stats["statsz"]["routes"]
        assert {row["name"] for row in routes} == set(names[1:])
        assert list(routes[0]) == ["rid", "name", "sent", "received", "pending"]


async def test_a_request_for_one_server_reaches_it_from_any_other() -> None:
    async with acquainted() as servers, client(servers[2], **SYS) as admin:
        (answer,) = await replies(admin, f"$SYS.REQ.SERVER.{servers[0].id}.ROUTEZ", 1)
        assert answer["server"]["name"] == answer["data"]["server_name"] == "S0"
        (chosen,) = await replies(admin, "$SYS.REQ.SERVER.PING.VARZ", 1, {"server_name": "S1"})
        assert chosen["data"]["server_id"] == servers[1].id
        both = await replies(admin, "$SYS.REQ.SERVER.PING.IDZ", 3, {"cluster": "C"})
        assert len(both) == 3


async def test_a_server_that_stops_is_forgotten() -> None:
    async with acquainted() as servers, client(servers[2], **ANN):
        await eventually_within(lambda: servers[0].accounts["A"].remote_connections == 1)
        await servers[2].stop()
        await eventually_within(lambda: servers[0].known_servers == servers[1].known_servers == 1)
        assert servers[0].accounts["A"].remote_connections == 0


async def test_a_silent_server_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_servers, "SWEEP_S", 0.02)
    async with acquainted(2) as (near, far):
        (known,) = others_of(near)._known.values()
        known.seen_s -= remote_servers.SILENT_S
        others_of(near)._sweep()
        assert near.known_servers == 0
        far.send_statsz()
        await eventually_within(lambda: near.known_servers == 1)


async def test_connections_of_an_account_are_counted_in_the_whole_cluster() -> None:
    async with acquainted() as servers:
        async with client(servers[0], **ANN), client(servers[1], **ANN), client(servers[1], **ANN):
            counts = [3 - 1, 3 - 2, 3]
            accounts = [each.accounts["A"] for each in servers]
            await eventually_within(
                lambda: [each.remote_connections for each in accounts] == counts
            )
            assert servers[2].servers_connected_to("A") == 2
            assert servers[0].servers_connected_to("A") == 1
        await eventually_within(lambda: not any(each.remote_connections for each in accounts))


async def test_the_limit_of_connections_holds_in_the_whole_cluster() -> None:
    async with acquainted() as servers:
        async with client(servers[0], **BEN), client(servers[1], **BEN):
            account = servers[2].accounts["B"]
            await eventually_within(lambda: account.remote_connections == 2)
            assert "maximum account active connections exceeded" in await refusal(servers[2])
        await eventually_within(lambda: account.remote_connections == 0)
        async with client(servers[2], **BEN):
            pass


async def refusal(server: Server) -> str:
    """Return what the server says to one more connection in account B, which it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    writer.write(b'CONNECT {"verbose":false,"user":"ben","pass":"right"}\r\nPING\r\n')
    told = await reader.read()
    writer.close()
    await writer.wait_closed()
    return told.decode()


async def test_too_many_connections_that_came_at_the_same_time_are_closed() -> None:
    """A server that learns of more connections elsewhere closes its own newest ones."""
    async with acquainted(2) as (near, _), client(near, **BEN) as older:
        async with client(near, **BEN) as newer:
            known = next(iter(others_of(near)._known))
            told = {"server": {"id": known, "seq": 10**6}, "acc": "B", "conns": 1, "leafnodes": 0}
            near.accounts.system.internal_client.publish(
                "$SYS.SERVER.ACCOUNT.B.CONNS", json.dumps(told).encode()
            )
            await eventually_within(lambda: newer.is_closed)
            assert not older.is_closed


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b'{"server": 1}', b"\xff", b'{"server": {"id": ""}}']
)
async def test_messages_that_cannot_be_read_are_ignored(data: bytes) -> None:
    async with mesh(1, **SETTINGS) as (server,):
        for subject in ("$SYS.SERVER.X.STATSZ", "$SYS.SERVER.ACCOUNT.A.CONNS"):
            server.accounts.system.internal_client.publish(subject, data)
        await asyncio.sleep(0)
        assert server.known_servers == 0


async def test_an_account_asks_about_itself_on_all_servers() -> None:
    async with acquainted() as servers, client(servers[0], **ANN) as ann:
        async with client(servers[1], **ANN), client(servers[1], **BEN):
            await eventually_within(lambda: servers[0].servers_connected_to("A") == 1)
            found = await replies(ann, "$SYS.REQ.ACCOUNT.PING.CONNZ", 3)
            counted = [(each["server"]["name"], each["data"]["num_connections"]) for each in found]
            assert counted == [("S0", 1), ("S1", 1), ("S2", 0)]
            stats = await replies(ann, "$SYS.REQ.ACCOUNT.PING.STATZ", 2)
            assert [each["server"]["name"] for each in stats] == ["S0", "S1"]
            assert {row["acc"] for each in stats for row in each["data"]["account_statz"]} == {"A"}


async def test_only_the_server_of_a_user_tells_about_it() -> None:
    async with acquainted(2) as servers, client(servers[0], **ANN) as ann:
        (answer,) = await replies(ann, "$SYS.REQ.USER.INFO", 1)
        assert answer["data"]["user"] == "ann"
        sublist = servers[1].accounts["A"].sublist
        assert sublist.weight("$SYS.REQ.USER.INFO") == 1  # its own


async def test_subscribers_are_counted_on_all_servers() -> None:
    async with acquainted() as servers, client(servers[2], **SYS) as admin:
        async with client(servers[0], **SYS) as one, client(servers[1], **SYS) as other:
            await eventually_within(lambda: servers[2].servers_connected_to("SYS") == 2)
            for connection, queue in ((one, ""), (one, "q"), (other, "q")):
                await connection.subscribe("some.where", queue)
                await connection.flush()
            assert await count(admin, b"some.where") == 3
            assert await count(admin, b"some.where q") == 2
            assert await count(admin, b"some.*") == 3
            assert await count(admin, b"else.where") == 0


async def count(admin: NatsClient, body: bytes) -> int:
    return int((await admin.request("$SYS.DEBUG.SUBSCRIBERS", body, timeout=5)).data)


async def test_events_of_one_server_are_heard_on_another() -> None:
    async with acquainted(2) as (near, far), client(near, **SYS) as admin:
        heard = await inbox(admin, "$SYS.ACCOUNT.A.>")
        await interested(far, "$SYS.ACCOUNT.A.>", account="SYS")
        async with client(far, **ANN):
            await heard.filled(2)
        await heard.filled(4)
        kinds = {each.subject.removeprefix("$SYS.ACCOUNT.A.") for each in heard}
        assert kinds == {"CONNECT", "DISCONNECT", "SERVER.CONNS"}
        server = json.loads(heard[0].data)["server"]
        assert (server["name"], server["cluster"]) == ("S1", "C")


async def test_a_server_without_a_cluster_listens_to_nobody() -> None:
    async with Server(host="127.0.0.1", port=-1, **SETTINGS) as server:
        assert server._events._others is None
        assert not server.accounts.system.sublist.has_interest("$SYS.SERVER.X.STATSZ")
