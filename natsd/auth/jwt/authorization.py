"""The claims of an auth callout: what the server asks, and what the service answers.

Source: nats-io/jwt v2 (authorization_claims.go); ADR-26.
"""

from typing import Any, ClassVar

import msgspec

from natsd.auth.jwt.claims import Claims
from natsd.auth.jwt.issues import Issues
from natsd.config.public_keys import Kind, is_public


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    """The client that wants to log in, and the server that asks."""

    server_id: dict[str, Any] = {}
    user_nkey: str = ""
    client_info: dict[str, Any] = {}
    connect_opts: dict[str, Any] = {}
    client_tls: dict[str, Any] | None = None
    request_nonce: str = ""
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class AuthorizationRequestClaims(Claims, frozen=True, kw_only=True):
    """The request of a server, which the server's key signs."""

    KIND: ClassVar[str] = "authorization_request"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.SERVER,)

    body: RequestBody = msgspec.field(name="nats", default=RequestBody())

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = super().issues(now_s)
        if not self.body.user_nkey:
            issues.errors.append("User nkey is required")
        elif not is_public(self.body.user_nkey, Kind.USER):
            issues.errors.append(
                f'User nkey "{self.body.user_nkey}" is not a valid user public key'
            )
        return issues


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of the service: a user JWT, or why there is none."""

    jwt: str = ""
    error: str = ""
    issuer_account: str = ""  # the account, if one of its signing keys is the issuer
    tags: tuple[str, ...] = ()
    type: str = ""
    version: int = 0


class AuthorizationResponseClaims(Claims, frozen=True, kw_only=True):
    """The response of an auth service, which an account's key signs."""

    KIND: ClassVar[str] = "authorization_response"
    ISSUERS: ClassVar[tuple[Kind, ...]] = (Kind.ACCOUNT,)

    body: ResponseBody = msgspec.field(name="nats", default=ResponseBody())

    def issues(self, now_s: float) -> Issues:
        """Return what is wrong with the claims at a time."""
        issues = Issues()
        body = self.body
        if not is_public(self.subject, Kind.USER):
            issues.errors.append("Subject must be a user public key")
        if not is_public(self.audience, Kind.SERVER):
            issues.errors.append("Audience must be a server public key")
        if not body.error and not body.jwt:
            issues.errors.append("Error or Jwt is required")
        if body.error and body.jwt:
            issues.errors.append("Only Error or Jwt can be set")
        if body.issuer_account and not is_public(body.issuer_account, Kind.ACCOUNT):
            issues.errors.append("issuer_account is not an account public key")
        issues.times += super().issues(now_s).times
        return issues
