"""A client over a bare connection, on the loop of the test: it keeps each message that arrives.

async with joined(server, user="a") as alice:
    alice.send(b"SUB foo 1\r\n")
    await alice.sync()                  # the server has handled everything that was sent
    assert alice.take() == [...]        # the messages since the last call
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

from natsd import Server
from tests.accounts.shared import Got
from tests.waiting import DEADLINE_S, eventually_within


class RawClient(asyncio.Protocol):
    """One connection; messages and errors are kept in the order of their arrival."""

    def __init__(self) -> None:
        self.messages: list[Got] = []
        self.errors: list[str] = []
        self.is_closed = False
        self._rest = bytearray()
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._transport: asyncio.Transport | None = None

    # ---- what tests do

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def publish(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        self.send(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")

    async def sync(self) -> None:
        """Wait until the server has handled everything that was sent, and its answers are here."""
        pong = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self.send(b"PING\r\n")
        async with asyncio.timeout(DEADLINE_S):
            await pong

    async def found(self, data: bytes) -> None:
        """Wait for a message with this payload."""
        await eventually_within(lambda: any(got.data == data for got in self.messages))

    def take(self) -> list[Got]:
        """Return the messages since the last call."""
        taken, self.messages = self.messages, []
        return taken

    def pause(self) -> None:
        """Read no more until `resume`."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's have no base class

    def data_received(self, data: bytes) -> None:
        self._rest += data
        used = 0
        while (size := self._frame(used)) > 0:
            used += size
        del self._rest[:used]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(exc or ConnectionResetError("the server closed"))

    def _frame(self, at: int) -> int:
        """Handle the frame at an offset; return its size, 0: it is not complete."""
        end = self._rest.find(b"\r\n", at)
        if end < 0:
            return 0
        line = bytes(self._rest[at:end])
        end += 2
        word = line.partition(b" ")[0]
        if word in (b"MSG", b"HMSG"):
            end += int(line.rpartition(b" ")[2]) + 2
            if end > len(self._rest):
                return 0
            self.messages.append(Got(bytes(self._rest[at:end])))
        elif word == b"PING":
            self.send(b"PONG\r\n")
        elif word == b"PONG":
            pong = self._pongs.popleft()
            if not pong.done():
                pong.set_result(None)
        elif word == b"-ERR":
            self.errors.append(line.decode())
        return end - at


async def join(server: Server, **said: Any) -> RawClient:
    """Return a new client of a server; `said` are fields of its CONNECT."""
    return await join_port(server.client_port, **said)


async def join_port(port: int, **said: Any) -> RawClient:
    """Return a new client of the server at a port."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(RawClient, "127.0.0.1", port)
    fields = {"verbose": False, "headers": True, "no_responders": True, **said}
    client.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\n")
    await client.sync()
    return client


@contextlib.asynccontextmanager
async def joined(server: Server, **said: Any) -> AsyncIterator[RawClient]:
    """Run a client of a server."""
    client = await join(server, **said)
    try:
        yield client
    finally:
        client.close()
