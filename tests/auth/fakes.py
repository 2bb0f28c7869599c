"""A client that logs in, and accounts that are told of changes: fakes for tests of logins."""

import base64
from dataclasses import dataclass, field
from typing import Any

from natsd.auth.nkeys import KeyPair
from natsd.auth.operator.accounts import AccountEnd, ClaimedAccount
from natsd.testing.jwts import ISSUED_AT, UserKeys

NOW_S = ISSUED_AT + 100.0
NOW_NS = int(NOW_S * 1e9)


@dataclass
class FakeConnect:
    """The fields of a CONNECT."""

    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    proxy_sig: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 1


@dataclass
class FakeClient:
    """A client that has sent CONNECT."""

    cid: int = 7
    ip: str = "10.1.2.3"
    port: int = 4000
    nonce: bytes = b"a-random-nonce"
    connection_type: str = "STANDARD"
    tls: dict[str, Any] | None = None
    said: list[str] = field(default_factory=list)

    def peer_certificates(self) -> tuple[bytes, ...]:
        return ()

    def tls_facts(self) -> dict[str, Any] | None:
        return self.tls

    def debug(self, text: str) -> None:
        self.said.append(text)


def sign(key: KeyPair, nonce: bytes) -> str:
    return base64.urlsafe_b64encode(key.sign(nonce)).decode().rstrip("=")


def connect_as(user: UserKeys, client: FakeClient, **more: str) -> FakeConnect:
    """Return the CONNECT of a client that has a .creds file."""
    return FakeConnect(jwt=user.jwt, sig=sign(user.key, client.nonce), **more)


class Listener:
    """Notes what is told of accounts."""

    def __init__(self) -> None:
        self.changed: list[tuple[ClaimedAccount | None, ClaimedAccount]] = []
        self.ended: list[tuple[str, AccountEnd]] = []

    def account_changed(self, before: ClaimedAccount | None, account: ClaimedAccount) -> None:
        self.changed.append((before, account))

    def account_ended(self, name: str, end: AccountEnd) -> None:
        self.ended.append((name, end))


class CountingResolver:
    """JWTs in memory, and how often each account was asked for."""

    def __init__(self, jwts: dict[str, str] | None = None) -> None:
        self.jwts = jwts or {}
        self.asked: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def store(self, name: str, jwt: str) -> None:
        self.jwts[name] = jwt

    async def fetch(self, name: str) -> str:
        import asyncio

        from natsd.auth.resolver.resolver import NotResolved

        self.asked.append(name)
        await asyncio.sleep(0)
        if name not in self.jwts:
            raise NotResolved("account missing")
        return self.jwts[name]
