"""The logins of operator mode: a user JWT, and a signature that its key made of INFO's nonce.

    CONNECT ─▶ JWT (or default_sentinel) ─▶ account ─▶ issuer, scope ─▶ signature ─▶ restrictions
                                              │                (none for a bearer)
                                  looked up if it is not known

- A login needs two verifications of a signature, or one if the JWT was seen before: they run on the
  loop, at about 80 µs each. What a JWT says is read once for many logins.
- All refusals look the same to the client; the log says at debug level why, without the JWT.

Source: nats-server's `processClientOrLeafAuthentication`, `proxyCheck` (server/auth.go),
`setExpiration` (server/client.go).
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from natsd.auth.jwt.claims import Claims, UserPermissions, is_revoked
from natsd.auth.jwt.token import BadToken
from natsd.auth.jwt.user import UserClaims
from natsd.auth.nkeys import decode_signature, verify
from natsd.auth.operator.accounts import AccountUnavailable, ClaimedAccount, ClaimedAccounts
from natsd.auth.operator.restrictions import SECOND_NS, ends_at_ns, may_come_from, may_use
from natsd.auth.operator.trust import Trust
from natsd.auth.operator.users import UserRefused, decode_user, prepared_rights, user_errors
from natsd.auth.proxies import Proxies
from natsd.auth.verdict import ConnectingClient, Credentials, JwtFacts, Verdict, refused
from natsd.core.reasons import ClosedReason

CLOSED_TEXTS: Final = {
    ClosedReason.PROXY_REQUIRED: "proxy connection required",
    ClosedReason.PROXY_NOT_TRUSTED: "proxy is not trusted",
}
_logger = logging.getLogger("natsd.auth")


class OperatorLogins:
    """Decides over the clients of a server in operator mode."""

    is_required = True
    needs_nonce = True
    needs_credentials = True  # INFO says so even if a default JWT stands for a missing one

    def __init__(
        self,
        accounts: ClaimedAccounts,
        trust: Trust,
        proxies: Proxies,
        now_ns: Callable[[], int],
    ) -> None:
        self._accounts = accounts
        self._trust = trust
        self._proxies = proxies
        self._now_ns = now_ns
        self.pinned_refusals = 0  # users of accounts that are not pinned, for monitoring

    def authenticate(
        self, client: ConnectingClient, connect: Credentials
    ) -> Verdict | Awaitable[Verdict]:
        """Return whether, and as what, a client is accepted, or an awaitable of that."""
        proxy = self._proxies.signer(client.nonce, connect.proxy_sig)
        if proxy is None:
            return _refused_for(ClosedReason.PROXY_NOT_TRUSTED)
        jwt = self.presented_jwt(connect)
        if not jwt:
            return refused("Authentication requires a user JWT")
        try:
            user = decode_user(jwt)
            refusal = self._refusal(jwt, user, proxy)
        except BadToken as error:
            return refused(f"User JWT not valid: {error}")
        if refusal is not None:
            return refusal
        account = self._accounts.get(user.account)
        if account is None:
            return self._after_lookup(client, connect, jwt, proxy)
        return self._decide(client, connect, jwt, account, proxy)

    def presented_jwt(self, connect: Credentials) -> str:
        """Return the JWT of a CONNECT; what is none gives way to the default one."""
        if not self._trust.sentinel:
            return connect.jwt
        try:
            decode_user(connect.jwt)
        except BadToken:
            return self._trust.sentinel
        return connect.jwt

    def _refusal(self, jwt: str, user: UserClaims, proxy: str) -> Verdict | None:
        """Return why the user must not log in, as far as that shows without its account."""
        if user.body.proxy_required and not proxy:
            return _refused_for(ClosedReason.PROXY_REQUIRED)
        times = Claims.issues(user, self._now_ns() / SECOND_NS).times
        if issues := [*user_errors(jwt), *times]:
            return refused(f"User JWT no longer valid: {'; '.join(issues)}")
        pinned = self._trust.pinned_accounts
        if pinned is not None and user.account not in pinned:
            self.pinned_refusals += 1
            return refused(f"Account {user.account} not listed as operator pinned account")
        return None

    async def _after_lookup(
        self, client: ConnectingClient, connect: Credentials, jwt: str, proxy: str
    ) -> Verdict:
        try:
            account = await self._accounts.require(decode_user(jwt).account)
        except AccountUnavailable as error:
            return refused(f"Account JWT lookup error: {error}")
        return self._decide(client, connect, jwt, account, proxy)

    def _decide(
        self,
        client: ConnectingClient,
        connect: Credentials,
        jwt: str,
        account: ClaimedAccount,
        proxy: str,
    ) -> Verdict:
        """Return the verdict over a user whose account is known."""
        user = decode_user(jwt)
        try:
            rights, rules, limits = prepared_rights(jwt, account)
            self._check(client, connect, user, rights, account)
        except UserRefused as error:
            return refused(str(error))
        if rights.proxy_required and not proxy:
            return _refused_for(ClosedReason.PROXY_REQUIRED)
        ends_ns = ends_at_ns(rights, self._now_ns())
        if ends_ns is None:
            _logger.error("Outside connect times")
            return refused("Outside connect times")
        ends = [at_ns for at_ns in (ends_ns, user.expires * SECOND_NS) if at_ns > 0]
        return Verdict(
            account.name,
            rules,
            has_default_permissions=rights.is_empty,
            user=user.subject,
            label=f"jwt:{user.subject}",
            expires_ns=min(ends, default=0),
            limits=limits,
            jwt=jwt_facts(jwt, user, is_bearer=rights.bearer_token),
            proxy_key=proxy,
        )

    def _check(
        self,
        client: ConnectingClient,
        connect: Credentials,
        user: UserClaims,
        rights: UserPermissions,
        account: ClaimedAccount,
    ) -> None:
        """Check signature, revocation, bearer, and how and from where. Raises UserRefused."""
        if account.has_expired(self._now_ns() / SECOND_NS):
            raise UserRefused("Account JWT has expired")
        if rights.bearer_token and account.claims.body.limits.disallow_bearer:
            raise UserRefused("Account does not allow bearer tokens")
        if not may_use(rights, client.connection_type):
            raise UserRefused("Connection type not allowed")
        if not rights.bearer_token:
            check_signature(client, connect, user.subject)
        if is_revoked(account.claims.body.revocations, user.subject, user.issued_at):
            raise UserRefused("User authentication revoked")
        if not may_come_from(rights, client.ip):
            _logger.error("Bad src Ip %s", client.ip)
            raise UserRefused(f"Bad src Ip {client.ip}")


def check_signature(client: ConnectingClient, connect: Credentials, key: str) -> None:
    """Check the client's signature of the nonce. Raises UserRefused."""
    if not connect.sig:
        raise UserRefused("Signature missing")
    signature = decode_signature(connect.sig)
    if signature is None:
        raise UserRefused("Signature not valid base64")
    if not verify(key, client.nonce, signature):
        raise UserRefused("Signature not verified")


def jwt_facts(jwt: str, user: UserClaims, *, is_bearer: bool = False) -> JwtFacts:
    """Return what monitoring, events and services are told of a user; of a bearer not its JWT."""
    return JwtFacts(
        jwt="" if is_bearer else jwt,
        user_key=user.subject,
        issuer_key=user.issuer,
        account_key=user.account,
        issued_at=user.issued_at,
        name=user.name,
        tags=user.body.tags,
        is_bearer=is_bearer,
    )


def _refused_for(reason: ClosedReason) -> Verdict:
    return refused(CLOSED_TEXTS[reason], reason)
