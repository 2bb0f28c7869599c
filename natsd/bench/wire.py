"""A blocking NATS connection for load generators: the handshake, then the raw socket.

A PING/PONG round trip serves as a fence: after it the server has processed everything that was sent
before, and everything that the server had queued for this connection has arrived.
"""

import json
import socket
import struct
from typing import Any

from natsd.bench.access import OPEN, Access
from natsd.bench.frames import PING, PONG

HANDSHAKE_SECONDS_MAX = 30.0
RECEIVE_BYTES = 1 << 16


class LoadError(Exception):
    """The server under load failed or did something wrong, which makes this run void."""


def open_socket(host: str, port: int) -> socket.socket:
    """Return a connected socket with TCP_NODELAY set."""
    sock = socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_info(sock: socket.socket) -> dict[str, Any]:
    """Return the server's INFO; reads no byte beyond its line.

    Raises LoadError if the connection is closed or something else arrives.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            raise LoadError("the server closed the connection before INFO")
        line += byte
    if not line.startswith(b"INFO "):
        raise LoadError(f"expected INFO, got {bytes(line[:40])!r}")
    info: dict[str, Any] = json.loads(line[5:])
    return info


def read_to_pong(sock: socket.socket, pongs: int = 1) -> bytes:
    """Return all received bytes up to the `pongs`-th PONG, which must be the last of them.

    Raises LoadError if the server closes the connection.
    """
    received = bytearray()
    while not received.endswith(PONG) or received.count(PONG) < pongs:
        piece = sock.recv(RECEIVE_BYTES)
        if not piece:
            raise LoadError(f"the server closed the connection: {bytes(received[-80:])!r}")
        received += piece
    return bytes(received)


def connect(
    host: str, port: int, subscriptions: bytes = b"", access: Access = OPEN
) -> socket.socket:
    """Connect, send CONNECT and the subscriptions, and return the socket.

    When this returns, the server has processed all of it. Servers may send another INFO after their
    first PONG; a second PING waits for that INFO. Raises LoadError if the server refuses.
    """
    sock = open_socket(host, port)
    try:
        sock, greeting = greet(sock, access)
        sock.sendall(greeting + subscriptions + PING + PING)
        answer = read_to_pong(sock, pongs=2)
        if b"-ERR" in answer:
            raise LoadError(f"the server refused: {answer[:80]!r}")
    except (OSError, LoadError):
        sock.close()
        raise
    sock.settimeout(None)
    return sock


def greet(sock: socket.socket, access: Access) -> tuple[socket.socket, bytes]:
    """Read INFO and do a TLS handshake if that is asked for; return the socket and CONNECT."""
    info = read_info(sock)
    if not access.tls:
        return sock, access.connect(info)
    from natsd.bench.tls import TlsSocket, client_context

    return TlsSocket(sock, client_context()), access.connect(info)


def set_receive_timeout(sock: socket.socket, seconds: float) -> None:
    """Make a blocking `recv` raise BlockingIOError after `seconds`, at no cost per call."""
    whole = int(seconds)
    timeval = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)


def close_with_reset(sock: socket.socket) -> None:
    """Close the connection at once, without leaving it in TIME_WAIT."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
