"""The connections of the monitoring port, bounded in number, time and size: anybody may open them.

    loop ──(TLS)──> HttpConnection ──bytes──> aiohttp's protocol ──> Endpoints
                        └ how long it waits for its peer, and the bytes since the last request

- At most `CONNECTIONS_MAX` are open. One more replaces the connection that has waited longest for
  its peer; if all are being answered, the new one is closed.
- A peer that has begun a request, or reads an answer, must go on within `PATIENCE_S`; one that has
  received an answer may be silent for `IDLE_S`.
- With TLS a connection is admitted before its handshake, which must be over within `PATIENCE_S`.
- Between two requests at most `REQUEST_BYTES_MAX` are read: heads and bodies of monitoring requests
  are short.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

CONNECTIONS_MAX: Final = 256
PATIENCE_S: Final = 10.0
IDLE_S: Final = 75.0
REQUEST_BYTES_MAX: Final = 64 * 1024
SWEEP_S: Final = 1.0
RETRY_S: Final = 1.0


class HttpConnection(asyncio.Protocol):
    """One connection: passes data on to aiohttp's protocol, and is closed when it is overdue."""

    def __init__(self, connections: "HttpConnections", protocol: asyncio.Protocol) -> None:
        self._connections = connections
        self._loop = connections.loop
        self.protocol = protocol
        self.transport: asyncio.Transport | None = None
        self.requests = 0
        self._request_bytes = 0
        self._answering = 0
        self._is_paused = False
        self._is_admitted = False
        self._handshake: asyncio.Task[None] | None = None
        self._since_s = self._loop.time()

    # ---- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, or close it at once if there is no room."""
        self.transport = cast("asyncio.Transport", transport)
        self._since_s = self._loop.time()
        if not self._is_admitted:
            self._is_admitted = self._connections.admit(self)
        if self._is_admitted:
            self.protocol.connection_made(transport)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes on; close the connection if the request is too large."""
        if not self._request_bytes:
            self._since_s = self._loop.time()
        self._request_bytes += len(data)
        if self._request_bytes > REQUEST_BYTES_MAX:
            self.abort()
        elif self._is_admitted:
            self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on that the peer sends no more; the return value is that of aiohttp's protocol."""
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        """Record that the peer reads more slowly than it is answered."""
        self._is_paused = True
        self._since_s = self._loop.time()
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Record that the peer has read."""
        self._is_paused = False
        self._since_s = self._loop.time()
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._connections.open.pop(self.protocol, None)
        if self._is_admitted:
            self.protocol.connection_lost(exc)

    # ---- before the connection is made

    def secure(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        """Begin the handshake with the peer, if there is room for the connection."""
        self._is_admitted = self._connections.admit(self)
        if self._is_admitted:
            self._handshake = self._loop.create_task(self._shake_hands(peer, context))
        else:
            peer.close()

    async def _shake_hands(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, peer, ssl=context, ssl_handshake_timeout=PATIENCE_S
            )
        except OSError:  # a handshake that fails, or takes too long, is one too
            self._connections.open.pop(self.protocol, None)

    # ---- called at the begin and end of a request

    def begin(self) -> None:
        """Record that a request has been received completely."""
        self.requests += 1
        self._answering += 1
        self._request_bytes = 0

    def end(self) -> None:
        """Record that a request has been answered."""
        self._answering -= 1
        self._since_s = self._loop.time()

    # ---- deadlines

    @property
    def waits(self) -> bool:
        """Whether the server waits for the peer, to send a request or to read an answer."""
        return self._is_paused or not self._answering

    def waited_s(self) -> float:
        """Return for how many seconds the server has waited for the peer."""
        return self._loop.time() - self._since_s

    @property
    def is_overdue(self) -> bool:
        """Whether the peer has taken longer than `PATIENCE_S`, or `IDLE_S` between requests."""
        is_idle = self.requests and not self._request_bytes and not self._is_paused
        return self.waits and self.waited_s() > (IDLE_S if is_idle else PATIENCE_S)

    def abort(self) -> None:
        """Close the connection at once, without sending pending data."""
        if self.transport is not None:
            self.transport.abort()
        elif self._handshake is not None:
            self._handshake.cancel()


class HttpConnections:
    """All connections of one monitoring port; `make` creates aiohttp's protocol for each."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self.loop = loop
        self.open: dict[asyncio.BaseProtocol, HttpConnection] = {}
        self._make = make
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def protocol(self) -> HttpConnection:
        """Return the protocol of an accepted connection."""
        return HttpConnection(self, self._make())

    def admit(self, connection: HttpConnection) -> bool:
        """Add the connection and return True; False: there is no room.

        If all places are taken, the connection that has waited longest for its peer is closed.
        """
        if len(self.open) >= CONNECTIONS_MAX:
            waiting = [each for each in self.open.values() if each.waits]
            if not waiting:
                return False
            longest = max(waiting, key=HttpConnection.waited_s)
            del self.open[longest.protocol]
            longest.abort()
        self.open[connection.protocol] = connection
        return True

    async def accept(self, listener: socket.socket, context: Callable[[], ssl.SSLContext]) -> None:
        """Accept connections with TLS until it is cancelled; `context` is asked for each of them.

        While descriptors are missing, connections wait in the kernel.
        """
        while True:
            try:
                peer, _ = await self.loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            self.protocol().secure(peer, context())

    @contextmanager
    def answering(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Mark the connection of this protocol as being answered during the `with`."""
        connection = self.open.get(protocol)
        if connection is None:  # it was closed in the meantime
            yield
            return
        connection.begin()
        try:
            yield
        finally:
            connection.end()

    def close(self) -> None:
        """Stop checking deadlines, and close all connections."""
        self._timer.cancel()
        for connection in list(self.open.values()):
            connection.abort()

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_S, self._sweep)
        for connection in list(self.open.values()):
            if connection.is_overdue:
                connection.abort()
