"""Wires with TLS: a client's end of a connection after the handshake."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from natsd.testing.certificates import Authority, Pair
from tests.clients.target import Target
from tests.clients.wire import Wire

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}\r\n'


class Trust:
    """An authority, the server's certificate, and the settings of a client that trusts them."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.server = self.authority.sign("server")

    @property
    def settings(self) -> dict[str, str]:
        """The `tls` settings of a server."""
        return self.server.settings

    @property
    def verifying(self) -> dict[str, object]:
        """The `tls` settings of a server that asks for certificates."""
        return {**self.settings, "ca_file": str(self.authority.ca_file), "verify": True}

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return the settings of a client, with a certificate if one is given."""
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if pair is not None:
            context.load_cert_chain(pair.cert_file, pair.key_file)
        return context


def secure(wire: Wire, context: ssl.SSLContext) -> Wire:
    """Do the handshake on a wire."""
    wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
    return wire


def open_secure(target: Target, context: ssl.SSLContext, *, first: bool = False) -> Wire:
    """Open a wire with TLS: after INFO, or with `first` before it."""
    wire = secure(Wire(target.address, read_info=not first), context)
    if first:
        wire.info_line = wire.read_frame()
    return wire


def client_hello() -> bytes:
    """Return the first bytes of a client with TLS."""
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    end = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        end.do_handshake()
    return outgoing.read()
