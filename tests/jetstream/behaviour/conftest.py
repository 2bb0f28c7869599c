"""A server with JetStream for each test, and its clients; tests/clients/target.py chooses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.clients.target import GO_SERVER, NatsdTarget, ProcessTarget, start_on_loop, stop_on_loop
from tests.clients.wire import Wire
from tests.jetstream.behaviour.api import Api

AnyTarget = ProcessTarget | NatsdTarget
StartJetStream = Callable[..., Awaitable[AnyTarget]]
Restart = Callable[[], Awaitable[AnyTarget]]
Connect = Callable[..., Awaitable[Client]]
OpenWire = Callable[..., Wire]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "natsd_only: true of natsd, not of nats-server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if GO_SERVER:
        for item in items:
            if item.get_closest_marker("natsd_only"):
                item.add_marker(pytest.mark.skip(reason="natsd only, and nats-server is tested"))


@pytest.fixture
async def start_jetstream(tmp_path: Path) -> AsyncIterator[StartJetStream]:
    """Yield a function that starts a server with these settings of `jetstream {}`.

    It is used as `server = await start_jetstream(max_memory_store=1024)`. A second call stops the
    first server and starts another one on the same files.
    """
    running: list[AnyTarget] = []

    async def start(options: dict[str, Any] | None = None, **settings: Any) -> AnyTarget:
        while running:
            await stop_on_loop(running.pop())
        jetstream = {"store_dir": str(tmp_path / "store"), **settings}
        running.append(await start_on_loop({"jetstream": jetstream, **(options or {})}))
        return running[-1]

    yield start
    while running:
        await stop_on_loop(running.pop())


@pytest.fixture
async def server(start_jetstream: StartJetStream) -> AnyTarget:
    """Return a server with JetStream and default options."""
    return await start_jetstream()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Yield a function that connects nats-py clients, which are closed when the test ends.

    It is used as `nc = await connect(server, name="x")`.
    """
    connected: list[Client] = []

    async def connect(target: AnyTarget, **options: Any) -> Client:
        connected.append(await nats.connect(target.url, allow_reconnect=False, **options))
        return connected[-1]

    yield connect
    for client in connected:
        await client.close()


@pytest.fixture
async def nc(server: AnyTarget, connect: Connect) -> Client:
    return await connect(server)


@pytest.fixture
def js(nc: Client) -> JetStreamContext:
    return nc.jetstream()


@pytest.fixture
def api(nc: Client) -> Api:
    return Api(nc)


@pytest.fixture
def open_wire() -> Iterator[OpenWire]:
    """Yield a function that opens raw connections with headers, closed when the test ends.

    It is used as `alice = open_wire(server)`.
    """
    opened: list[Wire] = []

    def open_wire(target: AnyTarget) -> Wire:
        opened.append(Wire(target.address))
        opened[-1].send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        return opened[-1]

    yield open_wire
    for wire in opened:
        wire.close()
