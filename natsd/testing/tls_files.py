"""Certificates that a test's server makes for itself, and for its clients."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from natsd.testing.certificates import Authority, Pair


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The settings of a server with TLS, and the files of its clients."""

    settings: dict[str, Any]
    """The `tls` settings of the server."""
    ca_file: Path
    """The certificate of the authority, which clients trust."""
    client: Pair
    """A certificate for clients, which the server asks for with `verify`."""

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a client that trusts the server and shows its certificate."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.load_cert_chain(self.client.cert_file, self.client.key_file)
        return context


def make_tls_files(directory: Path, kind: Literal[True, "verify"]) -> TlsFiles:
    """Make an authority and its certificates for 127.0.0.1 and localhost in the directory.

    With the kind "verify" the server accepts only clients with a certificate.
    """
    authority = Authority(directory)
    settings: dict[str, Any] = dict(authority.sign("server").settings)
    if kind == "verify":
        settings |= {"ca_file": str(authority.ca_file), "verify": True}
    return TlsFiles(settings, authority.ca_file, authority.sign("client"))
