"""Serves a connection from one of the event loop's transports: where there is no poller, and for
TLS.

The loop's calls are passed on to the same compiled connection that otherwise reads its socket
itself.
"""

import asyncio
from collections.abc import Callable

from natsd.clients.client import Client
from natsd.core.reasons import ClosedReason


class TransportProtocol(asyncio.BufferedProtocol):
    """The loop's view of a client; `connect(transport)` makes the client."""

    __slots__ = ("_client", "_connect")

    def __init__(self, connect: Callable[[asyncio.Transport], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, from `connection_made` on."""
        assert self._client is not None
        return self._client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up: nothing may wait in the transport unnoticed."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(0)
        self._client = self._connect(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop may put what it reads."""
        return self.client.read_space(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """The loop put that many bytes there."""
        self.client.bytes_read(nbytes)

    def pause_writing(self) -> None:
        """The socket is full."""
        self.client.writing_paused()

    def resume_writing(self) -> None:
        """The socket took everything."""
        self.client.writing_resumed()

    def eof_received(self) -> None:
        """The peer sends no more."""
        self.client.close(ClosedReason.CLIENT_CLOSED)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.client.close(ClosedReason.READ_ERROR if exc else ClosedReason.CLIENT_CLOSED)
