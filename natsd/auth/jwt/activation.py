"""The claims of an activation: an exporter allows an account to import one of its exports.

Source: nats-io/jwt v2 (activation_claims.go).
"""

from typing import ClassVar

import msgspec

from natsd.auth.jwt.claims import Claims
from natsd.auth.jwt.issues import Issues
from natsd.auth.jwt.subjects import check_subject
from natsd.config.public_keys import Kind, is_public


class ActivationBody(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an activation that is particular to activations."""

    subject: str = ""  # the exported subject
    kind: str = ""  # "stream" or "service"
    issuer_account: str = ""  # the exporter, if one of its signing keys is the issuer
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class ActivationClaims(Claims, frozen=True, kw_only=True):
    """An activation JWT, which its subject may use to import."""

    KIND: ClassVar[str] = "activation"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.ACCOUNT, Kind.OPERATOR)

    body: ActivationBody = msgspec.field(name="nats", default=ActivationBody())

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = super().issues(now_s)
        self.check(issues)
        return issues

    def check(self, issues: Issues) -> None:
        """Check the contents without the times."""
        if self.body.kind not in {"stream", "service"}:
            issues.errors.append(f'invalid import type: "{self.body.kind or "unknown"}"')
        check_subject(self.body.subject, issues)
        if self.body.issuer_account and not is_public(self.body.issuer_account, Kind.ACCOUNT):
            issues.errors.append("account_id is not an account public key")
