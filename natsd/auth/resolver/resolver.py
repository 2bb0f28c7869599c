"""What a resolver is, and the resolver that keeps JWTs in memory.

    fetch(name) ──▶ the JWT of an account, or NotResolved

- A resolver does not look into the JWTs that it returns: whoever asks for one verifies it.
- `store` keeps a JWT that came with the settings (`resolver_preload`).

Source: nats-server's `AccountResolver`, `MemAccResolver` (server/accounts.go).
"""

from typing import Protocol


class NotResolved(Exception):
    """The resolver has no JWT for an account, or did not answer; the text is for the log."""


class Resolver(Protocol):
    """A source of the JWTs of accounts."""

    async def start(self) -> None:
        """Open files and connections. Raises OSError."""
        ...

    async def fetch(self, name: str) -> str:
        """Return the JWT of an account, whose name is its public key. Raises NotResolved."""
        ...

    async def store(self, name: str, jwt: str) -> None:
        """Keep a JWT that came with the settings. Raises NotResolved if that is not possible."""
        ...

    async def close(self) -> None:
        """Close what `start` opened."""
        ...


class MemoryResolver:
    """The JWTs that came with the settings."""

    def __init__(self) -> None:
        self._jwts: dict[str, str] = {}

    async def start(self) -> None:
        """Do nothing."""

    async def fetch(self, name: str) -> str:
        """Return the JWT of an account. Raises NotResolved."""
        try:
            return self._jwts[name]
        except KeyError:
            raise NotResolved("account missing") from None

    async def store(self, name: str, jwt: str) -> None:
        """Keep a JWT."""
        self._jwts[name] = jwt

    def remove(self, name: str) -> None:
        """Forget the JWT of an account."""
        self._jwts.pop(name, None)

    async def close(self) -> None:
        """Do nothing."""
