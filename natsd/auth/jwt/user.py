"""The claims of a user: the account that issued them, and what the user may do.

Source: nats-io/jwt v2 (user_claims.go).
"""

from typing import ClassVar

import msgspec

from natsd.auth.jwt.claims import Claims, UserPermissions
from natsd.auth.jwt.issues import Issues
from natsd.config.public_keys import Kind, is_public


class UserBody(UserPermissions, frozen=True, kw_only=True):
    """The part of a user JWT that is particular to users."""

    issuer_account: str = ""  # the account, if one of its signing keys is the issuer
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class UserClaims(Claims, frozen=True, kw_only=True):
    """A user JWT."""

    KIND: ClassVar[str] = "user"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.ACCOUNT,)

    body: UserBody = msgspec.field(name="nats", default=UserBody())

    @property
    def account(self) -> str:
        """The public key of the account."""
        return self.body.issuer_account or self.issuer

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = super().issues(now_s)
        self.body.check_limits(issues)
        if self.body.issuer_account and not is_public(self.body.issuer_account, Kind.ACCOUNT):
            issues.errors.append("account_id is not an account public key")
        return issues
