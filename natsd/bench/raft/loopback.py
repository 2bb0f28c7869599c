"""A transport over plain TCP on the loopback interface, for measurements and tests of RAFT alone.

length u32 │ frame …      one connection in each direction; the receiver does not answer
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping

from natsd.raft.transport import Receive

LENGTH = struct.Struct("<I")
PENDING_BYTES_MAX = 64 << 20
CONNECT_AGAIN_S = 0.05


class _Incoming(asyncio.Protocol):
    """The frames of one other process."""

    def __init__(self, link: LoopbackLink) -> None:
        self._link = link
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.connections.add(transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._data
        buffer += data
        at = 0
        while len(buffer) - at >= LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(buffer, at)[0]
            if end > len(buffer):
                break
            frame = bytes(memoryview(buffer)[at + LENGTH.size : end])
            at = end
            if self._link.receive is not None:
                self._link.receive(frame)
        del buffer[:at]


class _Outgoing(asyncio.Protocol):
    """The connection to another process; nothing comes from there."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class LoopbackLink:
    """The transport of one process."""

    frame_bytes_max = 4 << 20

    def __init__(self, ports: Mapping[int, int], server: int) -> None:
        self._ports = ports
        self._server = server
        self._tasks: list[asyncio.Task[None]] = []
        self._out: dict[int, asyncio.WriteTransport] = {}
        self._listener: asyncio.Server | None = None
        self.connections: set[asyncio.BaseTransport] = set()
        self.receive: Receive | None = None

    async def open(self) -> None:
        """Listen, and connect to the others, again and again if that is necessary."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Incoming(self), "127.0.0.1", self._ports[self._server]
        )
        for server in self._ports:
            if server != self._server:
                self._tasks.append(loop.create_task(self._connect(server)))

    async def _connect(self, server: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError):
                transport, outgoing = await loop.create_connection(
                    _Outgoing, "127.0.0.1", self._ports[server]
                )
                self._out[server] = transport
                await outgoing.lost.wait()
            await asyncio.sleep(CONNECT_AGAIN_S)

    def send(self, server: int, frame: bytes) -> None:
        """Send a frame, unless the other process is gone or far behind."""
        transport = self._out.get(server)
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() < PENDING_BYTES_MAX:
            transport.writelines((LENGTH.pack(len(frame)), frame))

    def listen(self, receive: Receive) -> None:
        """Call `receive` with each frame from now on."""
        self.receive = receive

    def close(self) -> None:
        """Close all connections."""
        self.receive = None
        for task in self._tasks:
            task.cancel()
        for transport in (*self._out.values(), *self.connections):
            transport.close()
        if self._listener is not None:
            self._listener.close()
