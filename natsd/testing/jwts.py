"""Operators, accounts and users with their JWTs, made from fixed seeds.

    operator = Operator()
    account = operator.account("A", exports=[{"subject": "help", "type": "service"}])
    user = account.user("bob", pub={"allow": ["help"]})
    server = Server(**operator.settings(account))
    client = await nats.connect(server.client_url, **user.login)

- A name always gives the same keys, in every process. The keys protect nothing: anybody can derive
  them from the names.
- What is said of an account or a user (`exports`, `pub`, `exp`) is a claim of its JWT.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

from natsd.auth.jwt.token import encode
from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import Kind

ISSUED_AT: Final = 1_700_000_000
"""Unix time in seconds at which the JWTs are issued, unless `iat` says another."""
UNLIMITED: Final = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}
NO_USER_LIMITS: Final = {"subs": -1, "data": -1, "payload": -1}
_REGISTERED: Final = ("exp", "iat", "jti", "nbf")
"""Claims of any JWT: they stand beside `nats`, not in it."""


def key(kind: Kind, name: str) -> KeyPair:
    """Return the key of a name: always the same."""
    return KeyPair(kind, hashlib.sha256(f"{kind.name} {name}".encode()).digest())


def token(kind: str, subject: str, issuer: KeyPair, body: dict[str, Any], **claims: object) -> str:
    """Return a signed JWT; `body` is its field `nats`, and `claims` stand beside that."""
    fields = {
        "jti": "ID",
        "iat": ISSUED_AT,
        "iss": issuer.public,
        "sub": subject,
        **claims,
        "nats": {**body, "type": kind, "version": 2},
    }
    return encode(fields, issuer)


@dataclass
class UserKeys:
    """A user: its key and its JWT."""

    key: KeyPair
    jwt: str

    @property
    def creds(self) -> str:
        """The text of the user's .creds file."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n------END USER NKEY SEED------\n"
        )

    @property
    def login(self) -> dict[str, Any]:
        """The keywords with which `nats.connect` logs the user in; nats-py needs no extra then."""
        return {"user_jwt_cb": self.jwt.encode, "signature_cb": self._sign}

    def _sign(self, nonce: str) -> bytes:
        return base64.b64encode(self.key.sign(nonce.encode()))


@dataclass
class AccountKeys:
    """An account: its key and its JWT."""

    key: KeyPair
    jwt: str
    signing_key: KeyPair = field(default_factory=lambda: key(Kind.ACCOUNT, "signing"))
    """A key that signs users if the account's JWT lists it."""

    @property
    def name(self) -> str:
        """The public key, which is the account's name on a server."""
        return self.key.public

    def user(
        self,
        name: str = "derek",
        *,
        by: KeyPair | None = None,
        is_scoped: bool = False,
        **claims: Any,
    ) -> UserKeys:
        """Return a user, whose JWT is signed by the account's key or `by` another one.

        The limits of a user with `is_scoped` are those of the key that signs.
        """
        user = key(Kind.USER, name)
        issuer = by or self.key
        registered, body = _divided(claims)
        if issuer is not self.key:
            body = {"issuer_account": self.name, **body}
        if not is_scoped:
            body = {**NO_USER_LIMITS, **body}
        return UserKeys(user, token("user", user.public, issuer, body, name=name, **registered))


@dataclass
class Operator:
    """An operator with one signing key."""

    key: KeyPair = field(default_factory=lambda: key(Kind.OPERATOR, "operator"))
    signing_key: KeyPair = field(default_factory=lambda: key(Kind.OPERATOR, "signing"))

    def jwt(self, **claims: Any) -> str:
        """Return the operator's JWT."""
        body = {"signing_keys": [self.signing_key.public], **claims}
        return token("operator", self.key.public, self.key, body, name="O")

    def settings(self, *accounts: AccountKeys) -> dict[str, Any]:
        """Return the settings of a server in operator mode that has these accounts."""
        return {
            "operators": [self.jwt()],
            "resolver": "MEMORY",
            "resolver_preload": {account.name: account.jwt for account in accounts},
        }

    def account(self, name: str = "A", *, by: KeyPair | None = None, **claims: Any) -> AccountKeys:
        """Return an account, whose JWT is signed by the operator's key or `by` another one."""
        account = key(Kind.ACCOUNT, name)
        registered, body = _divided(claims)
        body["limits"] = {**UNLIMITED, **body.get("limits", {})}
        text = token("account", account.public, by or self.key, body, name=name, **registered)
        return AccountKeys(account, text)


def _divided(claims: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the claims that stand beside `nats`, and those in it."""
    registered = {name: value for name, value in claims.items() if name in _REGISTERED}
    return registered, {name: value for name, value in claims.items() if name not in registered}
