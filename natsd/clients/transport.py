"""Serves connections from the event loop's transports: where there is no poller, and for TLS.

    loop's transport ──calls──> TransportLink ──calls──> Client (compiled, as elsewhere)
                     <─write─┘               <─write─┘

- Nothing waits in a transport unnoticed: its limits are 0, so it says when the socket is full.
- A link that closes sends what it has, then FIN; unread input would make the kernel reset the
  connection and an -ERR under way be lost, so it is read and thrown away for at most `LINGER_S`.
- `Transports` knows every connection, from accept to the end of its socket; after its `close` there
  is none.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from natsd.clients.client import Client
from natsd.core.reasons import ClosedReason

logger = logging.getLogger("natsd.server")

LINGER_S: Final = 0.5
"""How long a peer that still sends may take to read the last words."""
DRAIN_S: Final = 10.0
"""How long one that sends no more may take to read what is pending."""
DISCARDED_BYTES: Final = 16 * 1024


class TransportLink(asyncio.BufferedProtocol):
    """One connection: the loop's protocol on one side, the client's transport on the other."""

    def __init__(self, transports: "Transports", connect: "Connect") -> None:
        self._transports = transports
        self._connect: Connect | None = connect
        self._client: Client | None = None
        self._discarded: bytearray | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._ended = False
        self._lost = False

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up: nothing may wait in the transport unnoticed."""
        assert self._connect is not None
        connect, self._connect = self._connect, None
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is none
        transport.set_write_buffer_limits(0)
        if self._transports.closed:
            transport.abort()
            return
        self._transports.links.add(self)
        self.write: Callable[[bytes], object] = transport.write
        try:
            self._client = connect(self)
        except Exception:
            logger.exception("A connection is closed because it cannot be served")
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        """Where the loop may put what it reads."""
        if self._discarded is not None or self._client is None:
            self._discarded = self._discarded or bytearray(DISCARDED_BYTES)
            return self._discarded
        return self._client.read_space(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """The loop put that many bytes there."""
        if self._discarded is None and self._client is not None:
            self._client.bytes_read(nbytes)

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._client is not None:
            self._client.writing_paused()

    def resume_writing(self) -> None:
        """The socket took everything."""
        if self._client is not None:
            self._client.writing_resumed()

    def eof_received(self) -> bool:
        """The peer sends no more; the client closes the transport when it has answered."""
        self._ended = True
        if self._linger is not None or self._client is None:
            return False
        self._client.close(ClosedReason.CLIENT_CLOSED)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._lost = True
        self.write = _discard
        if self._linger is not None:
            self._linger.cancel()
        if self._client is not None:
            self._client.close(ClosedReason.READ_ERROR if exc else ClosedReason.CLIENT_CLOSED)
        self._transports.lost(self)

    # ---- called by the client; `write` is the transport's own

    def close(self) -> None:
        """Send what is left, then close, in a way that the peer can read it; soon in any case."""
        transport = self._transport
        if self._lost:
            return
        patience_s = DRAIN_S if self._ended else LINGER_S
        self._linger = self._transports.loop.call_later(patience_s, transport.abort)
        if self._ended or not transport.can_write_eof():
            transport.close()
            return
        self._discarded = bytearray(DISCARDED_BYTES)
        try:
            transport.write_eof()
            transport.resume_reading()
        except (OSError, RuntimeError):  # it broke meanwhile
            transport.abort()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the socket."""
        return self._transport.get_write_buffer_size()


def _discard(_data: bytes) -> None:
    """Nobody reads any more: what is still pending is not sent."""


Connect = Callable[[TransportLink], Client]
"""Makes the client of a connection that is up."""


class Transports:
    """The connections of one server that its loop serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed = False
        self.links: set[TransportLink] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._all_lost = asyncio.Event()

    def add(self, connection: socket.socket, connect: Connect) -> None:
        """Serve an accepted connection; `connect` is called when it is up."""
        task = self.loop.create_task(self._serve(connection, connect))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def close(self) -> None:
        """End what is left, and wait until every socket is closed."""
        self.closed = True
        # Not cancelled: it takes no round trip, and uvloop would forget to say `connection_lost`.
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for link in self.links:
            link.abort()
        if self.links:
            await self._all_lost.wait()

    def lost(self, link: TransportLink) -> None:
        """The link's socket is closed."""
        self.links.discard(link)
        if self.closed and not self.links:
            self._all_lost.set()

    async def _serve(self, connection: socket.socket, connect: Connect) -> None:
        if self.closed:
            connection.close()
            return
        connection.setblocking(False)
        try:
            await self.loop.connect_accepted_socket(
                lambda: TransportLink(self, connect), connection
            )
        except OSError as error:
            logger.debug("A connection broke while it was accepted: %s", error)
            connection.close()
