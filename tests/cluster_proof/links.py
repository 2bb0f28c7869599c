"""The connections between servers, each through a proxy that can be cut in one direction or both.

    n1 ── dials ──▶ Link(n1, n2) ──▶ n2        bytes of n1 to n2: `forward`
    n1 ◀──────────  Link(n1, n2) ◀── n2        bytes of n2 to n1: `backward`
    n2 ── dials ──▶ Link(n2, n1) ──▶ n1        servers keep one of the two

- A cut holds back the bytes of existing connections, the ends of connections as well: as if a cable
  were pulled. After `heal` they arrive, late. With `drop` existing connections end instead.
- While either direction is cut, new connections are refused.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import permutations

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 16


class Link:
    """A proxy from a server that dials to a server that listens."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self.refused = 0
        """Connections that were refused."""
        self.forward, self.backward = asyncio.Event(), asyncio.Event()
        self.forward.set()
        self.backward.set()
        self._to_port = to_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self.forward.is_set() and self.backward.is_set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            self.refused += 1
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        self._start(reader, far_writer, self.forward)
        self._start(far_reader, writer, self.backward)

    def drop(self) -> None:
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        self._writers.add(sink)
        task = asyncio.ensure_future(self._carry(source, sink, gate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(READ_BYTES):
                    await gate.wait()
                    if sink.is_closing():  # this end was dropped meanwhile
                        break
                    sink.write(data)
                    await sink.drain()
                await gate.wait()
        finally:
            sink.close()
            self._writers.discard(sink)


class Links:
    """The links of all ordered pairs of servers."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.names = tuple(ports)
        self._links = {(a, b): Link(ports[b]) for a, b in permutations(ports, 2)}

    def ports_of(self, dialer: str) -> list[int]:
        """Return the ports at which a server reaches the other ones."""
        return [link.port for (a, _), link in self._links.items() if a == dialer]

    def refused_by(self, name: str) -> int:
        """Return how many connections to and from a server were refused."""
        return sum(link.refused for pair, link in self._links.items() if name in pair)

    def cut(self, side: Iterable[str], others: Iterable[str] = (), *, drop: bool = False) -> None:
        """Cut servers off from others (none given: all others), in both directions."""
        side = tuple(side)
        others = tuple(others) or tuple(name for name in self.names if name not in side)
        self.cut_one_way(side, others, drop=drop)
        self.cut_one_way(others, side, drop=drop)

    def cut_one_way(
        self, senders: Iterable[str], receivers: Sequence[str], *, drop: bool = False
    ) -> None:
        """Hold back what these servers send to those."""
        senders = tuple(senders)
        logger.info("cut %s > %s%s", senders, receivers, " and drop" if drop else "")
        for sender in senders:
            for receiver in receivers:
                ahead, back = self._links[sender, receiver], self._links[receiver, sender]
                ahead.forward.clear()
                back.backward.clear()
                if drop:
                    ahead.drop()
                    back.drop()

    def heal(self) -> None:
        """Let everything pass again."""
        logger.info("heal")
        for link in self._links.values():
            link.forward.set()
            link.backward.set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Run all proxies."""
        async with contextlib.AsyncExitStack() as stack:
            for link in self._links.values():
                listener = await asyncio.start_server(link.accept, "127.0.0.1", 0)
                link.port = listener.sockets[0].getsockname()[1]
                stack.push_async_callback(link.close)
                stack.callback(listener.close)
            yield
