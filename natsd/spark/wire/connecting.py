"""Options of the connection to servers, as carried to every executor.

Promise
- ClientOptions are plain and picklable; neither their `repr` nor the text of an Address holds a
  secret.
- Importing this module imports nothing heavy and opens nothing: files are read when a connection is
  made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

DEFAULT_PORT: Final = 4222
DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"
SCHEMES: Final = ("nats", "tls")


class InvalidServer(ValueError):
    """A malformed server address."""


@dataclass(frozen=True)
class Address:
    """One server, with the TLS choice and the user of its URL."""

    host: str
    port: int
    tls: bool = False
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ClientOptions:
    """Addresses of the servers, credentials and timeouts.

    `servers` are URLs (`nats://[user[:password]@]host[:port]`, or `tls://…`), tried in order;
    `credentials`, `nkey` and the `tls_*` files are paths on the machine that connects. Times are
    seconds. `retries` is how often all servers are tried again before the connection fails.
    """

    servers: tuple[str, ...] = field(default=(DEFAULT_SERVER,), repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials: str | None = None
    nkey: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    tls_handshake_first: bool = False
    tls_insecure: bool = False
    domain: str | None = None
    api_prefix: str | None = None
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0
    retries: int = 3
    retry_interval_s: float = 0.2
    name: str = "natsd.spark"

    @property
    def api(self) -> str:
        """Prefix of the subjects of the JetStream API, without the final dot."""
        if self.api_prefix:
            return self.api_prefix.rstrip(".")
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @property
    def wants_tls(self) -> bool:
        """Whether the options require TLS."""
        return bool(self.tls or self.tls_handshake_first or self.tls_ca or self.tls_cert)

    def addresses(self) -> list[Address]:
        """Return the addresses of `servers`, in order. Raises InvalidServer."""
        return [parse_server(server) for server in self.servers]


def parse_server(url: str) -> Address:
    """Parse `host`, `host:port` or a URL.

    Raises InvalidServer, whose text never holds the user part of the URL.
    """
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise InvalidServer(f'"{shown}" is no server address: {error}') from None
    if parts.scheme not in SCHEMES:
        raise InvalidServer(f'"{shown}" is no server address: it must begin with nats:// or tls://')
    if not parts.hostname:
        raise InvalidServer(f'"{shown}" is no server address: a host is missing')
    return Address(
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "tls",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
