"""Servers and clients for the behaviour tests; target.py decides which server is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from tests.clients.serving import Serving
from tests.clients.target import (
    GO_SERVER,
    NatsdTarget,
    ProcessTarget,
    start_on_loop,
    start_process,
    start_threaded,
    stop_on_loop,
    stop_threaded,
)
from tests.clients.wire import Wire

AnyTarget = ProcessTarget | NatsdTarget

StartServer = Callable[..., Awaitable[AnyTarget]]
StartThreadedServer = Callable[..., AnyTarget]
StartServerProcess = Callable[..., ProcessTarget]
Connect = Callable[..., Awaitable[Client]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "natsd_only: true of natsd, not of nats-server")
    config.addinivalue_line("markers", "served_every_way: run with each of `Serving`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if GO_SERVER:
        for item in items:
            if item.get_closest_marker("natsd_only"):
                item.add_marker(pytest.mark.skip(reason="natsd only, and nats-server is tested"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "serving" in metafunc.fixturenames:
        every_way = metafunc.definition.get_closest_marker("served_every_way") and not GO_SERVER
        ways = list(Serving) if every_way else [Serving.DEFAULT]
        ids = [way.value if every_way else pytest.HIDDEN_PARAM for way in ways]
        metafunc.parametrize("serving", ways, ids=ids, indirect=True)


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """Return how the servers of this test serve their sockets."""
    way: Serving = request.param
    with way.chosen():
        yield way


@pytest.fixture
async def start_server(serving: Serving) -> AsyncIterator[StartServer]:
    """Yield a function that starts servers, which are stopped when the test ends.

    It is used as `server = await start_server(max_payload=1024)`.
    """
    started = []

    async def start(**options: Any) -> AnyTarget:
        started.append(await start_on_loop(options))
        return started[-1]

    yield start
    for target in started:
        await stop_on_loop(target)


@pytest.fixture
async def server(start_server: StartServer) -> AnyTarget:
    """Return a server with default options."""
    return await start_server()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Yield a function that connects nats-py clients, which are closed when the test ends.

    It is used as `nc = await connect(server, name="x")`.
    """
    connected = []

    async def connect(target: AnyTarget, **options: Any) -> Client:
        connected.append(await nats.connect(target.url, **options))
        return connected[-1]

    yield connect
    for client in connected:
        await client.close()


@pytest.fixture
def start_threaded_server(serving: Serving) -> Iterator[StartThreadedServer]:
    """Yield a function that starts servers in threads, for synchronous tests.

    It is used as `server = start_threaded_server(max_connections=1)`.
    """
    started = []

    def start(**options: Any) -> AnyTarget:
        started.append(start_threaded(options))
        return started[-1]

    yield start
    for target in started:
        stop_threaded(target)


@pytest.fixture
def start_server_process(serving: Serving) -> Iterator[StartServerProcess]:
    """Yield a function that starts servers in their own processes, each with a `pid`.

    It is used as `server = start_server_process()`.
    """
    started = []

    def start(**options: Any) -> ProcessTarget:
        started.append(start_process(options))
        return started[-1]

    yield start
    for target in started:
        target.stop()


@pytest.fixture(scope="module")
def shared_servers() -> Iterator[dict[str, AnyTarget]]:
    """Yield the servers of `shared_server`, which are stopped after the module's last test.

    Each has its own loop, and some ten descriptors: later tests must not run beside all of them.
    """
    started: dict[str, AnyTarget] = {}
    yield started
    for target in started.values():
        stop_threaded(target)


@pytest.fixture
def shared_server(shared_servers: dict[str, AnyTarget], serving: Serving) -> StartThreadedServer:
    """Return a function that starts a server, or returns the running one with the same options."""

    def start(**options: Any) -> AnyTarget:
        key = repr((serving, sorted(options.items())))
        if key not in shared_servers:
            shared_servers[key] = start_threaded(options)
        return shared_servers[key]

    return start


@pytest.fixture
def open_wire() -> Iterator[Callable[..., Wire]]:
    """Yield a function that opens raw connections, which are closed when the test ends.

    It is used as `alice = open_wire(server)`.
    """
    opened = []

    def open_wire(target: AnyTarget, connect: str = "", **options: Any) -> Wire:
        opened.append(Wire(target.address, **options))
        if connect:
            opened[-1].send(b"CONNECT " + connect.encode() + b"\r\n")
        return opened[-1]

    yield open_wire
    for wire in opened:
        wire.close()
