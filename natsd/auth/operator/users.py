"""User JWTs: decoded once for many logins, and the rights that one has in its account.

Source: nats-server's `processClientOrLeafAuthentication` (server/auth.go),
`buildInternalNkeyUser` (server/accounts.go), `applyAccountLimits` (server/client.go).
"""

from functools import lru_cache
from typing import Final, NamedTuple

from natsd.auth.callout.service import SUBJECT
from natsd.auth.jwt.claims import UserPermissions
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.user import UserClaims
from natsd.auth.operator.accounts import ClaimedAccount
from natsd.auth.operator.scopes import BadTemplate, ScopedUser, fill_in
from natsd.auth.operator.translation import permissions_options
from natsd.auth.permissions import compile_permissions
from natsd.auth.verdict import UserLimits
from natsd.config import OptionsError
from natsd.core.routing import InvalidSubject, PermissionRules

DECODED_MAX: Final = 4096
"""User JWTs whose claims are remembered; one comes in a CONNECT, which bounds its length."""
INT32_MAX: Final = 2**31 - 1


class UserRefused(Exception):
    """A user must not log in; the text is for the log at debug level."""


@lru_cache(DECODED_MAX)
def decode_user(jwt: str) -> UserClaims:
    """Return the verified claims of a user. Raises BadToken.

    Only what is verified is remembered, so a client cannot fill the memory with forged tokens.
    """
    return decode_as(UserClaims, jwt)


@lru_cache(DECODED_MAX)
def user_errors(jwt: str) -> tuple[str, ...]:
    """Return what is wrong with the contents of a user's claims at any time. Raises BadToken."""
    return tuple(decode_user(jwt).issues(0).errors)


class UserRights(NamedTuple):
    """What a user may do in its account, and the same in the form that a connection takes."""

    claimed: UserPermissions
    rules: PermissionRules | None  # None: the user may do everything
    limits: UserLimits


@lru_cache(DECODED_MAX)
def prepared_rights(jwt: str, account: ClaimedAccount) -> UserRights:
    """Return the rights that a user's JWT gives, once for many logins.

    A changed account is another object, and gives rights anew. Raises UserRefused and BadToken.
    """
    rights = rights_of(decode_user(jwt), account)
    return UserRights(rights, compiled_rules(rights, account), limits_of(rights))


def rights_of(user: UserClaims, account: ClaimedAccount) -> UserPermissions:
    """Return what a user may do: what its JWT says, or the template of its issuer.

    Raises UserRefused if the issuer may not sign users of the account.
    """
    if user.issuer not in account.signers:
        raise UserRefused("User JWT issuer is not known")
    scope = account.signers[user.issuer]
    if scope is None:
        return user.body
    if not user.body.is_unset:
        raise UserRefused(
            "User JWT is not valid: scoped users require no permissions or limits set"
        )
    claims = account.claims
    scoped = ScopedUser(
        name=user.name,
        subject=user.subject,
        tags=user.body.tags,
        account_name=claims.name,
        account_subject=user.body.issuer_account,
        account_tags=claims.body.tags,
    )
    try:
        return fill_in(scope.template, scoped)
    except BadTemplate as error:
        raise UserRefused(f"User JWT generated invalid permissions: {error}") from None


def compiled_rules(rights: UserPermissions, account: ClaimedAccount) -> PermissionRules | None:
    """Return the compiled permissions of a user; None: it may do everything.

    Without own permissions it has the default ones of its account. If the account has an auth
    service, its users must not publish requests to that. Raises UserRefused.
    """
    try:
        options = permissions_options(rights) or account.options.default_permissions
        rules = None if options is None else compile_permissions(options)
    except (OptionsError, InvalidSubject) as error:
        raise UserRefused(f"User JWT has invalid permissions: {error}") from None
    if account.claims.body.authorization.is_enabled:
        return (rules or PermissionRules()).with_publish_deny(SUBJECT)
    return rules


@lru_cache(1)
def default_rules(account: ClaimedAccount) -> PermissionRules | None:
    """Return the permissions of an account's users without own ones, once for many clients.

    None: they may do everything. Raises UserRefused.
    """
    return compiled_rules(UserPermissions(), account)


def limits_of(rights: UserPermissions) -> UserLimits:
    """Return the limits of a user."""
    return UserLimits(
        subscriptions=max(-1, min(rights.subs, INT32_MAX)),
        payload=max(-1, min(rights.payload, INT32_MAX)),
    )
