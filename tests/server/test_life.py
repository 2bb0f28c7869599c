"""A server inside an asyncio program: starts, stops, failures, cancellation; nothing remains."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from natsd import Server
from natsd.clients.listener import ListenError
from natsd.core.reasons import ClosedReason
from natsd.server.files import FileError
from tests.clients.serving import Serving
from tests.server.leftovers import leftovers
from tests.server.streams import Stream
from tests.waiting import Eventually

pytestmark = pytest.mark.both_loops
README = Path(__file__).parents[2] / "README.md"


def local(**settings: Any) -> Server:
    return Server(host="127.0.0.1", port=-1, **settings)


@contextlib.asynccontextmanager
async def nothing_stays() -> AsyncIterator[None]:
    before = leftovers()
    yield
    await asyncio.sleep(0)  # the loop still holds a task that has just ended
    assert not leftovers().new_since(before)


@contextlib.asynccontextmanager
async def in_use(server: Server, clients: int = 1) -> AsyncIterator[list[Stream]]:
    """Yield clients that have connected, subscribed to `all` and `own.<number>`, and received."""
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for number in range(clients):
            streams.append(await Stream.open(server.client_port))
            stack.push_async_callback(streams[-1].close)
            streams[-1].send(b"SUB all 1\r\nSUB own.%d 2\r\n" % number)
            await streams[-1].sync()
        streams[0].send(b"PUB all 5\r\nhello\r\n")
        for stream in streams:
            await streams[0].sync()
            assert b"MSG all 1 5\r\n" in await stream.sync() or stream is streams[0]
        yield streams


@pytest.fixture(autouse=True, params=[Serving.DEFAULT, Serving.UVLOOP_TRANSPORTS])
def serving(request: pytest.FixtureRequest) -> Iterator[None]:
    """Serve by the poller, and by the loop's transports."""
    with request.param.chosen():
        yield


@pytest.fixture(autouse=True)
async def warm_loop(serving: None) -> None:
    """Open what a loop opens at its first use, so that it is not counted as the server's."""
    async with local() as server:
        stream = await Stream.open(server.client_port)
        await stream.close()


async def test_nothing_stays() -> None:
    async with nothing_stays():
        async with local() as server:
            stream = await Stream.open(server.client_port)
            stream.send(b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
            await stream.sync()
            await stream.close()
        del server, stream


async def test_nothing_stays_of_connections_open_at_the_end() -> None:
    """The server closes its ends of the connections; the clients' ends belong to the clients."""
    async with nothing_stays():
        async with local() as server:
            streams = [await Stream.open(server.client_port) for _ in range(10)]
            for stream in streams:
                stream.send(b"SUB foo 1\r\n")
                await stream.sync()
        assert not server.clients
        assert {gone.reason for gone in server.closed_clients} == {
            ClosedReason.SERVER_SHUTDOWN.value
        }
        for stream in streams:
            assert await stream.read_until_closed() == b""
            await stream.close()
        del server, stream, streams


async def test_what_was_published_before_the_end_arrives() -> None:
    async with local() as server:
        subscriber = await Stream.open(server.client_port)
        subscriber.send(b"SUB foo 1\r\n")
        await subscriber.sync()
        server.accounts["$G"].internal_client.publish("foo", b"last words")
    assert await subscriber.read_until_closed() == b"MSG foo 1 10\r\nlast words\r\n"
    await subscriber.close()


async def test_nothing_stays_of_connections_closed_with_an_error() -> None:
    """Such a socket lingers so that the client can read the reason, until the server stops."""
    async with nothing_stays():
        async with local() as server:
            stream = await Stream.open(server.client_port)
            stream.send(b"nonsense\r\n")
            assert await stream.line() == b"-ERR 'Unknown Protocol Operation'\r\n"
        in_use = leftovers()
        await stream.close()
        assert in_use.new_since(leftovers()).descriptors  # the client's; the server has none
        del server, stream, in_use


async def test_nothing_stays_with_monitoring_and_files(tmp_path: Path) -> None:
    settings = {"http_port": -1, "pid_file": tmp_path / "pid", "ports_file_dir": tmp_path}
    async with local(**settings) as server:  # the executor keeps its thread, which imported aiohttp
        await ask_varz(server)
    del server
    async with nothing_stays():
        async with local(**settings) as server:
            await ask_varz(server)
        del server
    assert os.listdir(tmp_path) == []


async def ask_varz(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    writer.write(b"GET /varz HTTP/1.0\r\n\r\n")
    assert server.id.encode() in await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_many_at_once_are_strangers() -> None:
    async with nothing_stays():
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(local()) for _ in range(20)]
            assert len({server.id for server in servers}) == 20
            assert len({server.client_port for server in servers}) == 20
            streams = [await Stream.open(server.client_port) for server in servers]
            for stream in streams:
                stream.send(b"SUB foo 1\r\n")
                await stream.sync()
            streams[7].send(b"PUB foo 2\r\nhi\r\n")
            received = [await stream.sync() for stream in streams]
            assert [i for i, lines in enumerate(received) if lines] == [7]
            assert [server.counters.in_msgs for server in servers] == [0] * 7 + [1] + [0] * 12
            for stream in streams:
                await stream.close()
        del servers, streams, stream, stack


async def test_connections_still_being_accepted_at_the_end_are_closed() -> None:
    async with nothing_stays():
        for turns in range(5):
            async with local() as server:
                address = ("127.0.0.1", server.client_port)
                connections = [socket.create_connection(address) for _ in range(20)]
                for _ in range(turns):
                    await asyncio.sleep(0)
            for connection in connections:
                connection.close()
        del server, connection, connections


# ---- starts that fail


async def test_a_port_in_use_leaves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with nothing_stays():
            with pytest.raises(ListenError, match="address already in use"):
                await Server(host="127.0.0.1", port=taken.getsockname()[1], http_port=-1).start()


async def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    async with nothing_stays():
        with pytest.raises(FileError):
            await local(pid_file=tmp_path / "missing" / "pid").start()


async def test_a_failing_reactor_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reactor may fail because no descriptor is left, for instance."""

    def no_reactor(*_: object) -> None:
        raise OSError("cannot open an epoll descriptor")

    monkeypatch.setattr("natsd.server.server.Reactor", no_reactor)
    async with nothing_stays():
        with pytest.raises(OSError, match="epoll"):
            await local().start()


async def test_after_a_failed_start_it_may_start(tmp_path: Path) -> None:
    pid_file = tmp_path / "directory" / "pid"
    server = local(pid_file=pid_file)
    with pytest.raises(FileError):
        await server.start()
    pid_file.parent.mkdir()
    async with server, in_use(server):
        pass


async def test_a_cancelled_start_leaves_nothing() -> None:
    async with nothing_stays():
        for yields in range(4):
            starting = asyncio.create_task(run_until_cancelled())
            for _ in range(yields):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        del starting


async def run_until_cancelled() -> None:
    async with local(http_port=0):
        await asyncio.Event().wait()


# ---- starting and stopping more than once


async def test_starting_a_running_server_is_an_error() -> None:
    async with local() as server:
        with pytest.raises(RuntimeError, match="the server is running"):
            await server.start()
        async with in_use(server):
            pass


async def test_stopping_twice_is_once() -> None:
    server = local()
    await server.stop()
    await server.start()
    await asyncio.gather(server.stop(), server.stop(), server.wait_closed())
    await server.stop()
    await server.wait_closed()


async def test_a_stopped_server_starts_afresh() -> None:
    server = local()
    started = []
    for _ in range(3):
        async with server, in_use(server, clients=2):
            started.append(server.start_time)
            assert server.total_connections == len(server.clients) == 2
            assert server.counters.in_msgs == 1
            assert sorted(server.clients) == [5, 6]
        assert not server.clients
    assert started == sorted(set(started))


async def test_clients_find_a_restarted_server_again(eventually: Eventually) -> None:
    async with local() as server:
        port = server.client_port
        client = await nats.connect(server.client_url, reconnect_time_wait=0.01)
    async with Server(host="127.0.0.1", port=port) as server:
        await eventually(lambda: client.is_connected and server.clients)
        await client.close()


async def test_wait_closed_waits_for_the_end(eventually: Eventually) -> None:
    server = local()
    await server.wait_closed()
    await server.start()
    waiting = asyncio.create_task(server.wait_closed())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await server.stop()
    await waiting


async def test_a_cancelled_stop_stops_nevertheless() -> None:
    importlib.import_module("natsd.monitor.endpoints")  # the first import opens files
    async with nothing_stays():
        server = local(http_port=-1)
        await server.start()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await server.wait_closed()
        del server, stopping


async def test_what_the_program_raises_comes_through() -> None:
    async with nothing_stays():
        with pytest.raises(ZeroDivisionError):
            async with local() as server, in_use(server):
                raise ZeroDivisionError
        assert not server.clients
        del server


async def test_the_program_may_be_cancelled_while_it_serves() -> None:
    async with nothing_stays():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), local() as server:
                await asyncio.Event().wait()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.client_port)
        del server


async def test_the_readmes_example_works(capsys: pytest.CaptureFixture[str]) -> None:
    section = README.read_text().partition("## In your own program")[2]
    match = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert match is not None
    body = "".join(f"    {line}\n" for line in match[1].splitlines())
    names: dict[str, Any] = {}
    exec(f"async def main():\n{body}", names)
    await names["main"]()
    assert re.fullmatch(r"nats://127\.0\.0\.1:\d+\n", capsys.readouterr().out)
