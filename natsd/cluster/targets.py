"""What a route is dialed to: the address and the credentials of another server.

Source: nats-server's `parseURL` (server/opts.go) and `processImplicitRoute` (server/route.go).
"""

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

from natsd.clients.listener import host_port


@dataclass(frozen=True, slots=True)
class Target:
    """The address of another server's routes, and how this server logs in there."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    is_configured: bool = False
    """Whether the settings name it; otherwise another server told of it."""

    @classmethod
    def from_url(cls, url: str, *, is_configured: bool) -> Self:
        """Return the target of a URL. Raises ValueError."""
        parts = urlsplit(url)
        if not parts.hostname or parts.port is None:
            raise ValueError(f"no host and port in {parts.scheme}://…")
        return cls(
            parts.hostname,
            parts.port,
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            is_configured,
        )

    @property
    def place(self) -> str:
        """Host and port."""
        return host_port(self.host, self.port)

    def __str__(self) -> str:
        login = f"{self.user}:xxxxx@" if self.password else f"{self.user}@" if self.user else ""
        return f"nats-route://{login}{self.place}"
