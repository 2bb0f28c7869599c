"""Which connected clients a changed account must close, and the closing of them.

    why_lost(client's verdict, the account before, the account now) ──▶ LostRight or None

- A client is closed if its user was revoked, if it is a bearer and the account allows no bearers
  now, if the key that signed it does not sign users of the account any more, and if the scope of
  that key has changed. It can connect again if it has other rights now.
- Of the clients beyond the limit of connections those are closed that connected last.
- A client that stays gets the limits of the account as they are now, and its default permissions if
  they have changed and the user has none of its own.

Source: nats-server's `updateAccountClaimsWithRefresh`, `expiredTimeout` (server/accounts.go).
"""

import enum
from collections.abc import Callable, Iterable
from typing import Protocol

from natsd.auth.jwt.claims import is_revoked
from natsd.auth.operator.accounts import AccountEnd, ClaimedAccount
from natsd.auth.operator.users import UserRefused, default_rules
from natsd.auth.verdict import Verdict
from natsd.core.routing import PermissionRules


class LostRight(enum.Enum):
    """Why a client must be closed."""

    REVOKED = "revoked"
    UNAUTHORIZED = "unauthorized"


class LoggedInClient(Protocol):
    """A connected client, as far as its account's changes concern it."""

    @property
    def cid(self) -> int:
        """The connection id: clients that connected later have higher ones."""
        ...

    @property
    def verdict(self) -> Verdict | None:
        """The verdict by which the client was accepted; None: it was not yet."""
        ...

    def account_expired(self) -> None:
        """Close the connection, because its account has expired."""
        ...

    def credentials_revoked(self) -> None:
        """Close the connection, because the user's credentials were revoked."""
        ...

    def login_lost(self) -> None:
        """Close the connection, because the user has no right to it any more."""
        ...

    def account_full(self) -> None:
        """Close the connection, because its account has more than it may have."""
        ...

    def apply_account_limits(self) -> None:
        """Apply the limits of the account, which have changed."""
        ...

    def apply_permissions(self, permissions: PermissionRules | None) -> None:
        """Apply other permissions, and the limits of the account."""
        ...


ClientsOf = Callable[[str], Iterable[LoggedInClient]]
"""Returns the connected clients of an account."""


def why_lost(
    verdict: Verdict, before: ClaimedAccount | None, account: ClaimedAccount
) -> LostRight | None:
    """Return why a client that was accepted with this verdict must be closed; None: it stays."""
    facts = verdict.jwt
    if facts is None:
        return None
    body = account.claims.body
    scope = account.signers.get(facts.issuer_key)
    is_bearer = facts.is_bearer if scope is None else scope.template.bearer_token
    if body.limits.disallow_bearer and is_bearer:
        return LostRight.UNAUTHORIZED
    if is_revoked(body.revocations, facts.user_key, facts.issued_at):
        return LostRight.REVOKED
    if facts.issuer_key not in account.signers:
        return LostRight.UNAUTHORIZED
    if before is not None and before.signers.get(facts.issuer_key) != scope:
        return LostRight.UNAUTHORIZED
    return None


def close_lost(
    clients: Iterable[LoggedInClient], before: ClaimedAccount | None, account: ClaimedAccount
) -> None:
    """Close the clients that have no right to an account any more, and limit the others."""
    most = account.options.limits.max_connections
    has_other_defaults = (
        before is not None
        and before.options.default_permissions != account.options.default_permissions
    )
    staying = 0
    for client in sorted(clients, key=lambda each: each.cid):
        lost = None if client.verdict is None else why_lost(client.verdict, before, account)
        if 0 <= most <= staying:
            client.account_full()
        elif lost is LostRight.REVOKED:
            client.credentials_revoked()
        elif lost is LostRight.UNAUTHORIZED:
            client.login_lost()
        else:
            staying += 1
            if has_other_defaults and client.verdict and client.verdict.has_default_permissions:
                _apply_defaults(client, account)
            else:
                client.apply_account_limits()


def _apply_defaults(client: LoggedInClient, account: ClaimedAccount) -> None:
    """Apply the default permissions of its account to a client, or close it if they are wrong."""
    try:
        client.apply_permissions(default_rules(account))
    except UserRefused:
        client.login_lost()


def close_all(clients: Iterable[LoggedInClient], end: AccountEnd) -> None:
    """Close the clients of an account that has ended."""
    for client in list(clients):
        client.account_expired()
