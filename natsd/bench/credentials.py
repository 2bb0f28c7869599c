"""An operator, an account and a user with their JWTs, made from fixed seeds.

The same credentials come out in every process, so that a load process needs no file. The keys are
worth nothing: they are derived from texts in this file.
"""

import hashlib
from functools import cache
from typing import Any, Final

from natsd.auth.jwt.token import encode
from natsd.auth.nkeys import KeyPair
from natsd.bench.access import Access
from natsd.config.public_keys import Kind

ISSUED_AT: Final = 1_700_000_000
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


def _key(kind: Kind, name: str) -> KeyPair:
    return KeyPair(kind, hashlib.sha256(f"natsd bench {name}".encode()).digest())


def _token(issuer: KeyPair, subject: KeyPair, name: str, body: dict[str, Any]) -> str:
    claims = {
        "jti": name,
        "iat": ISSUED_AT,
        "iss": issuer.public,
        "name": name,
        "sub": subject.public,
        "nats": {**body, "version": 2},
    }
    return encode(claims, issuer)


@cache
def operator_settings() -> dict[str, Any]:
    """Return the settings of a server in operator mode, with one account."""
    operator, account = _key(Kind.OPERATOR, "operator"), _key(Kind.ACCOUNT, "account")
    body = {"type": "account", "limits": UNLIMITED, "default_permissions": {"pub": {}, "sub": {}}}
    return {
        "operator": _token(operator, operator, "bench", {"type": "operator"}),
        "resolver": "MEMORY",
        "resolver_preload": {account.public: _token(operator, account, "bench", body)},
    }


@cache
def user() -> Access:
    """Return the access of the account's user."""
    account, key = _key(Kind.ACCOUNT, "account"), _key(Kind.USER, "user")
    body = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    return Access(jwt=_token(account, key, "bench", body), seed=key.seed)
