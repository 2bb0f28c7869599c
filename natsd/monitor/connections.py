"""The connections of the monitoring port, which anybody may open: bounded in number, time and size.

    loop ──bytes──> Connection ──bytes──> aiohttp's protocol ──> Endpoints
                        └ since when it waits for its peer, and how much came since the last request

- At most `CONNECTIONS_MAX` are open. One more takes the place of the one that has waited longest
  for its peer; if all are being answered, it is closed itself.
- A peer that has begun a request, or reads an answer, has `PATIENCE_S` to go on; one that has had
  an answer may be silent for `IDLE_S`.
- Between two requests at most `REQUEST_BYTES_MAX` are read: heads and bodies are short here.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

CONNECTIONS_MAX: Final = 256
PATIENCE_S: Final = 10.0
IDLE_S: Final = 75.0
REQUEST_BYTES_MAX: Final = 64 * 1024
SWEEP_S: Final = 1.0


class Connection(asyncio.Protocol):
    """One connection: passes on what comes, and can be closed for what does not."""

    def __init__(self, connections: "Connections", protocol: asyncio.Protocol) -> None:
        self._connections = connections
        self._loop = connections.loop
        self.protocol = protocol
        self.transport: asyncio.Transport | None = None
        self.requests = 0
        self._request_bytes = 0
        self._answering = 0
        self._is_paused = False
        self._is_admitted = False
        self._since_s = 0.0

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self.transport = cast("asyncio.Transport", transport)
        self._since_s = self._loop.time()
        self._is_admitted = self._connections.admit(self)
        if self._is_admitted:
            self.protocol.connection_made(transport)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """The peer sent something."""
        if not self._request_bytes:
            self._since_s = self._loop.time()
        self._request_bytes += len(data)
        if self._request_bytes > REQUEST_BYTES_MAX:
            self.abort()
        elif self._is_admitted:
            self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is answered."""
        self._is_paused = True
        self._since_s = self._loop.time()
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        self._is_paused = False
        self._since_s = self._loop.time()
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._connections.open.pop(self.protocol, None)
        if self._is_admitted:
            self.protocol.connection_lost(exc)

    # ---- called for a request

    def begin(self) -> None:
        """A request is complete."""
        self.requests += 1
        self._answering += 1
        self._request_bytes = 0

    def end(self) -> None:
        """It is answered."""
        self._answering -= 1
        self._since_s = self._loop.time()

    # ---- deadlines

    @property
    def waits(self) -> bool:
        """Whether it is the peer's turn."""
        return self._is_paused or not self._answering

    def waited_s(self) -> float:
        """How long it has been the peer's turn."""
        return self._loop.time() - self._since_s

    @property
    def is_overdue(self) -> bool:
        """Whether the peer was waited for long enough."""
        is_idle = self.requests and not self._request_bytes and not self._is_paused
        return self.waits and self.waited_s() > (IDLE_S if is_idle else PATIENCE_S)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()


class Connections:
    """All of one monitoring port; `make` gives aiohttp's protocol for one more."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self.loop = loop
        self.open: dict[asyncio.BaseProtocol, Connection] = {}
        self._make = make
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def protocol(self) -> Connection:
        """What the loop makes of an accepted connection."""
        return Connection(self, self._make())

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for it; another one may have to go."""
        if len(self.open) >= CONNECTIONS_MAX:
            waiting = [each for each in self.open.values() if each.waits]
            if not waiting:
                return False
            longest = max(waiting, key=Connection.waited_s)
            del self.open[longest.protocol]
            longest.abort()
        self.open[connection.protocol] = connection
        return True

    @contextmanager
    def answering(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """While a request of that protocol is answered."""
        connection = self.open.get(protocol)
        if connection is None:  # it is gone since
            yield
            return
        connection.begin()
        try:
            yield
        finally:
            connection.end()

    def close(self) -> None:
        """Look at deadlines no more, and close what is open."""
        self._timer.cancel()
        for connection in list(self.open.values()):
            connection.abort()

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_S, self._sweep)
        for connection in list(self.open.values()):
            if connection.is_overdue:
                connection.abort()
