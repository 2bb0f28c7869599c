"""Monitoring over NATS: each account may ask about itself, the system account about all.

Replies were compared with those of nats-server 2.14.5, key by key.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cramjam
import nats
import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import NoRespondersError

from natsd import Server
from natsd.monitor import services
from natsd.monitor.service_table import ACCOUNT_KINDS, SERVER_KINDS
from tests.waiting import Eventually

SERVER_INFO = ["name", "host", "id", "ver", "feature_flags", "jetstream", "flags", "seq", "time"]
ACCOUNT_STATS = [
    *("acc", "name", "conns", "leafnodes", "total_conns", "num_subscriptions"),
    *("sent", "received", "slow_consumers"),
]
STATSZ = [
    *("start", "mem", "cores", "cpu", "connections", "total_connections", "active_accounts"),
    *("subscriptions", "sent", "sent_to_clients", "received", "received_from_clients"),
    *("slow_consumers", "active_servers", "jetstream", "gomaxprocs"),
]

FROM_ANY_ACCOUNT = (
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[NatsClient]:
    client = await nats.connect(server.client_url, name="asker")
    yield client
    await client.close()


async def ask(client: NatsClient, subject: str, body: object = None) -> dict[str, Any]:
    """Return the reply to a client's request."""
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await client.request(subject, payload, timeout=20)
    answer = json.loads(reply.data)
    assert isinstance(answer, dict)
    return answer


async def ask_as_system(server: Server, subject: str, body: object = None) -> Any:
    """Return the reply to a request in the system account."""
    payload = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    text = await server.system_account.internal_client.request(subject, payload, timeout_s=20)
    return json.loads(text)


# ---- from any account


async def test_a_user_learns_who_they_are(client: NatsClient, server: Server) -> None:
    info = await ask(client, "$SYS.REQ.USER.INFO")
    assert list(info) == ["server", "data"]
    assert list(info["server"]) == SERVER_INFO
    assert (info["server"]["id"], info["server"]["jetstream"]) == (server.id, True)
    assert info["data"] == {"user": "", "account": "$G", "account_name": "$G"}


async def test_a_user_with_a_name_learns_it() -> None:
    async with Server(host="127.0.0.1", port=-1, user="ann", password="secret") as server:
        client = await nats.connect(server.client_url, user="ann", password="secret")
        info = await ask(client, "$SYS.REQ.USER.INFO")
        await client.close()
    assert info["data"]["user"] == "ann"
    assert (info["server"]["jetstream"], info["server"]["flags"]) == (False, 0)


@pytest.mark.parametrize("subject", ["$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"])
async def test_an_account_sees_its_connections(client: NatsClient, subject: str) -> None:
    await client.subscribe("a.b")
    await client.flush()
    reply = await ask(client, subject, {"subscriptions": True, "auth": True, "acc": "$SYS"})
    assert list(reply) == ["server", "data"]
    (row,) = reply["data"]["connections"]
    assert (row["name"], row["name_tag"]) == ("asker", "$G")
    assert "a.b" in row["subscriptions_list"]
    assert (reply["data"]["num_connections"], reply["data"]["total"]) == (1, 1)


async def test_an_account_sees_its_traffic(client: NatsClient) -> None:
    await client.subscribe("a.b")
    await client.publish("a.b", b"12345")
    await client.flush()
    reply = await ask(client, "$SYS.REQ.ACCOUNT.PING.STATZ", {"accounts": ["$SYS"]})
    (row,) = reply["data"]["account_statz"]
    assert list(row) == ACCOUNT_STATS
    assert (row["acc"], row["conns"], row["leafnodes"]) == ("$G", 1, 0)
    assert (row["sent"]["msgs"], row["sent"]["bytes"]) == (1, 5)
    assert row["received"]["msgs"] == 2
    assert row["sent"]["routes"] == {"msgs": 0, "bytes": 0}


@pytest.mark.parametrize(
    "subject",
    ["$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.PING.INFO"],
)
async def test_the_rest_is_for_the_system_account(client: NatsClient, subject: str) -> None:
    with pytest.raises(NoRespondersError):
        await client.request(subject, b"", timeout=20)


async def test_who_asks_too_much_at_once_is_not_answered(
    client: NatsClient, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(services, "WAITING_MAX", 3)
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    for _ in range(10):
        await client.publish("$SYS.REQ.USER.INFO", reply=inbox)
    await client.flush()
    await eventually(lambda: answers.pending_msgs >= 3)
    await ask(client, "$SYS.REQ.USER.INFO")
    assert 3 <= answers.pending_msgs < 10


# ---- the system account


async def test_a_server_answers_the_system_account(server: Server) -> None:
    for whom in ("PING", server.id):
        for kind in SERVER_KINDS:
            reply = await ask_as_system(server, f"$SYS.REQ.SERVER.{whom}.{kind}")
            check_reply(server, kind, reply)


def check_reply(server: Server, kind: str, reply: dict[str, Any]) -> None:
    """Check a server's reply to a request of that kind without options."""
    if kind == "IDZ":
        assert reply == {"name": server.name, "host": "127.0.0.1", "id": server.id}
        return
    assert list(reply) == ["server", "statsz" if kind == "STATSZ" else "data"]
    if kind == "STATSZ":
        assert list(reply["statsz"]) == STATSZ
        assert "store_dir" not in reply["statsz"]["jetstream"]["config"]
    elif kind == "HEALTHZ":
        assert reply["data"] == {"status": "ok", "status_code": 200}
    elif kind == "PROFILEZ":
        assert reply["data"] == {"profile": None, "error": "Profile name not specified"}
    elif kind in ("IPQUEUESZ", "RAFTZ"):
        assert reply["data"] == {}
    elif kind != "EXPVARZ":
        assert reply["data"].get("server_id") == server.id


async def test_a_ping_is_answered_with_the_load(server: Server) -> None:
    reply = await ask_as_system(server, "$SYS.REQ.SERVER.PING")
    assert reply["statsz"]["active_servers"] == 1


async def test_the_system_account_asks_about_an_account(server: Server, client: NatsClient) -> None:
    assert client.is_connected
    for kind in ACCOUNT_KINDS:
        check_account_reply(kind, await ask_as_system(server, f"$SYS.REQ.ACCOUNT.$G.{kind}"))


def check_account_reply(kind: str, reply: dict[str, Any]) -> None:
    """Check the reply about an account with one connection, which has the name `asker`."""
    if kind == "CONNS":
        assert list(reply) == ["type", "id", "timestamp", "server", *ACCOUNT_STATS]
        assert reply["type"] == "io.nats.server.advisory.v1.account_connections"
        return
    data = reply["data"]
    if kind == "SUBSZ":
        assert {row["account"] for row in data["subscriptions_list"]} == {"$G"}
    elif kind == "CONNZ":
        assert [row["name"] for row in data["connections"]] == ["asker"]
    elif kind == "JSZ":
        assert (data["name"], data["id"]) == ("$G", "$G")
    elif kind == "INFO":
        assert (data["account_name"], data["client_connections"]) == ("$G", 1)
    elif kind == "STATZ":
        assert [row["acc"] for row in data["account_statz"]] == ["$G"]
    else:
        assert data["leafs"] == []


UNKNOWN = {
    "INFO": {"code": 500, "description": "Account NONE does not exist"},
    "JSZ": {"code": 500, "description": 'account "NONE" not found'},
}


async def test_an_account_that_is_not_there_is_an_error(server: Server) -> None:
    for kind, error in UNKNOWN.items():
        reply = await ask_as_system(server, f"$SYS.REQ.ACCOUNT.NONE.{kind}")
        assert list(reply) == ["server", "data", "error"]
        assert (reply["error"], reply["data"]) == (error, None)


@pytest.mark.parametrize(
    ("body", "description"),
    [
        (b"{bad", "invalid character 'b' looking for beginning of object key string"),
        (
            b'{"limit":"x"}',
            "json: cannot unmarshal string into Go struct field "
            "ConnzEventOptions.ConnzOptions.limit of type int",
        ),
    ],
)
async def test_a_body_that_cannot_be_read_is_an_error(
    server: Server, body: bytes, description: str
) -> None:
    reply = await ask_as_system(server, "$SYS.REQ.SERVER.PING.CONNZ", body)
    assert list(reply) == ["server", "error"]
    assert reply["error"]["code"] == 400
    assert reply["error"]["description"].startswith(description)


async def test_a_bad_option_is_an_error(server: Server) -> None:
    reply = await ask_as_system(server, "$SYS.REQ.SERVER.PING.CONNZ", {"sort": "foo"})
    assert reply["error"] == {"code": 500, "description": "invalid sorting option: foo"}


@pytest.mark.parametrize(
    "wanted",
    [{"server_name": "other"}, {"host": "10.0.0.1"}, {"cluster": "C"}, {"tags": ["a"]}],
)
async def test_a_request_for_other_servers_is_not_answered(
    server: Server, wanted: dict[str, object]
) -> None:
    heard = []
    internal = server.system_account.internal_client
    internal.subscribe("answers", lambda *message: heard.append(message))
    body = json.dumps(wanted).encode()
    internal.publish("$SYS.REQ.SERVER.PING.VARZ", body, reply="answers")
    await ask_as_system(server, "$SYS.REQ.SERVER.PING.IDZ", {"server_name": server.name[:9]})
    assert heard == []


async def test_a_client_is_closed_or_sent_away(server: Server, client: NatsClient) -> None:
    prefix = f"$SYS.REQ.SERVER.{server.id}"
    for action, text in (
        ("KICK", "no such client or leafnode id"),
        ("LDM", "no such client id"),
    ):
        reply = await ask_as_system(server, f"{prefix}.{action}", {"cid": 999})
        assert reply["error"] == {"code": 500, "description": text}
    heard = asyncio.Event()

    async def sent_away() -> None:
        heard.set()

    other = await nats.connect(server.client_url, lame_duck_mode_cb=sent_away)
    cid = other.client_id
    assert list(await ask_as_system(server, f"{prefix}.LDM", {"cid": cid})) == ["server"]
    async with asyncio.timeout(20):
        await heard.wait()
    assert list(await ask_as_system(server, f"{prefix}.KICK", {"cid": cid})) == ["server"]
    assert "Kicked" in {closed.reason for closed in server.closed_clients}
    await other.close()
    reply = await ask_as_system(server, f"{prefix}.RELOAD")
    assert reply["error"]["code"] == 500


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("snappy", "snappy"), ("gzip", "gzip"), ("br", "identity")]
)
async def test_a_reply_is_compressed_for_those_who_accept_it(
    client: NatsClient, accepted: str, encoding: str
) -> None:
    reply = await client.request(
        "$SYS.REQ.USER.INFO", b"", timeout=20, headers={"Accept-Encoding": accepted}
    )
    assert (reply.headers or {}).get("Content-Encoding") == encoding
    text = reply.data
    if encoding == "gzip":
        text = gzip.decompress(text)
    elif encoding == "snappy":
        text = bytes(cramjam.snappy.decompress(text))
    assert json.loads(text)["data"]["account"] == "$G"


async def test_nobody_answers_once_the_server_stops(server: Server) -> None:
    sublist = server.accounts["$G"].sublist
    assert all(map(sublist.has_interest, FROM_ANY_ACCOUNT))
    await server.stop()
    assert not any(map(sublist.has_interest, FROM_ANY_ACCOUNT))
