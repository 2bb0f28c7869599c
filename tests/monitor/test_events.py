"""Events about the server and its connections, as a client of the system account receives them.

Subjects, order and members were compared with those of nats-server 2.14.5.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.monitor import events
from tests.jetstream.api.schemas import SCHEMAS, schema_of
from tests.monitor.tenants import (
    DEADLINE_S,
    Tenants,
    WithoutSystem,
    ask,
    client_of,
    listen,
    refused,
)
from tests.waiting import Eventually

TYPE = "io.nats.server.advisory.v1"
SERVER = ["name", "host", "id", "ver", "feature_flags", "jetstream", "flags", "seq", "time"]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Tenants(server_name="srv") as server:
        yield server


@pytest.fixture
async def watcher(server: Server) -> AsyncIterator[NatsClient]:
    async with client_of(server, "SYS/admin") as client:
        yield client


def check(event: dict[str, Any], kind: str) -> None:
    """Check the head of an event, and the whole by the schema that NATS publishes."""
    assert list(event)[:4] == ["type", "id", "timestamp", "server"]
    assert event["type"] == f"{TYPE}.{kind}"
    assert len(event["id"]) == 22
    check_server(event["server"])
    if SCHEMAS.exists():
        # nats-server sends these too, and the schemas do not have them.
        server = {name: value for name, value in event["server"].items() if name != "feature_flags"}
        known = event | {"server": server}
        if kind == "account_connections":
            del known["name"], known["num_subscriptions"]
        jsonschema.Draft7Validator(schema_of(event["type"])).validate(known)


def check_server(server: dict[str, Any]) -> None:
    assert list(server) == SERVER
    assert server["name"] == "srv"


# ---- clients


async def test_connect_and_disconnect(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.ACCOUNT.A.*")
    async with client_of(server, "A/ann", name="first") as client:
        subject, came = await heard.next()
        assert subject == "$SYS.ACCOUNT.A.CONNECT"
        check(came, "client_connect")
        members = ["start", "host", "id", "acc", "user", "name", "lang", "ver", "name_tag", "kind"]
        assert list(came["client"]) == [*members, "client_type"]
        assert came["client"]["id"] == client.client_id
        shown = {name: came["client"][name] for name in ("acc", "user", "name", "name_tag")}
        assert shown == {"acc": "A", "user": "A/ann", "name": "first", "name_tag": "A"}
        assert (came["client"]["kind"], came["client"]["client_type"]) == ("Client", "nats")
        await client.subscribe("a")
        await client.publish("a", b"12345")
        await client.publish("b", b"1")
        await client.flush()
    subject, went = await heard.next()
    assert subject == "$SYS.ACCOUNT.A.DISCONNECT"
    check(went, "client_disconnect")
    assert list(went)[4:] == ["client", "sent", "received", "reason"]
    assert went["client"]["start"] == came["client"]["start"]
    assert went["client"]["stop"] == went["timestamp"]
    assert went["client"]["rtt"] > 0
    assert went["sent"] == {"msgs": 2, "bytes": 6}
    assert went["received"] == {"msgs": 1, "bytes": 5}
    assert went["reason"] == "Client Closed"
    assert went["server"]["seq"] > came["server"]["seq"]


async def test_the_end_of_a_client_that_never_logged_in(
    server: Server, watcher: NatsClient
) -> None:
    heard = await listen(watcher, "$SYS.ACCOUNT.*.DISCONNECT")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    await reader.readline()
    writer.close()
    subject, went = await heard.next()
    assert subject == "$SYS.ACCOUNT.$G.DISCONNECT"
    check(went, "client_disconnect")
    assert list(went["client"]) == [
        *("start", "host", "id", "acc", "stop", "name_tag", "kind", "client_type"),
    ]


async def test_a_refused_login(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.SERVER.*.CLIENT.AUTH.ERR")
    ended = await listen(watcher, "$SYS.ACCOUNT.$G.DISCONNECT")
    came = await listen(watcher, "$SYS.ACCOUNT.*.CONNECT")
    in_default: list[Any] = []
    server.accounts.default.internal_client.subscribe(
        "$SYS.ACCOUNT.CLIENT.AUTH.ERR", lambda *message: in_default.append(message)
    )
    await refused(server, "A/ann")
    subject, event = await heard.next()
    assert subject == f"$SYS.SERVER.{server.id}.CLIENT.AUTH.ERR"
    check(event, "client_disconnect")
    assert event["reason"] == "Authentication Failure"
    assert (event["client"]["acc"], event["client"]["name"]) == ("$G", "burglar")
    assert (await ended.body())["reason"] == "Authentication Failure"
    ((subject, _, _, data),) = in_default
    assert json.loads(data)["reason"] == "Authentication Failure"
    async with client_of(server, "B/bob"):
        assert (await came.next())[0] == "$SYS.ACCOUNT.B.CONNECT"  # and none before


async def test_a_kicked_client(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.ACCOUNT.A.DISCONNECT")
    async with client_of(server, "A/ann", allow_reconnect=False) as client:
        kick = {"cid": client.client_id}
        assert list(await ask(watcher, f"$SYS.REQ.SERVER.{server.id}.KICK", kick)) == ["server"]
        assert (await heard.body())["reason"] == "Kicked"


# ---- connections of accounts


async def test_the_number_of_connections_of_an_account(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.ACCOUNT.*.SERVER.CONNS")
    old_name = await listen(watcher, "$SYS.SERVER.ACCOUNT.*.CONNS")
    async with client_of(server, "A/ann"):
        async with client_of(server, "A/amy"):
            pass
    events = [await heard.next() for _ in range(4)]
    assert {subject for subject, _ in events} == {"$SYS.ACCOUNT.A.SERVER.CONNS"}
    assert [event["conns"] for _, event in events] == [1, 2, 1, 0]
    for _, event in events:
        check(event, "account_connections")
        assert (event["acc"], event["total_conns"]) == ("A", event["conns"])
    older = [await old_name.next() for _ in range(4)]
    assert {subject for subject, _ in older} == {"$SYS.SERVER.ACCOUNT.A.CONNS"}
    assert [event["id"] for _, event in older] == [event["id"] for _, event in events]


async def test_connections_are_announced_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "CONNECTIONS_S", 0.02)
    async with Tenants() as server, client_of(server, "SYS/admin") as watcher:
        async with client_of(server, "A/ann"):
            heard = await listen(watcher, "$SYS.ACCOUNT.*.SERVER.CONNS")
            subjects = {(await heard.next())[0] for _ in range(6)}
    assert subjects == {"$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.ACCOUNT.SYS.SERVER.CONNS"}


async def test_a_second_connect_moves_the_client(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.ACCOUNT.*.SERVER.CONNS")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    for user in ("A/ann", "B/ann"):
        writer.write(f'CONNECT {{"user":"{user}","pass":"right"}}\r\n'.encode())
    told = [await heard.body() for _ in range(3)]
    assert [(event["acc"], event["conns"]) for event in told] == [("A", 1), ("A", 0), ("B", 1)]
    writer.close()
    assert [(await heard.body())[name] for name in ("conns",)] == [0]
    await reader.read()


# ---- the server


async def test_statsz_comes_by_itself_and_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "STATSZ_S_FIRST", 0.02)
    monkeypatch.setattr(events, "STATSZ_S_MIN", 0.02)
    async with Tenants(server_name="srv") as server, client_of(server, "SYS/admin") as watcher:
        heard = await listen(watcher, "$SYS.SERVER.*.STATSZ")
        for _ in range(2):
            subject, event = await heard.next()
            assert subject == f"$SYS.SERVER.{server.id}.STATSZ"
            assert list(event) == ["server", "statsz"]
            check_server(event["server"])
        assert event["statsz"]["connections"] == 1


async def test_a_ping_without_reply_causes_statsz(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "STATSZ_S_FIRST", 3600)
    async with Tenants() as server, client_of(server, "SYS/admin") as watcher:
        heard = await listen(watcher, "$SYS.SERVER.*.STATSZ")
        for subject in ("$SYS.REQ.SERVER.PING", f"$SYS.REQ.SERVER.{server.id}.STATSZ"):
            await watcher.publish(subject)
            assert "statsz" in await heard.body()


async def test_shutdown_is_the_last_event(server: Server, watcher: NatsClient) -> None:
    heard = await listen(watcher, "$SYS.>")
    async with client_of(server, "A/ann", allow_reconnect=False):
        await server.stop()
    subjects = []
    while not subjects or not subjects[-1].endswith(".SHUTDOWN"):
        subject, event = await heard.next()
        subjects.append(subject)
    check_server(event)
    assert subjects[-1] == f"$SYS.SERVER.{server.id}.SHUTDOWN"
    assert "$SYS.ACCOUNT.A.DISCONNECT" not in subjects


async def test_lame_duck_mode_is_announced() -> None:
    settings: dict[str, Any] = {"lame_duck_duration": 30, "lame_duck_grace_period": 20}
    async with Tenants(server_name="srv", **settings) as server:
        async with client_of(server, "SYS/admin", allow_reconnect=False) as watcher:
            heard = await listen(watcher, "$SYS.SERVER.*.LAMEDUCK")
            server.enter_lame_duck()
            subject, event = await heard.next()
            assert subject == f"$SYS.SERVER.{server.id}.LAMEDUCK"
            check_server(event)


# ---- who does not listen


async def test_nothing_is_built_without_a_listener(
    server: Server, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    built = []

    def describe() -> dict[str, Any]:
        built.append(1)
        return {}

    monkeypatch.setattr(server, "describe", describe)
    async with client_of(server, "A/ann"):
        pass
    await refused(server, "A/ann")
    await eventually(lambda: not server.clients)
    assert built == []


async def test_other_accounts_hear_nothing(server: Server, watcher: NatsClient) -> None:
    witness = await listen(watcher, "$SYS.ACCOUNT.B.CONNECT")
    async with client_of(server, "A/ann") as client:
        spied = await client.subscribe("$SYS.>")
        await client.flush()
        async with client_of(server, "B/bob"):
            await witness.next()
        await refused(server, "A/ann")
        await client.flush()
        assert spied.pending_msgs == 0


async def test_a_server_without_system_account_publishes_and_serves_nothing(
    eventually: Eventually,
) -> None:
    async with WithoutSystem() as server:
        assert list(server.accounts) == ["$G"]
        built: list[Any] = []
        system = server.accounts.system.internal_client
        system.subscribe("$SYS.>", lambda *message: built.append(message))
        async with client_of(server, "A/ann") as client:
            for subject in ("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ"):
                assert not server.accounts["A"].sublist.has_interest(subject)
            assert client.is_connected
        await eventually(lambda: not server.clients)
        async with asyncio.timeout(DEADLINE_S):
            await server.stop()
        assert built == []
