"""Servers in operator mode, and their clients."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from natsd import Server
from natsd.auth.nkeys import KeyPair
from natsd.testing.jwts import AccountKeys, Operator, UserKeys

OPERATOR = Operator()
SYSTEM = OPERATOR.account("SYS")
A = OPERATOR.account("A")
OPERATOR_JWT = OPERATOR.jwt(system_account=SYSTEM.name)


def signature(key: KeyPair) -> Callable[[str], bytes]:
    def sign(nonce: str) -> bytes:
        return base64.b64encode(key.sign(nonce.encode()))

    return sign


@asynccontextmanager
async def connected(server: Server, user: UserKeys | None, **more: Any) -> AsyncIterator[Client]:
    if user is not None:
        more |= user.login
    client = await nats.connect(
        server.client_url, allow_reconnect=False, error_cb=ignore, connect_timeout=10, **more
    )
    try:
        yield client
    finally:
        if not client.is_closed:
            await client.close()


async def ignore(_error: Exception) -> None: ...


class Lines:
    """A client that reads the server's lines one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def next(self) -> str:
        """Return the next line that is not one of the server's own PINGs."""
        async with asyncio.timeout(20):
            while (line := (await self.reader.readline()).decode().strip()) == "PING":
                pass
            return line


@asynccontextmanager
async def lines(
    server: Server, user: UserKeys | None, /, proxy: KeyPair | None = None, **fields: Any
) -> AsyncIterator[Lines]:
    """Log in, through a proxy if its key is given.

    The first line that is read is PONG, or the reason of a refusal.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    made = Lines(reader, writer)
    info = json.loads((await made.next()).removeprefix("INFO "))
    assert info["auth_required"]
    fields = {"verbose": False, "protocol": 0, **fields}
    if user is not None:
        fields |= {"jwt": user.jwt, "sig": signature(user.key)(info["nonce"]).decode()}
    if proxy is not None:
        fields["proxy_sig"] = signature(proxy)(info["nonce"]).decode()
    writer.write(f"CONNECT {json.dumps(fields)}\r\nPING\r\n".encode())
    try:
        yield made
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def memory(*accounts: AccountKeys, **settings: Any) -> Server:
    preload = {account.name: account.jwt for account in (SYSTEM, *accounts)}
    return Server(
        host="127.0.0.1",
        port=-1,
        operators=[OPERATOR_JWT],
        resolver="MEMORY",
        resolver_preload=preload,
        **settings,
    )


def directory(path: Path, **settings: Any) -> Server:
    resolver = {"type": "full", "dir": str(path), "allow_delete": True, **settings}
    return Server(
        host="127.0.0.1",
        port=-1,
        operators=[OPERATOR_JWT],
        resolver=resolver,
        resolver_preload={SYSTEM.name: SYSTEM.jwt},
    )


async def request(client: Client, subject: str, payload: str) -> Any:
    return json.loads((await client.request(subject, payload.encode(), timeout=10)).data)


async def push(client: Client, account: AccountKeys) -> None:
    answer = await request(client, "$SYS.REQ.CLAIMS.UPDATE", account.jwt)
    assert answer["data"]["message"] == "jwt updated", answer
