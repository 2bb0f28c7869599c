"""A server with monitoring endpoints, and requests to them over HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from aiohttp import ClientSession
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.clients.closed import ClosedClient
from natsd.monitor import http_server


class Probe:
    """A server, its monitoring endpoints, and an HTTP session."""

    def __init__(self, server: Server, port: int, session: ClientSession) -> None:
        self.server = server
        self.port = port
        self._url = f"http://127.0.0.1:{port}"
        self._session = session

    def url(self, path: str) -> str:
        return self._url + path

    async def ask(self, path: str) -> tuple[int, Any, dict[str, str]]:
        """Return status, body (decoded if it is JSON) and headers."""
        async with self._session.get(self.url(path)) as response:
            text = await response.text()
            is_json = response.content_type == "application/json"
            headers = dict(response.headers)
            return response.status, json.loads(text) if is_json else text, headers

    async def get(self, path: str) -> dict[str, Any]:
        """Return the JSON answer of a request that must succeed."""
        status, body, _ = await self.ask(path)
        assert status == 200, body
        assert isinstance(body, dict)
        return body

    async def connections(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of `/connz`."""
        rows = (await self.get(f"/connz?{query}"))["connections"]
        assert isinstance(rows, list)
        return rows

    @asynccontextmanager
    async def client(self, name: str = "", **options: Any) -> AsyncIterator[NatsClient]:
        """Yield a connected client."""
        client = await nats.connect(self.server.client_url, name=name, **options)
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def probing(**settings: Any) -> AsyncIterator[Probe]:
    async with Server(host="127.0.0.1", port=-1, **settings) as server, ClientSession() as session:
        watcher = http_server.start(server)
        try:
            yield Probe(server, watcher.port, session)
        finally:
            await watcher.stop()


@asynccontextmanager
async def probing_own(server: Server) -> AsyncIterator[Probe]:
    """Yield a probe of the endpoints that the server starts itself."""
    async with ClientSession() as session:
        yield Probe(server, server.http_port, session)


def closed_client(cid: int, **more: Any) -> ClosedClient:
    """Return a closed connection with small values, except for those in `more`."""
    times = dict.fromkeys(("start_ns", "last_activity_ns", "stop_ns"), cid)
    texts = dict.fromkeys(("name", "lang", "version", "authorized_user"), "")
    numbers = dict.fromkeys(
        (
            "rtt_ns",
            "pending_bytes",
            "in_msgs",
            "in_bytes",
            "out_msgs",
            "out_bytes",
            "stalls",
            "num_subscriptions",
        ),
        0,
    )
    where = {
        "ip": "127.0.0.1",
        "port": 1,
        "account_name": "$G",
        "verdict": None,
        "tls_state": None,
        "kept_subscriptions": (),
    }
    fixed = {"cid": cid, "kind": "Client", "reason": "Client Closed"}
    fields: dict[str, Any] = {**times, **texts, **numbers, **where, **fixed}
    return ClosedClient(**fields | more)
