"""Connections on the event loop's transports: used without a poller, and for TLS.

    loop's transport ──calls──> TransportLink ──calls──> Endpoint (compiled, as elsewhere)
                     <─write─┘               <─write─┘

- The write limits of a transport are 0, so that it reports at once when the socket is full, and no
  bytes wait in it unnoticed.
- A link that closes sends its pending bytes, then FIN. With unread input the kernel would reset the
  connection and an -ERR could get lost; therefore input is read and discarded for at most
  `LINGER_S`.
- `Transports` holds every connection from accept to the end of its socket. After its `close` there
  are none.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from natsd.core.network import Endpoint, Session
from natsd.core.reasons import ClosedReason

logger = logging.getLogger("natsd.server")

LINGER_S: Final = 0.5
"""Seconds that a peer that still sends has to read the last bytes."""
DRAIN_S: Final = 10.0
"""Seconds that a peer that sent FIN has to read the pending bytes."""
DISCARDED_BYTES: Final = 16 * 1024
"""Size of the buffer for discarded input."""


class TransportLink(asyncio.BufferedProtocol):
    """One connection: the protocol of the loop's transport, and the transport of the client."""

    def __init__(self, transports: "Transports", connect: "Connect") -> None:
        self._transports = transports
        self._connect: Connect | None = connect
        self._client: Session | None = None
        self._endpoint: Endpoint | None = None
        self._discarded: bytearray | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._ended = False
        self._lost = False

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Create the client of a new connection; set the transport's write limits to 0."""
        assert self._connect is not None
        connect, self._connect = self._connect, None
        # A cast, since uvloop's transports are not subclasses of asyncio.Transport.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(0)
        if self._transports.closed:
            transport.abort()
            return
        self._transports.links.add(self)
        self.write: Callable[[bytes], object] = transport.write
        try:
            self._client = connect(self)
            self._endpoint = self._client.endpoint
        except Exception:
            logger.exception("A connection is closed because it cannot be served")
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        """Return the memory into which the loop reads."""
        if self._discarded is not None or self._endpoint is None:
            self._discarded = self._discarded or bytearray(DISCARDED_BYTES)
            return self._discarded
        return self._endpoint.read_space(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Parse `nbytes` bytes that the loop read into `get_buffer`, unless input is discarded."""
        if self._discarded is None and self._endpoint is not None:
            self._endpoint.bytes_read(nbytes)

    def pause_writing(self) -> None:
        """Stop sending, because the socket is full."""
        if self._endpoint is not None:
            self._endpoint.writing_paused()

    def resume_writing(self) -> None:
        """Continue sending, because the socket took all bytes."""
        if self._endpoint is not None:
            self._endpoint.writing_resumed()

    def eof_received(self) -> bool:
        """Handle a FIN: close the client, which then closes the transport; True: keep it open."""
        self._ended = True
        if self._linger is not None or self._client is None:
            return False
        self._client.close(ClosedReason.CLIENT_CLOSED)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the client, because the connection is gone."""
        self._lost = True
        self.write = _discard
        if self._linger is not None:
            self._linger.cancel()
        if self._client is not None:
            self._client.close(ClosedReason.READ_ERROR if exc else ClosedReason.CLIENT_CLOSED)
        self._transports.lost(self)

    # ---- called by the client; `write` is the transport's method

    def close(self) -> None:
        """Send the pending bytes, then close; abort after LINGER_S, or DRAIN_S after a FIN."""
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
        except (OSError, RuntimeError):  # the connection broke meanwhile
            transport.abort()

    def abort(self) -> None:
        """Close at once; pending bytes are lost."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait in the transport for the socket."""
        return self._transport.get_write_buffer_size()


def _discard(_data: bytes) -> None:
    """Drop bytes that are written after the connection was lost."""


Connect = Callable[[TransportLink], Session]
"""Creates the session of an established connection."""


class Transports:
    """The connections of one server that use the event loop's transports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed = False
        self.links: set[TransportLink] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._all_lost = asyncio.Event()

    def add(self, connection: socket.socket, connect: Connect) -> None:
        """Serve an accepted connection; `connect` is called when it is established."""
        task = self.loop.create_task(self._serve(connection, connect))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def close(self) -> None:
        """Abort all connections, and wait until every socket is closed."""
        self.closed = True
        # These tasks need no round trip. They are not cancelled, since uvloop would then not call
        # `connection_lost`.
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for link in self.links:
            link.abort()
        if self.links:
            await self._all_lost.wait()

    def lost(self, link: TransportLink) -> None:
        """Forget a link whose socket is closed."""
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
