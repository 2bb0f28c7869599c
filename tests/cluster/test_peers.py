"""Peers that misbehave: slow, silent, lost; and what is left when a server stops."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from natsd import Server
from natsd.clients.listener import ListenError
from natsd.core.reasons import ClosedReason
from tests.cluster.mesh import client, cluster_of, member, routes_of
from tests.waiting import Eventually

INFO = {
    "server_id": "PEER",
    "server_name": "P",
    "proto": 3,
    "host": "127.0.0.1",
    "port": 1,
    "headers": True,
    "cluster": "C",
    "route_pool_size": 1,
}


class Peer:
    """The other end of a route, which the test plays."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def transport(self) -> asyncio.Transport:
        return cast("asyncio.Transport", self.writer.transport)

    def send(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def until(self, beginning: str) -> str:
        """Return the next line that begins so."""
        async with asyncio.timeout(20):
            while True:
                line = (await self.reader.readline()).decode()
                assert line, f"the end, not {beginning}"
                if line.startswith(beginning):
                    return line.rstrip()


@contextlib.asynccontextmanager
async def peer_of(server: Server, **info: Any) -> AsyncIterator[Peer]:
    """Be a peer that has dialed a server, and is registered there."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", cluster_of(server).port))
    await peer.until("INFO")
    peer.send('CONNECT {"name":"PEER","cluster":"C"}', f"INFO {json.dumps({**INFO, **info})}")
    peer.send("PING")
    await peer.until("PONG")
    try:
        yield peer
    finally:
        peer.writer.close()


async def test_a_peer_that_reads_nothing_is_closed_at_max_pending(eventually: Eventually) -> None:
    settings: dict[str, Any] = {"max_pending": 1 << 20, "no_system_account": True}
    async with member("A", cluster={"pool_size": 1}, **settings) as server:
        async with peer_of(server) as peer, client(server) as publisher:
            peer.send("RS+ $G foo")
            await eventually(lambda: server.accounts["$G"].sublist.has_interest("foo"))
            (route,) = routes_of(server)
            peer.transport.pause_reading()
            async with asyncio.timeout(20):
                while route.reason is None:
                    await publisher.publish("foo", bytes(100_000))
                    await publisher.flush()
            assert route.reason is ClosedReason.SLOW_CONSUMER_PENDING_BYTES
            assert not server.accounts["$G"].sublist.has_interest("foo")


async def test_a_peer_that_reads_late_is_not_closed(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "natsd")
    block = {"pool_size": 1, "write_deadline": "100ms"}
    async with member("A", cluster=block, no_system_account=True) as server:
        async with peer_of(server) as peer, client(server) as publisher:
            peer.send("RS+ $G foo")
            await eventually(lambda: server.accounts["$G"].sublist.has_interest("foo"))
            (route,) = routes_of(server)
            peer.transport.pause_reading()
            while route.pending_bytes == 0:
                await publisher.publish("foo", bytes(500_000))
                await publisher.flush()
            await eventually(lambda: "Slow Consumer Detected" in caplog.text)
            peer.transport.resume_reading()
            while route.pending_bytes:
                await peer.reader.read(1 << 20)
            await eventually(lambda: "Slow Consumer Recovered" in caplog.text)
            assert route.reason is None


async def test_a_silent_peer_is_stale(eventually: Eventually) -> None:
    block = {"pool_size": 1, "ping_interval": "20ms", "ping_max": 2}
    async with member("A", cluster=block, no_system_account=True) as server:
        async with peer_of(server):
            (route,) = routes_of(server)
            await eventually(lambda: route.reason is ClosedReason.STALE_CONNECTION)


async def test_news_of_a_server_is_followed_and_of_ourselves_is_not(eventually: Eventually) -> None:
    async with member("A", cluster={"pool_size": 1}, no_system_account=True) as server:
        dialed = asyncio.Event()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialed.set()
            writer.close()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as other:
            url = f"nats-route://127.0.0.1:{other.sockets[0].getsockname()[1]}/"
            async with peer_of(server) as peer:
                own = {**INFO, "server_id": server.id, "ip": url}
                peer.send(f"INFO {json.dumps(own)}", "PING")
                await peer.until("PONG")
                assert not cluster_of(server)._dialer._tasks
                peer.send(f"INFO {json.dumps({**INFO, 'server_id': 'OTHER', 'ip': url})}")
                await asyncio.wait_for(dialed.wait(), 20)


async def test_the_peers_are_told_of_one_another() -> None:
    async with member("A", cluster={"pool_size": 1}, no_system_account=True) as server:
        async with peer_of(server) as first, peer_of(server, server_id="OTHER", port=2):
            line = await first.until("INFO")
            told = json.loads(line[5:])
            assert (told["server_id"], told["ip"]) == ("OTHER", "nats-route://127.0.0.1:2/")
            assert told["gossip_mode"] == 1


async def test_a_lame_duck_is_taken_from_the_urls(eventually: Eventually) -> None:
    async with member("A", cluster={"pool_size": 1}, no_system_account=True) as server:
        async with peer_of(server, connect_urls=["a:1"]) as peer:
            await eventually(lambda: cluster_of(server).connect_urls == ("a:1",))
            peer.send(f"INFO {json.dumps({**INFO, 'ldm': True})}")
            await eventually(lambda: cluster_of(server).connect_urls == ())
            assert routes_of(server)


async def test_interest_is_sent_again_when_the_peer_exports_more() -> None:
    async with member("A", cluster={"pool_size": 1}, no_system_account=True) as server:
        async with client(server) as ours, peer_of(server, export={"deny": ["foo"]}) as peer:
            await ours.subscribe("foo")
            await ours.flush()
            await peer.until("RS+ $G foo")
            peer.send(f"INFO {json.dumps(INFO)}")
            await peer.until("RS+ $G foo")


async def test_the_port_may_be_in_use() -> None:
    async with member("A") as server:
        port = cluster_of(server).port
        second = member("B", cluster={"port": port})
        with pytest.raises(ListenError, match=f"Error listening on router port: {port} - listen"):
            await second.start()
        assert second.cluster is None


async def test_a_server_can_be_started_again() -> None:
    server = member("A")
    for _ in range(2):
        async with server, peer_of(server, route_pool_size=3):
            assert routes_of(server)
        assert server.cluster is None


def test_a_server_without_a_cluster_does_not_import_routes() -> None:
    program = (
        "import asyncio, sys\n"
        "from natsd import Server\n"
        "async def main():\n"
        "    async with Server(port=-1): pass\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('natsd.cluster')])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
