"""A server with several accounts, whose clients name account and user in CONNECT: `A/ann`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.accounts import AccountDirectory
from natsd.auth import Authenticator, Credentials, Verdict
from natsd.auth.verdict import REFUSED, ConnectingClient

PASSWORD = "right"
DEADLINE_S = 20.0


class ByName:
    """The user `A/ann` is ann in account A; another password than PASSWORD is refused."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        if connect.password != PASSWORD:
            return REFUSED
        return Verdict(connect.user.partition("/")[0], user=connect.user)


class Tenants(Server):
    """A server that creates the accounts A to Z on demand; SYS is its system account."""

    has_system = True

    def __init__(self, authenticator: Authenticator | None = None, **settings: Any) -> None:
        super().__init__(
            host="127.0.0.1", port=-1, authenticator=authenticator or ByName(), **settings
        )

    def _build(self) -> None:
        super()._build()
        self.accounts = self.accounts_part.accounts = AccountDirectory(
            self.accounts_part.make_account,
            system="SYS",
            may_create=lambda name: len(name) == 1,
            has_system=self.has_system,
        )


class WithoutSystem(Tenants):
    """The same without a system account."""

    has_system = False


class Heard:
    """The messages of one subscription, decoded."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def next(self) -> tuple[str, Any]:
        """Return the subject and the JSON of the next message."""
        message = await self._subscription.next_msg(timeout=DEADLINE_S)
        return message.subject, json.loads(message.data)

    async def body(self) -> dict[str, Any]:
        """Return the JSON of the next message."""
        _, body = await self.next()
        assert isinstance(body, dict)
        return body


@asynccontextmanager
async def client_of(server: Server, user: str, **options: Any) -> AsyncIterator[NatsClient]:
    """Yield a client that logged in as that user."""
    client = await nats.connect(server.client_url, user=user, password=PASSWORD, **options)
    try:
        yield client
    finally:
        await client.close()


async def listen(client: NatsClient, subject: str) -> Heard:
    """Subscribe, and return when the server knows it."""
    subscription = await client.subscribe(subject)
    await client.flush()
    return Heard(subscription)


async def ask(client: NatsClient, subject: str, body: object = None) -> Any:
    """Return the JSON of the reply to a request; `body` is bytes, or an object sent as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    reply = await client.request(subject, data, timeout=DEADLINE_S)
    return json.loads(reply.data)


async def refused(server: Server, user: str) -> None:
    """Log in with a wrong password, and wait until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    login = json.dumps({"user": user, "pass": "wrong", "name": "burglar"})
    writer.write(f"CONNECT {login}\r\n".encode())
    async with asyncio.timeout(DEADLINE_S):
        await reader.read()
    writer.close()
