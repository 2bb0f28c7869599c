"""Services over real connections: the system account asks about all, another account about itself.

Replies were compared with those of nats-server 2.14.5.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import NoRespondersError

from natsd import Server
from natsd.monitor import services
from natsd.monitor.service_table import ACCOUNT_KINDS, ACTIONS, SERVER_KINDS
from natsd.monitor.services import Services
from tests.monitor.tenants import Tenants, ask, client_of
from tests.waiting import Eventually


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Tenants() as server:
        yield server


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[NatsClient]:
    async with client_of(server, "SYS/admin", name="admin") as client:
        yield client


@pytest.fixture
async def ann(server: Server) -> AsyncIterator[NatsClient]:
    async with client_of(server, "A/ann", name="ann") as client:
        yield client


@pytest.fixture
async def bob(server: Server) -> AsyncIterator[NatsClient]:
    async with client_of(server, "B/bob", name="bob") as client:
        yield client


async def is_unanswered(client: NatsClient, subject: str, body: object) -> bool:
    """Return whether a request gets no reply before a later request gets its reply.

    Requests are answered one after the other.
    """
    inbox = client.new_inbox()
    replies = await client.subscribe(inbox)
    await client.publish(subject, json.dumps(body).encode(), reply=inbox)
    await ask(client, "$SYS.REQ.USER.INFO")
    return replies.pending_msgs == 0


# ---- an account asks about itself


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"acc": "B"},
        {"account": "B"},
        {"acc": "B", "auth": True, "state": 2},
        {"acc": "", "user": ""},
        {"acc": "SYS", "subscriptions_detail": True},
        {"accounts": ["B", "SYS"], "include_unused": True},
    ],
)
async def test_an_account_learns_nothing_about_others(
    ann: NatsClient, bob: NatsClient, admin: NatsClient, body: dict[str, object]
) -> None:
    assert bob.is_connected
    assert admin.is_connected
    for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
        connections = (await ask(ann, subject, body))["data"]["connections"]
        assert {row["name"] for row in connections} <= {"ann"}
    statz = (await ask(ann, "$SYS.REQ.ACCOUNT.PING.STATZ", body))["data"]["account_statz"]
    assert [row["acc"] for row in statz] == ["A"]


async def test_a_user_learns_who_they_are(ann: NatsClient, admin: NatsClient) -> None:
    data = (await ask(ann, "$SYS.REQ.USER.INFO"))["data"]
    assert data == {"user": "A/ann", "account": "A", "account_name": "A"}
    data = (await ask(admin, "$SYS.REQ.USER.INFO"))["data"]
    assert data == {"user": "SYS/admin", "account": "SYS", "account_name": "SYS"}


async def test_only_the_system_account_may_ask_the_rest(
    server: Server, ann: NatsClient, bob: NatsClient
) -> None:
    kinds = [kind for kind in (*SERVER_KINDS, *ACTIONS) if kind != "CONNZ"]
    subjects = [
        "$SYS.REQ.SERVER.PING",
        *(f"$SYS.REQ.SERVER.PING.{kind}" for kind in kinds),
        *(f"$SYS.REQ.SERVER.{server.id}.{kind}" for kind in (*kinds, "CONNZ")),
        *(f"$SYS.REQ.ACCOUNT.{name}.{kind}" for kind in ACCOUNT_KINDS for name in "AB"),
        *("$SYS.REQ.USER.B.INFO", "$SYS.REQ.USER.A.INFO"),
        *("$SYS.REQ.ACCOUNT.NSUBS", "$SYS.DEBUG.SUBSCRIBERS"),
    ]
    for subject in subjects:
        with pytest.raises(NoRespondersError):
            await ask(ann, subject, {"cid": bob.client_id})
    assert bob.is_connected


async def test_the_filter_applies_to_every_account(ann: NatsClient) -> None:
    for body in ({"server_name": "other"}, {"tags": ["none"]}, {"domain": "other"}):
        assert await is_unanswered(ann, "$SYS.REQ.ACCOUNT.PING.CONNZ", body)


# ---- the system account


async def test_idz_needs_no_body(server: Server, admin: NatsClient) -> None:
    idz = {"name": server.name, "host": "127.0.0.1", "id": server.id}
    for body in (None, b"{bad", {"server_name": "other"}):
        assert await ask(admin, "$SYS.REQ.SERVER.PING.IDZ", body) == idz


async def test_statz_of_everybody_or_of_some(
    admin: NatsClient, ann: NatsClient, bob: NatsClient
) -> None:
    assert ann.is_connected
    assert bob.is_connected
    subject = "$SYS.REQ.ACCOUNT.PING.STATZ"
    rows = (await ask(admin, subject))["data"]["account_statz"]
    assert {row["acc"] for row in rows} == {"A", "B", "SYS"}
    rows = (await ask(admin, subject, {"accounts": ["B", "Z"]}))["data"]["account_statz"]
    assert [row["acc"] for row in rows] == ["B"]
    rows = (await ask(admin, subject, {"include_unused": True}))["data"]["account_statz"]
    assert {row["acc"] for row in rows} == {"$G", "A", "B", "SYS"}
    assert await is_unanswered(admin, subject, {"accounts": ["Z"]})


async def test_conns_is_about_an_account_with_connections(
    admin: NatsClient, ann: NatsClient
) -> None:
    assert ann.is_connected
    assert (await ask(admin, "$SYS.REQ.ACCOUNT.A.CONNS"))["conns"] == 1
    assert (await ask(admin, "$SYS.REQ.ACCOUNT.A.CONNS", {"acc": "A"}))["conns"] == 1
    assert await is_unanswered(admin, "$SYS.REQ.ACCOUNT.A.CONNS", {"acc": "B"})
    assert await is_unanswered(admin, "$SYS.REQ.ACCOUNT.$G.CONNS", {})


async def test_connections_with_interest_in_a_subject(
    admin: NatsClient, ann: NatsClient, server: Server
) -> None:
    async with client_of(server, "A/amy", name="amy") as amy:
        await amy.subscribe("orders.*")
        await amy.flush()
        for subject, names in (("orders.1", ["amy"]), (">", ["ann", "amy"]), ("bills", [])):
            body = {"acc": "A", "filter_subject": subject}
            data = (await ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", body))["data"]
            assert [row["name"] for row in data["connections"]] == names
            assert (data["num_connections"], data["total"]) == (len(names), 2)
    refusal = await ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"filter_subject": "orders.1"})
    assert list(refusal) == ["server", "data", "error"]
    text = "filter by subject only valid with account filtering"
    assert refusal["error"] == {"code": 500, "description": text}


async def test_an_unknown_state_is_an_error(admin: NatsClient) -> None:
    reply = await ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"state": 7})
    assert reply["error"] == {"code": 500, "description": "Error decoding state for 7"}


async def test_subscribers_are_counted(admin: NatsClient, server: Server) -> None:
    for queue in ("", "", "q", "q", "r"):
        await admin.subscribe("to.count", queue=queue)
    await admin.subscribe("to.*")
    await admin.flush()
    server.system_account.internal_client.subscribe("to.count", lambda *_: None)
    for body, count in (
        (b"to.count", 6),
        (b"to.count q", 2),
        (b"to.*", 6),
        (b"to.* r", 1),
        (b"to.>", 6),
        (b"", 0),
        (b"..", 0),
        (b"other", 0),
    ):
        assert await ask(admin, "$SYS.DEBUG.SUBSCRIBERS", body) == count, body


async def test_subscribers_of_another_account(admin: NatsClient, ann: NatsClient) -> None:
    await ann.subscribe("one.two")
    await ann.subscribe("one.*", queue="q")
    await ann.flush()
    subject = "$SYS.REQ.ACCOUNT.NSUBS"
    assert await ask(admin, subject, {"acc": "A", "subject": "one.two"}) == 2
    assert await ask(admin, subject, {"acc": "A", "subject": "one.*"}) == 2
    assert await ask(admin, subject, {"acc": "A", "subject": "one.*", "queue": "cQ=="}) == 1
    assert await is_unanswered(admin, subject, {"acc": "Z", "subject": "one.two"})


# ---- actions


async def test_actions_upon_nobody(server: Server, admin: NatsClient) -> None:
    for action, text in (
        ("KICK", "no such client or leafnode id"),
        ("LDM", "no such client id"),
    ):
        for cid in (0, 999_999, 2**64 - 1):
            reply = await ask(admin, f"$SYS.REQ.SERVER.{server.id}.{action}", {"cid": cid})
            assert list(reply) == ["server", "error"]
            assert reply["error"] == {"code": 500, "description": text}


@pytest.mark.parametrize("action", ["KICK", "LDM", "RELOAD"])
@pytest.mark.parametrize("body", [b"{bad", b"[]", b'{"cid":1}{"cid":2}', b"\xff", b"[" * 100_000])
async def test_an_unreadable_action_does_nothing(
    server: Server, admin: NatsClient, action: str, body: bytes
) -> None:
    reply = await ask(admin, f"$SYS.REQ.SERVER.{server.id}.{action}", body)
    assert reply["error"]["code"] == 400
    assert len(server.clients) == 1


@pytest.mark.parametrize("cid", ["x", -1, 2**64, 1.5, [], {"cid": 1}])
async def test_a_client_id_is_a_number(server: Server, admin: NatsClient, cid: object) -> None:
    reply = await ask(admin, f"$SYS.REQ.SERVER.{server.id}.KICK", {"cid": cid})
    assert reply["error"]["code"] == 400
    assert "KickClientReq" in reply["error"]["description"]


async def test_actions_for_other_servers_are_ignored(
    server: Server, admin: NatsClient, ann: NatsClient
) -> None:
    body = {"cid": ann.client_id, "server_name": "other"}
    for action in ACTIONS:
        assert await is_unanswered(admin, f"$SYS.REQ.SERVER.{server.id}.{action}", body)
    assert ann.is_connected


async def test_a_client_that_cannot_move(server: Server, admin: NatsClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    login = {"user": "A/old", "pass": "right", "protocol": 0, "verbose": True}
    writer.write(f"CONNECT {json.dumps(login)}\r\n".encode())
    assert (await reader.readline()).startswith(b"INFO ")
    assert await reader.readline() == b"+OK\r\n"
    (cid,) = (cid for cid, client in server.clients.items() if client.account_name == "A")
    reply = await ask(admin, f"$SYS.REQ.SERVER.{server.id}.LDM", {"cid": cid})
    assert reply["error"]["description"].startswith("client does not support Lame Duck Mode")
    writer.close()


async def test_reload_calls_what_the_server_was_given(admin: NatsClient, server: Server) -> None:
    subject = f"$SYS.REQ.SERVER.{server.id}.RELOAD"
    reply = await ask(admin, subject)
    no_file = "can only reload config when a file is provided using -c or --config"
    assert reply["error"] == {"code": 500, "description": no_file}


async def test_reload_at_once_or_later_or_not(eventually: Eventually) -> None:
    called: list[str] = []

    def at_once() -> None:
        called.append("at once")

    async def later() -> None:
        called.append("later")

    def never() -> None:
        raise ValueError("nats.conf:3:1: unknown field")

    results: list[Any] = []
    for reload in (at_once, later, never):
        async with Tenants() as server:
            await server._services.close()
            server._services = Services(server, reload)
            server._services.start()
            async with client_of(server, "SYS/admin") as admin:
                reply = await ask(admin, f"$SYS.REQ.SERVER.{server.id}.RELOAD")
                results.append(reply.get("error"))
    error = {"code": 500, "description": "nats.conf:3:1: unknown field"}
    assert (called, results) == (["at once", "later"], [None, None, error])


# ---- accounts come and go


async def test_services_follow_the_accounts(server: Server, admin: NatsClient) -> None:
    async with client_of(server, "C/carl") as carl:
        assert (await ask(carl, "$SYS.REQ.USER.INFO"))["data"]["account"] == "C"
    sublist = server.accounts["C"].sublist
    assert sublist.count
    server.accounts.remove("C")
    assert sublist.count == 0
    assert "C" not in (await ask(admin, "$SYS.REQ.SERVER.PING.ACCOUNTZ"))["data"]["accounts"]
    async with client_of(server, "C/carl") as carl:
        assert (await ask(carl, "$SYS.REQ.USER.INFO"))["data"]["account"] == "C"


# ---- abuse


async def test_an_account_that_asks_too_much_does_not_silence_others(
    server: Server, admin: NatsClient, ann: NatsClient, bob: NatsClient, eventually: Eventually
) -> None:
    inbox = ann.new_inbox()
    replies = await ann.subscribe(inbox)
    for _ in range(10 * services.WAITING_OF_ONE_MAX):
        await ann.publish("$SYS.REQ.USER.INFO", reply=inbox)
    await ann.flush()
    assert (await ask(bob, "$SYS.REQ.USER.INFO"))["data"]["account"] == "B"
    assert "statsz" in await ask(admin, "$SYS.REQ.SERVER.PING")
    await eventually(lambda: replies.pending_msgs >= 1)
    assert replies.pending_msgs < 10 * services.WAITING_OF_ONE_MAX


async def test_large_bodies(admin: NatsClient, ann: NatsClient) -> None:
    names = [f"{number:012}" for number in range(50_000)]
    body = {"accounts": [*names, "A"], "include_unused": False}
    assert ann.is_connected
    rows = (await ask(admin, "$SYS.REQ.ACCOUNT.PING.STATZ", body))["data"]["account_statz"]
    assert [row["acc"] for row in rows] == ["A"]
    assert await is_unanswered(admin, "$SYS.REQ.SERVER.PING.VARZ", {"tags": names})
    reply = await ask(admin, "$SYS.REQ.SERVER.PING.VARZ", {"tags": [*names, 1]})
    text = "json: cannot unmarshal number into Go struct field"
    assert reply["error"]["description"].startswith(text)


@pytest.mark.parametrize("subject", ["*" * 1000, ">" * 1000, ".".join("*" * 500), "\0", "a..b"])
async def test_hostile_subjects_are_counted_as_none(admin: NatsClient, subject: str) -> None:
    await admin.subscribe("a.b")
    assert await ask(admin, "$SYS.DEBUG.SUBSCRIBERS", subject.encode()) == 0
    body = {"acc": "SYS", "filter_subject": subject}
    reply = await ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", body)
    assert reply["data"]["connections"] == []
