"""Logins whose settings change while they are decided, or after INFO was sent."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from natsd import Server
from natsd.auth.nkeys import KeyPair, Kind
from tests.auth.tokens import key
from tests.server.streams import Stream

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
