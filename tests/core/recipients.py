r"""A reactor with connections, and peers that read as slowly as a test needs.

    with Rig() as rig:
        publisher, reader = rig.socket_peer(), rig.transport_peer()
        reader.send(b"SUB > 1\r\n")
        publisher.send(b"PUB foo 2\r\nhi\r\n")
        assert reader.read(100) == b"MSG foo 1 2\r\nhi\r\n"

There is neither a server nor a port: the socket is one of a pair with a small buffer, and the
transport is a fake whose buffer a test can fill.
"""

import asyncio
import socket
from typing import Protocol, Self

from natsd.core.network import ClientSession, Endpoint, Reactor, Settings, TrafficStats
from natsd.core.reasons import ClosedReason
from natsd.core.routing import SubList

LONG_NS = 1 << 60
ROUNDS_MAX = 10_000


def settings(max_pending: int) -> Settings:
    limits = Settings()
    limits.max_control_line = 4096
    limits.max_payload = 1024 * 1024
    limits.max_pending = max_pending
    limits.ping_interval_ns = limits.write_deadline_ns = LONG_NS
    limits.ping_max = 2
    return limits


class Peer(Protocol):
    """The client's end of a connection."""

    connection: ClientSession

    def send(self, data: bytes) -> None:
        """Send the data and let the connection process it."""

    def read(self, most: int) -> bytes:
        """Return the bytes received so far, at most `most`."""

    def vanish(self) -> None:
        """Close without reading."""


class Rig:
    """A reactor on an event loop that runs only when a test runs it."""

    def __init__(self, *, max_pending: int = 64 * 1024 * 1024) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self.failures: list[str] = []
        self.reactor = Reactor(self.loop, self.failures.append)
        self.limits = settings(max_pending)
        self.sublist = SubList()
        self.counters = TrafficStats()
        self.peers: list[Peer] = []

    def socket_peer(self, *, buffer_bytes: int = 4096, headers: bool = True) -> "SocketPeer":
        return SocketPeer(self, buffer_bytes, headers)

    def transport_peer(self, *, buffer_bytes: int = 4096, headers: bool = True) -> "TransportPeer":
        return TransportPeer(self, buffer_bytes, headers)

    def serve(self, peer: Peer, headers: bool) -> None:
        connection = peer.connection
        connection.bind_account(None, self.sublist, self.counters)
        connection.negotiate(False, False, True, headers, False)
        connection.endpoint.open()
        self.peers.append(peer)

    def run(self, seconds: float = 0) -> None:
        """Run one turn of the loop, or for some seconds."""
        if seconds:
            self.loop.call_later(seconds, self.loop.stop)
        else:
            self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for peer in self.peers:
            peer.connection.close(ClosedReason.SERVER_SHUTDOWN)
        self.run()
        self.reactor.close()
        for peer in self.peers:
            peer.vanish()
        self.run()
        self.loop.close()


class SocketPeer:
    """A peer at the other end of a socket pair."""

    def __init__(self, rig: Rig, buffer_bytes: int, headers: bool) -> None:
        self._rig = rig
        served, self._socket = socket.socketpair()
        served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        self._socket.setblocking(False)
        cid = len(rig.peers) + 1
        endpoint = Endpoint(rig.reactor, rig.limits, served.detach())
        self.connection = ClientSession(endpoint, cid)
        rig.serve(self, headers)

    def send(self, data: bytes) -> None:
        for _ in range(ROUNDS_MAX):
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                self._rig.run(0.001)  # the connection is stalled
            self._rig.run()
            if not data:
                return
        raise AssertionError("the connection reads no more")

    def read(self, most: int) -> bytes:
        self._rig.run()
        try:
            return self._socket.recv(most)
        except (BlockingIOError, ConnectionResetError):
            return b""

    def vanish(self) -> None:
        self._socket.close()


class TransportPeer:
    """A peer and its transport in one object.

    `buffer_bytes` bytes are on their way to the peer; further bytes wait in the transport.
    """

    def __init__(self, rig: Rig, buffer_bytes: int, headers: bool) -> None:
        self._rig = rig
        self._room = buffer_bytes
        self._under_way = bytearray()
        self._waiting = bytearray()
        self._paused = False
        cid = len(rig.peers) + 1
        self.connection = ClientSession(Endpoint(rig.reactor, rig.limits, -1, self), cid)
        rig.serve(self, headers)

    # ---- methods of a peer

    def send(self, data: bytes) -> None:
        while data and self.connection.reason is None:
            space = self.connection.endpoint.read_space(len(data))
            size = min(len(space), len(data))
            space[:size] = data[:size]
            self.connection.endpoint.bytes_read(size)
            data = data[size:]
        self._rig.run()

    def read(self, most: int) -> bytes:
        self._rig.run()
        data = bytes(self._under_way[:most])
        del self._under_way[:most]
        self._room += len(data)
        self._move()
        if self._paused and not self._waiting:
            self._paused = False
            self.connection.endpoint.writing_resumed()
        return data

    def vanish(self) -> None:
        self.connection.close(ClosedReason.CLIENT_CLOSED)
        self._rig.run()

    # ---- methods of a transport

    def write(self, data: bytes) -> None:
        closing = self.connection.reason is not None
        assert closing or not self._paused, "written to although it is full"
        self._waiting += data
        self._move()
        if self._waiting and not self._paused:
            self._paused = True
            self.connection.endpoint.writing_paused()

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def close(self) -> None: ...

    def abort(self) -> None:
        self._waiting.clear()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def _move(self) -> None:
        moved = self._waiting[: self._room]
        self._under_way += moved
        self._room -= len(moved)
        del self._waiting[: len(moved)]
