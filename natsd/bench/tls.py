"""TLS for load generators: a socket's methods over memory BIOs, in large pieces.

An `ssl.SSLSocket` makes two system calls per record of 16 KiB. Here one `recv` takes what TCP has,
and one `send` carries many records, so that the generator costs little more than the encryption.
"""

import contextlib
import socket
import ssl
from typing import Any, Final

RECEIVE_BYTES: Final = 1 << 18


def client_context() -> ssl.SSLContext:
    """Return settings that accept any certificate: servers under load have self-signed ones."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class TlsSocket:
    """A connected socket with TLS; it has the methods of a socket that load generators use."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Do the handshake, which blocks."""
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send()
                self._receive(RECEIVE_BYTES)
        self._send()

    def sendall(self, data: bytes | memoryview) -> None:
        """Encrypt and send all of the data."""
        self._tls.write(data)
        self._send()

    def recv_into(self, buffer: memoryview, size: int, _flags: int = 0) -> int:
        """Receive up to `size` bytes; 0: the peer closed the connection."""
        filled: int = 0
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                while filled < size:
                    piece: Any = self._tls.read(size - filled, buffer[filled:size])
                    if not piece:
                        return filled
                    filled += piece
            if filled or not self._receive(RECEIVE_BYTES):
                return filled

    def recv(self, size: int) -> bytes:
        """Receive up to `size` bytes; none: the peer closed the connection."""
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: self.recv_into(buffer, size)])

    def _send(self) -> None:
        if self._outgoing.pending:
            self._sock.sendall(self._outgoing.read())

    def _receive(self, size: int) -> int:
        received = self._sock.recv_into(self._received, size)
        self._incoming.write(self._received[:received])
        return received

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of the socket."""
        self._sock.settimeout(seconds)

    def setsockopt(self, *arguments: Any) -> None:
        """Set an option of the socket."""
        self._sock.setsockopt(*arguments)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
