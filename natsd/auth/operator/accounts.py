"""The accounts that JWTs describe: fetched when they are first asked for, verified, kept.

    require(name) ──▶ resolver ──▶ verified ──▶ ClaimedAccount ──▶ listener.account_changed
                          ▲                          │
      the accounts whose exports it imports ◀────────┘

- Lookups of one account are one lookup. At most `LOOKUPS_MAX` run at a time; more are refused. What
  was not found is not looked up again for `MISSING_S`, and at most `MISSING_MAX` names are
  remembered for that.
- An account that changes during its lookup is fetched again, and callers get it as it is when the
  lookup ends.
- An account that has expired is looked up again, at most once in `MISSING_S`.
- An account is there for others when the accounts whose exports it imports are, as far as they can
  be had.
- The listener learns of each account that is new or changed, has expired or was deleted.

Source: nats-server's `fetchAccount`, `verifyAccountClaims`, `updateAccountWithClaimJWT`,
`lookupOrFetchAccount` (server/server.go), `checkExpiration`, `removeCb` (server/accounts.go).
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from natsd.auth.jwt.account import AccountClaims, ScopeClaim
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.token import BadToken
from natsd.auth.operator.translation import account_options
from natsd.auth.operator.trust import Trust
from natsd.auth.resolver.resolver import NotResolved, Resolver
from natsd.config.account_options import AccountOptions
from natsd.config.public_keys import Kind, is_public

LOOKUPS_MAX: Final = 256
MISSING_S: Final = 1.0
MISSING_MAX: Final = 4096
SLOW_LOOKUP_S: Final = 1.0
TIMER_S_MAX: Final = 24 * 3600.0
VALIDATION_FAILED: Final = "account validation failed"

_logger = logging.getLogger("natsd.auth")


class AccountUnavailable(Exception):
    """There is no such account, or it must not be used now; the text is for the log."""


class AccountEnd(enum.Enum):
    """Why an account ended."""

    EXPIRED = "expired"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimedAccount:
    """A verified account; a changed one is another object."""

    name: str
    jwt: str
    claims: AccountClaims
    options: AccountOptions
    signers: Mapping[str, ScopeClaim | None]  # keys that sign users, with the scope of each

    def has_expired(self, now_s: float) -> bool:
        """Return whether the account is not valid any more."""
        return 0 < self.claims.expires <= now_s


class AccountListener(Protocol):
    """What is told of accounts."""

    def account_changed(self, before: ClaimedAccount | None, account: ClaimedAccount) -> None:
        """Put an account in force; `before` is what it was, None: it is new."""
        ...

    def account_ended(self, name: str, end: AccountEnd) -> None:
        """Close the clients of an account, which may not be used any more."""
        ...


class ClaimedAccounts:
    """The accounts of one server."""

    def __init__(
        self,
        resolver: Resolver,
        trust: Trust,
        listener: AccountListener,
        now_s: Callable[[], float],
    ) -> None:
        self.resolver = resolver
        self._trust = trust
        self._listener = listener
        self._now_s = now_s
        self._accounts: dict[str, ClaimedAccount] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._outdated: set[str] = set()  # accounts that changed since they were fetched
        self._missing: dict[str, float] = {}  # when it may be looked up again, on the loop's clock
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._updating = asyncio.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._accounts

    def get(self, name: str) -> ClaimedAccount | None:
        """Return an account that is known and has not expired; None: it must be looked up."""
        account = self._accounts.get(name)
        if account is None or account.has_expired(self._now_s()):
            return None
        return account

    async def require(self, name: str) -> ClaimedAccount:
        """Return an account, which is looked up if necessary. Raises AccountUnavailable."""
        account = self.get(name)
        if account is not None:
            return account
        if not is_public(name, Kind.ACCOUNT):
            raise AccountUnavailable("will only fetch valid account keys")
        lookup = self._lookups.get(name)
        if lookup is None:
            lookup = self._begin_lookup(name)
        await asyncio.shield(lookup)
        account = self.get(name)
        if account is None:  # it was deleted meanwhile
            raise AccountUnavailable("account missing")
        return account

    async def update(self, name: str, jwt: str) -> bool | str:
        """Put a new JWT of a known account in force; updates follow each other.

        Return True; False if the account is not known here; or why the JWT is refused.
        """
        async with self._updating:
            self._note_change(name)
            known = self._accounts.get(name)
            if known is None:
                return False
            if known.jwt != jwt:
                try:
                    account = await asyncio.to_thread(self._verified, name, jwt)
                except AccountUnavailable as error:
                    return str(error)
                if name not in self._accounts:  # it was deleted meanwhile
                    return False
                self._keep(account)
                self._fetch_exporters(account)
            return True

    async def changed(self, name: str, jwt: str) -> None:
        """Put a JWT in force that the resolver has anew, if the account is known here."""
        self._missing.pop(name, None)
        refused = await self.update(name, jwt)
        if isinstance(refused, str):
            _logger.error("The new JWT of account %s is not used: %s", name, refused)

    def deleted(self, name: str) -> None:
        """Drop an account, which the resolver does not have any more."""
        self._note_change(name)
        if self._accounts.pop(name, None) is not None:
            self._cancel_timer(name)
            self._listener.account_ended(name, AccountEnd.DELETED)

    async def close(self) -> None:
        """Cancel lookups and timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    # ---- lookups

    def _note_change(self, name: str) -> None:
        """Have a lookup fetch an account again, since what it fetched may be older."""
        if name in self._lookups:
            self._outdated.add(name)

    def _begin_lookup(self, name: str) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        if self._missing.get(name, 0.0) > loop.time():
            raise AccountUnavailable("account missing")
        if len(self._lookups) >= LOOKUPS_MAX:
            raise AccountUnavailable("too many accounts are looked up now")
        lookup = loop.create_task(self._look_up(name), name="natsd-account-lookup")
        self._lookups[name] = lookup
        lookup.add_done_callback(lambda done: self._looked_up(name, done))
        return lookup

    def _looked_up(self, name: str, lookup: asyncio.Task[None]) -> None:
        del self._lookups[name]
        self._outdated.discard(name)
        if not lookup.cancelled():
            lookup.exception()  # whoever waits has it; it may be nobody

    async def _look_up(self, name: str) -> None:
        """Fetch an account, put it in force, and look up those that it imports from."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            account = await self._fetch(name)
        except NotResolved as error:
            self._remember_missing(name)
            _logger.warning("Account fetch failed: %s", error)
            raise AccountUnavailable(str(error)) from None
        except AccountUnavailable:
            self._remember_missing(name)
            raise
        finally:
            took_s = loop.time() - began_s
            level = logging.WARNING if took_s > SLOW_LOOKUP_S else logging.DEBUG
            _logger.log(level, "Account [%s] fetch took %.3fs", name, took_s)
        self._keep(account)
        for found in await asyncio.gather(*self._fetch_exporters(account), return_exceptions=True):
            if isinstance(found, AccountUnavailable):
                _logger.error("An account that %s imports from is missing: %s", name, found)

    async def _fetch(self, name: str) -> ClaimedAccount:
        """Return a verified account of the resolver. Raises NotResolved or AccountUnavailable."""
        while True:
            self._outdated.discard(name)
            jwt = await self.resolver.fetch(name)
            account = await asyncio.to_thread(self._verified, name, jwt)
            if name not in self._outdated:
                return account

    def _remember_missing(self, name: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if len(self._missing) >= MISSING_MAX:
            self._missing = {n: until for n, until in self._missing.items() if until > now_s}
        if len(self._missing) < MISSING_MAX:
            self._missing[name] = now_s + MISSING_S

    def _fetch_exporters(self, account: ClaimedAccount) -> list[asyncio.Task[None]]:
        """Begin to look up the accounts that an account imports from; return the lookups.

        The exporters of an exporter are looked up, too, but not waited for twice: two accounts may
        import from each other.
        """
        begun = []
        for name in dict.fromkeys(each.account for each in account.claims.body.imports):
            if self.get(name) is not None or name in self._lookups:
                continue
            try:
                begun.append(self._begin_lookup(name))
            except AccountUnavailable as error:
                _logger.error("Can't locate account [%s] for an import: %s", name, error)
        return begun

    # ---- what is known

    def _verified(self, name: str, jwt: str) -> ClaimedAccount:
        """Return the account that a JWT describes. Raises AccountUnavailable.

        It runs in a thread: a JWT may be 1 MiB, and then this takes a part of a second.
        """
        try:
            claims = decode_as(AccountClaims, jwt)
        except BadToken as error:
            raise AccountUnavailable(str(error)) from None
        if claims.issuer not in self._trust.keys or claims.subject != name:
            raise AccountUnavailable(VALIDATION_FAILED)
        issues = account_issues(claims, self._now_s())
        if issues.blocks(by_time=True):
            _logger.debug("The JWT of account %s is refused: %s", name, "; ".join(issues.all))
            raise AccountUnavailable(VALIDATION_FAILED)
        signers: dict[str, ScopeClaim | None] = claims.signing_keys
        if claims.issuer not in self._trust.strict_keys:
            signers[name] = None
        return ClaimedAccount(
            name=name, jwt=jwt, claims=claims, options=account_options(claims), signers=signers
        )

    def _keep(self, account: ClaimedAccount) -> None:
        before = self._accounts.get(account.name)
        self._accounts[account.name] = account
        self._missing.pop(account.name, None)
        self._cancel_timer(account.name)
        if account.claims.expires:
            self._set_timer(account)
        self._listener.account_changed(before, account)

    def _set_timer(self, account: ClaimedAccount) -> None:
        """Wait for the end of an account, at most a day at a time: clocks are changed."""
        left_s = max(0.0, account.claims.expires - self._now_s())
        self._timers[account.name] = asyncio.get_running_loop().call_later(
            min(left_s, TIMER_S_MAX), self._timer_ended, account
        )

    def _timer_ended(self, account: ClaimedAccount) -> None:
        if account.has_expired(self._now_s()):
            del self._timers[account.name]
            self._listener.account_ended(account.name, AccountEnd.EXPIRED)
        else:
            self._set_timer(account)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
