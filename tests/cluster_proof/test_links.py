"""Links: each direction can be cut, what was held back comes later, and cut links refuse."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.cluster_proof.links import Links
from tests.cluster_proof.program import PROGRAM, REPLICATED
from tests.cluster_proof.servers import Server, running_servers
from tests.waiting import DEADLINE_S, POLL_S, Eventually, eventually_within

DIALS = 4


class Ends:
    """The two ends of a connection from n1 to n2, which goes through a link."""

    def __init__(self) -> None:
        self.got = b""
        self.is_open, self.is_closed = asyncio.Event(), False

    async def collect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.is_open.set()
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(100):
                self.got += data
        writer.close()
        self.is_closed = True


@contextlib.asynccontextmanager
async def linked() -> AsyncIterator[tuple[Links, Ends, asyncio.StreamWriter]]:
    """Yield links, the end at n2, and a writer at n1."""
    far = Ends()
    async with await asyncio.start_server(far.collect, "127.0.0.1", 0) as listener:
        links = Links({"n1": 1, "n2": listener.sockets[0].getsockname()[1]})
        async with links.listening():
            _, writer = await asyncio.open_connection("127.0.0.1", *links.ports_of("n1"))
            await far.is_open.wait()
            yield links, far, writer
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()


async def test_bytes_and_ends_that_are_held_back_come_after_healing(
    eventually: Eventually,
) -> None:
    async with linked() as (links, far, writer):
        writer.write(b"before ")
        await eventually(lambda: far.got == b"before ")
        links.cut_one_way(["n1"], ["n2"])
        writer.write(b"meanwhile")
        writer.close()
        await writer.wait_closed()
        assert (far.got, far.is_closed) == (b"before ", False)
        links.heal()
        await eventually(lambda: far.is_closed)
        assert far.got == b"before meanwhile"


async def test_a_dropped_connection_ends_and_a_new_one_is_refused(eventually: Eventually) -> None:
    async with linked() as (links, far, _):
        links.cut(["n1"], drop=True)
        await eventually(lambda: far.is_closed)
        reader, writer = await asyncio.open_connection("127.0.0.1", *links.ports_of("n1"))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        assert links.refused_by("n1") == links.refused_by("n2") == 1


async def routes_of(server: Server) -> int:
    """Return how many connections to other servers a server has."""
    seen = await server.seen("routez")
    assert seen is not None
    return len(seen.get("routes") or ())


async def until_routes(server: Server, is_so: Callable[[int], bool]) -> None:
    """Wait until the number of connections to other servers is right."""
    give_up_at = time.monotonic() + DEADLINE_S
    while True:
        count = await routes_of(server)
        if is_so(count):
            return
        assert time.monotonic() < give_up_at, f"{server.name} has {count} routes"
        await asyncio.sleep(POLL_S)


@REPLICATED
async def test_a_server_that_is_cut_off_finds_no_way_around(tmp_path: Path) -> None:
    async with running_servers(tmp_path, 3, PROGRAM) as servers:
        first, second, _ = servers
        await until_routes(first, lambda count: count >= 2)
        servers.links.cut([first.name], drop=True)
        await until_routes(first, lambda count: count == 0)
        refused = servers.links.refused_by(first.name)
        await eventually_within(lambda: servers.links.refused_by(first.name) > refused + DIALS)
        assert await routes_of(first) == 0
        assert await routes_of(second) > 0
        servers.links.heal()
        await until_routes(first, lambda count: count >= 2)
