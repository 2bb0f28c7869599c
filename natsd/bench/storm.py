"""A load process that opens thousands of connections and then holds them idle.

On the loopback a blocking connect returns as soon as the kernel has done the handshake. So a plain
loop keeps up to `IN_FLIGHT` clients between their first byte and their PONG without any polling;
these are never more than the smallest listen backlog in use can hold.
"""

import socket
import time
from collections import deque
from dataclasses import dataclass, field

from natsd.bench import wire
from natsd.bench.access import OPEN, Access
from natsd.bench.frames import PING, PONG, sub
from natsd.bench.result import RoleResult

IN_FLIGHT = 64
RECEIVE_BYTES = 1 << 13
WARM_UP_CLIENTS = 50


@dataclass
class Storm:
    """A client that opens `clients` connections; each sends CONNECT, one SUB and a PING."""

    host: str
    port: int
    clients: int
    access: Access = OPEN
    _socks: list[socket.socket] = field(init=False, repr=False, default_factory=list)

    def prepare(self) -> None:
        """Open and close a few connections, so that the server has loaded what it loads lazily."""
        for number in range(min(WARM_UP_CLIENTS, self.clients)):
            wire.close_with_reset(
                wire.connect(self.host, self.port, sub(b"warm.%d" % number), self.access)
            )

    def run(self) -> RoleResult:
        """Open all connections and wait for their PONGs; the connections stay open."""
        greetings = [sub(b"storm.%06d" % n) + PING for n in range(self.clients)]
        started_ns = time.perf_counter_ns()
        problem = ""
        try:
            self._open_all(greetings)
        except (OSError, wire.LoadError) as error:
            problem = f"connection {len(self._socks)} of {self.clients}: {error}"
        return RoleResult(
            started_ns,
            time.perf_counter_ns(),
            sent=self.clients,
            received=len(self._socks) if not problem else 0,
            problem=problem,
        )

    def _open_all(self, greetings: list[bytes]) -> None:
        waiting: deque[socket.socket] = deque()
        address = (self.host, self.port)
        connect = b"" if self.access.needs_info else self.access.connect({})
        for greeting in greetings:
            sock = socket.socket()
            sock.connect(address)
            if connect:
                sock.send(connect + greeting)
            else:
                sock, answer = wire.greet(sock, self.access)
                sock.sendall(answer + greeting)
            self._socks.append(sock)
            waiting.append(sock)
            if len(waiting) >= IN_FLIGHT:
                _await_pong(waiting.popleft())
        for sock in waiting:
            _await_pong(sock)

    def close(self) -> None:
        """Reset all connections."""
        for sock in self._socks:
            wire.close_with_reset(sock)


def _await_pong(sock: socket.socket) -> None:
    answer = sock.recv(RECEIVE_BYTES)
    while PONG not in answer:
        piece = sock.recv(RECEIVE_BYTES)
        if not piece:
            raise wire.LoadError(f"the server closed a connection: {answer[-80:]!r}")
        answer += piece
