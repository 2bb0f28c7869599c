"""Logins whose settings change while they are decided, or after INFO was sent."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import bcrypt
import pytest

from natsd import Server
from natsd.auth import passwords
from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import Kind
from natsd.testing.jwts import key
from tests.server.streams import Stream
from tests.waiting import DEADLINE_S, eventually_within

LOCAL = {"host": "127.0.0.1", "port": -1}
REFUSED = b"-ERR 'Authorization Violation'\r\n"
USER = key(Kind.USER, "derek")
PROXY = key(Kind.SERVER, "proxy")


async def told(server: Server) -> tuple[Stream, dict[str, Any]]:
    """Return a client that has read its INFO and sent nothing, and that INFO."""
    client = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
    return client, json.loads((await client.line()).removeprefix(b"INFO "))


def log_in(client: Stream, **fields: Any) -> None:
    client.send(f"CONNECT {json.dumps({'verbose': False, **fields})}\r\nPING\r\n".encode())


def signed(by: KeyPair, nonce: bytes) -> str:
    return base64.urlsafe_b64encode(by.sign(nonce)).decode().rstrip("=")


# ---- a client whose INFO had no nonce

DEREK = {"user": "derek", "password": "p"}
WITH_NKEY = {"authorization": {"users": [DEREK, {"nkey": USER.public}]}}
WITH_PROXY = {
    "authorization": {"users": [{**DEREK, "proxy_required": True}]},
    "proxies": {"trusted": [{"key": PROXY.public}]},
}


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (WITH_NKEY, {"nkey": USER.public, "sig": signed(USER, b"")}),
        (WITH_PROXY, {"user": "derek", "pass": "p", "proxy_sig": signed(PROXY, b"")}),
    ],
    ids=["nkey", "proxy"],
)
async def test_a_signature_of_nothing_is_refused(
    settings: dict[str, Any], fields: dict[str, str]
) -> None:
    async with Server(**LOCAL, authorization={"users": [DEREK]}) as server:
        client, info = await told(server)
        assert "nonce" not in info
        server.reload(**settings)
        log_in(client, **fields)
        assert await client.read_until_closed() == REFUSED
        await client.close()


# ---- a login that is awaited while the settings change


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


@pytest.mark.parametrize(("password", "is_right"), [("old", False), ("new", True)])
async def test_a_password_that_is_compared_during_a_reload_counts_for_the_new_settings(
    password: str, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = threading.Event(), threading.Event()
    compare = passwords._matches_hash

    def slow(stored: str, given: str) -> bool:
        began.set()
        assert may_end.wait(DEADLINE_S)
        return compare(stored, given)

    monkeypatch.setattr(passwords, "_matches_hash", slow)
    users = [{"user": "derek", "password": hashed("old")}]
    async with Server(**LOCAL, authorization={"users": users}) as server:
        client, _ = await told(server)
        log_in(client, user="derek", **{"pass": password})
        await eventually_within(began.is_set)
        users = [{"user": "derek", "password": hashed("new")}]
        server.reload(authorization={"users": users})
        may_end.set()
        assert await client.line() == (b"PONG\r\n" if is_right else REFUSED)
        await client.close()


@pytest.mark.parametrize(
    ("login", "fields"),
    [
        ({"users": [{"user": "derek", "password": hashed("p")}]}, {"user": "derek", "pass": "p"}),
        ({"user": "derek", "password": hashed("p")}, {"user": "derek", "pass": "p"}),
        ({"token": hashed("p")}, {"auth_token": "p"}),
    ],
    ids=["user", "single user", "token"],
)
async def test_a_removed_user_is_closed_before_any_hash(
    login: dict[str, Any], fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes wait for their turn, and until then the client would be served."""
    async with Server(**LOCAL, authorization=login) as server:
        client, _ = await told(server)
        log_in(client, **fields)
        assert await client.line() == b"PONG\r\n"
        monkeypatch.setattr(passwords, "_matches_hash", lambda *_: pytest.fail("a hash"))
        server.reload(authorization={"users": [{"user": "ann", "password": hashed("q")}]})
        assert await client.read_until_closed() == REFUSED
        await client.close()


async def test_a_client_without_credentials_becomes_another_default_user() -> None:
    def settings(name: str) -> dict[str, Any]:
        return {
            "authorization": {"users": [{"user": name, "password": "p"}]},
            "no_auth_user": name,
        }

    async with Server(**LOCAL, **settings("ann")) as server:
        client, _ = await told(server)
        log_in(client)
        assert await client.line() == b"PONG\r\n"
        server.reload(**settings("bob"))
        client.send(b"PING\r\n")
        assert await client.line() == b"PONG\r\n"
        assert [each.authorized_user for each in server.clients.values()] == ["bob"]
        await client.close()


# ---- a client that sends no CONNECT


async def test_a_subscriber_without_connect_is_closed_once_a_login_is_required() -> None:
    async with Server(**LOCAL) as server:
        client, _ = await told(server)
        client.send(b"SUB orders.> 1\r\nPING\r\n")
        assert await client.line() == b"+OK\r\n"
        assert await client.line() == b"PONG\r\n"
        server.reload(authorization={"users": [DEREK], "timeout": "60s"})
        assert await client.read_until_closed() == REFUSED
        await client.close()


async def test_a_client_that_sent_nothing_may_log_in_as_a_reload_requires() -> None:
    async with Server(**LOCAL) as server:
        client, _ = await told(server)
        server.reload(authorization={"users": [DEREK], "timeout": "60s"})
        log_in(client, user="derek", **{"pass": "p"})
        assert all(line.startswith(b"INFO ") for line in await client.sync())
        await client.close()
