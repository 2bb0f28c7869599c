"""Keys and JWTs for tests: an operator, accounts, users."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from natsd.auth.jwt.token import encode
from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import Kind

ISSUED_AT = 1_700_000_000
UNLIMITED = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}
NO_USER_LIMITS = {"subs": -1, "data": -1, "payload": -1}


def key(kind: Kind, name: str) -> KeyPair:
    """Return the key of a name: always the same."""
    return KeyPair(kind, hashlib.sha256(f"{kind.name} {name}".encode()).digest())


def token(kind: str, subject: str, issuer: KeyPair, body: dict[str, Any], **claims: object) -> str:
    fields = {
        "jti": "ID",
        "iat": ISSUED_AT,
        "iss": issuer.public,
        "sub": subject,
        **claims,
        "nats": {**body, "type": kind, "version": 2},
    }
    return encode(fields, issuer)


def old_token(
    kind: str, subject: str, issuer: KeyPair, body: dict[str, Any], **claims: object
) -> str:
    """Return a JWT of version 1, whose signature does not cover the header."""

    def part(fields: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    fields = {"iat": ISSUED_AT, "iss": issuer.public, "sub": subject, "type": kind}
    payload = part({**fields, **claims, "nats": body})
    signature = base64.urlsafe_b64encode(issuer.sign(payload.encode())).decode().rstrip("=")
    return f"{part({'typ': 'jwt', 'alg': 'ed25519'})}.{payload}.{signature}"


@dataclass
class UserKeys:
    """A user: key and JWT, as a .creds file has them."""

    key: KeyPair
    jwt: str

    @property
    def creds(self) -> str:
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n------END USER NKEY SEED------\n"
        )


@dataclass
class AccountKeys:
    """An account, its JWT, and what makes its users."""

    key: KeyPair
    jwt: str
    signing_key: KeyPair = field(default_factory=lambda: key(Kind.ACCOUNT, "signing"))

    @property
    def name(self) -> str:
        return self.key.public

    def user(
        self,
        name: str = "derek",
        *,
        by: KeyPair | None = None,
        is_scoped: bool = False,
        **body: Any,
    ) -> UserKeys:
        """Return a user; fields whose name begins with `claim_` stand outside of `nats`."""
        claims = {n.removeprefix("claim_"): body.pop(n) for n in list(body) if n[:6] == "claim_"}
        user = key(Kind.USER, name)
        issuer = by or self.key
        more = {} if issuer is self.key else {"issuer_account": self.name}
        limits = {} if is_scoped else NO_USER_LIMITS
        body = {**limits, **more, **body}
        return UserKeys(user, token("user", user.public, issuer, body, name=name, **claims))


@dataclass
class Operator:
    """An operator with one signing key."""

    key: KeyPair = field(default_factory=lambda: key(Kind.OPERATOR, "operator"))
    signing_key: KeyPair = field(default_factory=lambda: key(Kind.OPERATOR, "signing"))

    def jwt(self, **body: Any) -> str:
        body = {"signing_keys": [self.signing_key.public], **body}
        return token("operator", self.key.public, self.key, body, name="O")

    def account(self, name: str = "A", *, by: KeyPair | None = None, **body: Any) -> AccountKeys:
        """Return an account; fields whose name begins with `claim_` stand outside of `nats`."""
        claims = {n.removeprefix("claim_"): body.pop(n) for n in list(body) if n[:6] == "claim_"}
        account = key(Kind.ACCOUNT, name)
        body = {**body, "limits": {**UNLIMITED, **body.get("limits", {})}}
        text = token("account", account.public, by or self.key, body, name=name, **claims)
        return AccountKeys(account, text)
