"""A small client on the running loop, for servers on the same loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

DEADLINE_S = 30.0
QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


class Stream:
    """A connection whose INFO was read and whose CONNECT was sent.

    It is opened by `stream = await Stream.open(server)`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> Self:
        async with asyncio.timeout(DEADLINE_S):
            stream = cls(*await asyncio.open_connection(host, port))
            assert (await stream.line()).startswith(b"INFO {")
        stream.send(QUIET)
        return stream

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def line(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readline()

    async def sync(self) -> list[bytes]:
        """Send a PING and return the lines up to its PONG."""
        self.send(b"PING\r\n")
        lines = []
        while (line := await self.line()) != b"PONG\r\n":
            assert line, "closed by the server"
            lines.append(line)
        return lines

    async def read_until_closed(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # the server may have closed already
            await self.writer.wait_closed()
