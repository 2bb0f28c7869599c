"""A proxy between servers, which a test can stop and cut.

async with proxy_to(cluster_of(server).port) as proxy:
    other = member("B", [proxy.port])
    proxy.pause()       # nothing is read any more from those that connect here
    proxy.cut()         # all connections end; new ones may be made
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

READ_BYTES = 65536


class Proxy:
    """Forwards the bytes of each connection to one port."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def pause(self) -> None:
        """Forward nothing more, in any direction."""
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            task = asyncio.get_running_loop().create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(READ_BYTES):
                    await self._flows.wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()
            self._writers.discard(sink)


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a port of this machine."""
    proxy = Proxy(port)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    async with listener:
        try:
            yield proxy
        finally:
            await proxy.close()
