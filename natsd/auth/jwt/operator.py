"""The claims of an operator: the keys that may sign accounts.

Source: nats-io/jwt v2 (operator_claims.go).
"""

import re
from typing import ClassVar, Final

import msgspec

from natsd.auth.jwt.claims import Claims
from natsd.auth.jwt.issues import Issues
from natsd.config.public_keys import Kind, is_public

_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_SCHEMES: Final = ("nats", "tls", "ws", "wss")


class OperatorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an operator JWT that is particular to operators."""

    signing_keys: tuple[str, ...] = ()
    account_server_url: str = ""
    operator_service_urls: tuple[str, ...] = ()
    system_account: str = ""
    assert_server_version: str = ""  # the lowest version of a server that may be used
    strict_signing_key_usage: bool = False  # only signing keys may sign, not the operator's own
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class OperatorClaims(Claims, frozen=True, kw_only=True):
    """An operator JWT."""

    KIND: ClassVar[str] = "operator"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.OPERATOR,)

    body: OperatorBody = msgspec.field(name="nats", default=OperatorBody())

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = super().issues(now_s)
        body = self.body
        if body.account_server_url and "://" not in body.account_server_url:
            issues.errors.append(
                f'account server url "{body.account_server_url}" requires a protocol'
            )
        for url in filter(None, body.operator_service_urls):
            if url.partition("://")[0].lower() not in _SCHEMES:
                issues.errors.append(
                    f'operator service url "{url}" - protocol not supported'
                    " (only 'nats', 'tls', 'ws', 'wss' only)"
                )
        issues.errors += [
            f"{key} is not an operator public key"
            for key in body.signing_keys
            if not is_public(key, Kind.OPERATOR)
        ]
        if body.system_account and not is_public(body.system_account, Kind.ACCOUNT):
            issues.errors.append(f"{body.system_account} is not an account public key")
        if parse_version(body.assert_server_version) is None:
            issues.errors.append(
                "assert server version error: asserted server version must be of the form"
                " <major>.<minor>.<update>"
            )
        return issues


def parse_version(text: str) -> tuple[int, ...] | None:
    """Return the three numbers of a version, zeros for an empty text; None: it is no version."""
    found = _VERSION.fullmatch(text or "0.0.0")
    return tuple(map(int, found.groups())) if found else None
