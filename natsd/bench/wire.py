"""A blocking NATS connection for load generators: handshake and fence, then the raw socket.

`fence` is a PING/PONG round trip: all that was sent before it has been processed, and all that
the server had queued for this connection has arrived.
"""

import json
import socket
import struct
from typing import Any

from natsd.bench.frames import CONNECT, PING, PONG

HANDSHAKE_SECONDS_MAX = 30.0
RECEIVE_BYTES = 1 << 16


class LoadError(Exception):
    """The server under load did something that makes this run void."""


def open_socket(host: str, port: int) -> socket.socket:
    """A connected socket without Nagle's delay."""
    sock = socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_info(sock: socket.socket) -> dict[str, Any]:
    """The server's INFO, read without taking a byte more than its line."""
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
    """Everything up to so many PONGs, the last of which ends what was received."""
    received = bytearray()
    while not received.endswith(PONG) or received.count(PONG) < pongs:
        piece = sock.recv(RECEIVE_BYTES)
        if not piece:
            raise LoadError(f"the server closed the connection: {bytes(received[-80:])!r}")
        received += piece
    return bytes(received)


def connect(host: str, port: int, subscriptions: bytes = b"") -> socket.socket:
    """Connect, introduce ourselves, subscribe; when this returns the server knows all of it.

    Servers may follow their first PONG with another INFO; a second PING waits for it.
    """
    sock = open_socket(host, port)
    try:
        read_info(sock)
        sock.sendall(CONNECT + subscriptions + PING + PING)
        answer = read_to_pong(sock, pongs=2)
        if b"-ERR" in answer:
            raise LoadError(f"the server refused: {answer[:80]!r}")
    except (OSError, LoadError):
        sock.close()
        raise
    sock.settimeout(None)
    return sock


def set_receive_timeout(sock: socket.socket, seconds: float) -> None:
    """Let a blocking recv raise BlockingIOError after `seconds`, at no cost per call."""
    whole = int(seconds)
    timeval = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)


def close_with_reset(sock: socket.socket) -> None:
    """Close at once and leave no TIME_WAIT behind."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
