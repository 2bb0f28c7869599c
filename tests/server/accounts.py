"""A server with configured accounts, each with a user of its name."""

from __future__ import annotations

from typing import Any

import nats
from nats.aio.client import Client as NatsClient

from natsd import Server

SYSTEM = "$SYS"
DEFAULT = "$G"


def settings_of(accounts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return settings with these accounts, the system account, and a user in each of them."""
    users = {name: [{"user": name, "password": "-"}] for name in (SYSTEM, DEFAULT, *accounts)}
    configured = {
        name: {**accounts.get(name, {}), "users": users[name]} for name in (SYSTEM, *accounts)
    }
    return {"accounts": configured, "authorization": {"users": users[DEFAULT]}}


def server_with(accounts: dict[str, dict[str, Any]], **settings: Any) -> Server:
    """Return a server with these accounts."""
    return Server(host="127.0.0.1", port=-1, **settings_of(accounts), **settings)


async def log_in(server: Server | str, account: str, **settings: Any) -> NatsClient:
    """Return a client in the account of that name; `server` may be a URL."""
    url = server if isinstance(server, str) else server.client_url
    return await nats.connect(url, user=account, password="-", **settings)
