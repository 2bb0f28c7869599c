"""TLS for load generators: a socket that encrypts by memory BIOs, in large pieces.

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


class TlsSocket(socket.socket):
    """A connected socket whose `sendall`, `recv` and `recv_into` encrypt and decrypt."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Take over the socket and do the handshake, which blocks."""
        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(timeout)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
        self._flush()

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Encrypt and send all of the data."""
        self._tls.write(data)
        self._flush()

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive up to `nbytes` bytes, which are never discarded; 0: the peer has closed."""
        view = memoryview(buffer)[:nbytes] if nbytes else memoryview(buffer)
        filled = 0
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                while filled < len(view):
                    piece: Any = self._tls.read(len(view) - filled, view[filled:])
                    if not piece:
                        return filled
                    filled += piece
            if filled or not self._receive():
                return filled

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive up to `bufsize` bytes; none: the peer has closed."""
        buffer = bytearray(bufsize)
        return bytes(buffer[: self.recv_into(buffer)])

    def _flush(self) -> None:
        if self._outgoing.pending:
            super().sendall(self._outgoing.read())

    def _receive(self) -> int:
        received = super().recv(RECEIVE_BYTES)
        self._incoming.write(received)
        return len(received)
