"""Logins with an auth callout: the own decision first, then that of the service for most clients.

    config mode     everyone is asked about, except `auth_users`; with `allowed_accounts` only those
                    whom the settings put into one of these accounts, or into none
    operator mode   users of an account whose JWT has `authorization`, except its `auth_users`

- In config mode the service may put a client into any account, by the audience of the user's JWT.
  The configured issuer signs that JWT.
- In operator mode the JWT is one of the callout account, or of one in `allowed_accounts`; it is
  signed, and gives rights, as if the client had presented it. A client whom the account refuses is
  not asked about.
- In operator mode the service is asked again if the account changed before it answered.
- A client in the callout account must not publish requests itself.

Source: nats-server's `processClientOrLeafAuthentication` (server/auth.go),
`processClientOrLeafCallout` (server/auth_callout.go).
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from natsd.auth.callout.service import (
    SECOND_NS,
    SUBJECT,
    AuthService,
    CalloutClient,
    CalloutFailed,
    CalloutRoute,
)
from natsd.auth.jwt.authorization import AuthorizationResponseClaims
from natsd.auth.jwt.claims import UserPermissions
from natsd.auth.jwt.user import UserClaims
from natsd.auth.operator.accounts import AccountUnavailable, ClaimedAccount, ClaimedAccounts
from natsd.auth.operator.login import OperatorLogins, jwt_facts
from natsd.auth.operator.restrictions import ends_at_ns, may_use
from natsd.auth.operator.translation import permissions_options
from natsd.auth.operator.users import UserRefused, compiled_rules, limits_of, rights_of
from natsd.auth.permissions import compile_permissions
from natsd.auth.proxies import Proxies
from natsd.auth.verdict import (
    Authenticator,
    ConnectingClient,
    Credentials,
    Verdict,
    refused,
)
from natsd.config import Options, OptionsError
from natsd.config.account_names import GLOBAL
from natsd.config.auth_options import AuthCalloutOptions
from natsd.core.reasons import ClosedReason
from natsd.core.routing import InvalidSubject, PermissionRules

_logger = logging.getLogger("natsd.auth")


class CalloutAccounts(Protocol):
    """The accounts of the server, as far as callouts use them."""

    def has(self, name: str) -> bool:
        """Return whether there is such an account."""
        ...

    def client_of(self, name: str) -> CalloutClient:
        """Return the internal client of an account that exists."""
        ...


class ConfiguredCallout:
    """Logins of a server whose settings have an `auth_callout`."""

    is_required = True
    needs_credentials = True

    def __init__(
        self,
        inner: Authenticator,
        options: Options,
        callout: AuthCalloutOptions,
        accounts: CalloutAccounts,
        service: AuthService,
        now_ns: Callable[[], int],
    ) -> None:
        """Ask about clients after `inner` has decided."""
        self.inner = inner
        self._options = options
        self._callout = callout
        self._accounts = accounts
        self._service = service
        self._now_ns = now_ns
        self._proxies = Proxies(options.proxies.trusted if options.proxies else ())

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO has a nonce, which clients sign."""
        return self.inner.needs_nonce

    async def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        """Return the verdict of the settings or of the service."""
        inner = self.inner.authenticate(client, connect)
        own = inner if isinstance(inner, Verdict) else await inner
        if own.closed_reason is ClosedReason.PROXY_NOT_TRUSTED:
            return own
        callout = self._callout
        user = connect.nkey or connect.user or own.user or connect.auth_token
        verified = user if own.account is None else own.user  # a refused client stays refused
        is_exempt = verified in callout.auth_users
        if not is_exempt and self._is_delegated(own.account):
            own = await self._ask(client, connect, user, own)
        elif own.account is None:
            own = replace(own, event_account=callout.account)
        return without_requests(own) if own.account == callout.account else own

    def _is_delegated(self, account: str | None) -> bool:
        """Return whether the service decides over a client that the settings put there."""
        allowed = self._callout.allowed_accounts
        return account in {None, GLOBAL} or not allowed or account in allowed

    async def _ask(
        self, client: ConnectingClient, connect: Credentials, user: str, own: Verdict
    ) -> Verdict:
        callout = self._callout
        try:
            if not self._accounts.has(callout.account):
                raise CalloutFailed(
                    f'No valid account "{callout.account}" for auth callout request: '
                    "account missing"
                )
            internal = self._accounts.client_of(callout.account)
            route = CalloutRoute(
                account=callout.account,
                client=internal,
                subject_key=callout.issuer,
                xkey=callout.xkey,
            )
            answer = await self._service.ask(
                route, client, connect, user, connect.jwt, _accept_any_issuer
            )
            return self._accepted(client, connect, answer, own)
        except (CalloutFailed, UserRefused) as error:
            return failed(error, callout.account)

    def _accepted(
        self, client: ConnectingClient, connect: Credentials, answer: UserClaims, own: Verdict
    ) -> Verdict:
        """Return the verdict for a user of the service. Raises CalloutFailed or UserRefused."""
        callout, body = self._callout, answer.body
        proxy = own.proxy_key or self._proxies.signer(client.nonce, connect.proxy_sig) or ""
        if (body.proxy_required or own.closed_reason is ClosedReason.PROXY_REQUIRED) and not proxy:
            return replace(
                failed("Proxy connection required", callout.account),
                closed_reason=ClosedReason.PROXY_REQUIRED,
            )
        if body.issuer_account:
            raise CalloutFailed(
                f'Error non operator mode account "{callout.account}": attempted to use '
                "issuer_account"
            )
        if answer.issuer != callout.issuer:
            raise CalloutFailed(
                f'Wrong issuer for auth callout response on account "{callout.account}", '
                f'expected "{callout.issuer}" got "{answer.issuer}"'
            )
        if not self._accounts.has(answer.audience):
            raise CalloutFailed(
                f'No valid account "{answer.audience}" for auth callout response on account '
                f'"{callout.account}": account missing'
            )
        rules = self._rules(body, answer.audience)
        return accept(answer, body, rules, answer.audience, client, connect, self._now_ns(), proxy)

    def _rules(self, rights: UserPermissions, account: str) -> PermissionRules | None:
        configured = self._options.accounts.get(account)
        options = permissions_options(rights)
        if options is None and configured is not None:
            options = configured.default_permissions
        try:
            return None if options is None else compile_permissions(options)
        except (OptionsError, InvalidSubject) as error:
            raise UserRefused(f"User JWT has invalid permissions: {error}") from None


class OperatorCallout:
    """Logins of operator mode, with the auth services of accounts."""

    is_required = True
    needs_nonce = True
    needs_credentials = True

    def __init__(
        self,
        inner: OperatorLogins,
        claimed: ClaimedAccounts,
        accounts: CalloutAccounts,
        service: AuthService,
        now_ns: Callable[[], int],
    ) -> None:
        """Ask about clients that `inner` has accepted."""
        self.inner = inner
        self._claimed = claimed
        self._accounts = accounts
        self._service = service
        self._now_ns = now_ns

    def authenticate(
        self, client: ConnectingClient, connect: Credentials
    ) -> Verdict | Awaitable[Verdict]:
        """Return the verdict of the user's JWT, or an awaitable of that of the service."""
        own = self.inner.authenticate(client, connect)
        if isinstance(own, Verdict) and self._callout_account(own) is None:
            return own
        return self._awaited(client, connect, own)

    async def _awaited(
        self,
        client: ConnectingClient,
        connect: Credentials,
        own: Verdict | Awaitable[Verdict],
    ) -> Verdict:
        """Return the verdict by an account that did not change while the service was asked."""
        while True:
            if not isinstance(own, Verdict):
                own = await own
            account = self._callout_account(own)
            if account is None:
                return own
            verdict = await self._decide(client, connect, own, account)
            if self._claimed.get(account.name) is account:
                return verdict
            own = self.inner.authenticate(client, connect)

    def _callout_account(self, own: Verdict) -> ClaimedAccount | None:
        """Return the account of an accepted client, if it has an auth service."""
        account = None if own.account is None else self._claimed.get(own.account)
        has_service = account is not None and account.claims.body.authorization.is_enabled
        return account if has_service else None

    async def _decide(
        self,
        client: ConnectingClient,
        connect: Credentials,
        own: Verdict,
        account: ClaimedAccount,
    ) -> Verdict:
        external = account.claims.body.authorization
        if own.user in external.auth_users:
            return own
        route = CalloutRoute(
            account=account.name,
            client=self._accounts.client_of(account.name),
            subject_key=account.name,
            xkey=external.xkey,
        )

        def check_issuer(response: AuthorizationResponseClaims, was_sealed: bool) -> None:
            signer = response.body.issuer_account or response.issuer
            if not was_sealed and signer != account.name and signer not in account.signers:
                raise CalloutFailed("Auth callout signing key is unknown")

        try:
            jwt = self.inner.presented_jwt(connect)
            answer = await self._service.ask(route, client, connect, own.user, jwt, check_issuer)
            target = await self._target(answer, account)
            rights = rights_of(answer, target)
            if rights.proxy_required and not own.proxy_key:
                raise CalloutFailed("Proxy connection required")
            rules = compiled_rules(rights, target)
            return accept(
                answer, rights, rules, target.name, client, connect, self._now_ns(), own.proxy_key
            )
        except (CalloutFailed, UserRefused) as error:
            return failed(error, account.name)
        except AccountUnavailable as error:
            return failed(
                f'No valid account for auth callout response on account "{account.name}": {error}',
                account.name,
            )

    async def _target(self, answer: UserClaims, account: ClaimedAccount) -> ClaimedAccount:
        """Return the account of the answered user. Raises CalloutFailed, AccountUnavailable."""
        name = answer.account
        if name != account.name and not account.claims.body.authorization.allows(name):
            raise CalloutFailed(
                f'Account "{answer.issuer}" not permitted as valid account option for auth '
                f'callout for account "{account.name}"'
            )
        return await self._claimed.require(name)


def _accept_any_issuer(_response: AuthorizationResponseClaims, _was_sealed: bool) -> None:
    """Accept a response: in config mode the issuer of the user's JWT counts."""


def accept(
    user: UserClaims,
    rights: UserPermissions,
    rules: PermissionRules | None,
    account: str,
    client: ConnectingClient,
    connect: Credentials,
    now_ns: int,
    proxy: str,
) -> Verdict:
    """Return the verdict for a user that the service named. Raises CalloutFailed."""
    ends_ns = ends_at_ns(rights, now_ns)
    if ends_ns is None:
        raise CalloutFailed(
            f'Authorized user on account "{account}" outside of valid connect times'
        )
    if not may_use(rights, client.connection_type):
        raise CalloutFailed(f'Authorized user on account "{account}" using invalid connection type')
    ends = [at_ns for at_ns in (ends_ns, user.expires * SECOND_NS) if at_ns > 0]
    name = user.name or connect.nkey or connect.user
    return Verdict(
        account,
        rules,
        has_default_permissions=rights.is_empty,
        user=name,
        label=f"user:{name}",
        expires_ns=min(ends, default=0),
        limits=limits_of(rights),
        jwt=jwt_facts("", user),
        proxy_key=proxy,
    )


def without_requests(verdict: Verdict) -> Verdict:
    """Return a verdict whose client must not publish requests to the auth service."""
    rules = verdict.permissions or PermissionRules()
    return replace(verdict, permissions=rules.with_publish_deny(SUBJECT))


def failed(reason: object, account: str) -> Verdict:
    """Return a verdict that refuses, and log why: an operator has to know."""
    _logger.warning("%s", reason)
    return replace(refused(str(reason)), event_account=account)
