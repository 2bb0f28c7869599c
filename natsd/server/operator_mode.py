"""Operator mode, composed: trust, resolver, its services, and the logins, from the settings.

    OperatorMode ─▶ Trust ─▶ Resolver ─▶ ClaimedAccounts ─▶ OperatorLogins ─▶ OperatorCallout
                                 │              └─▶ server.apply_account, clients that are closed
                                 └─▶ services in the system account

This module is imported only by a server whose settings have operators or trusted keys.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.auth.callout.logins import OperatorCallout
from natsd.auth.callout.service import AuthService, ServerKeys
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.issues import Issues
from natsd.auth.operator.accounts import (
    AccountEnd,
    AccountUnavailable,
    ClaimedAccount,
    ClaimedAccounts,
)
from natsd.auth.operator.activations import check_activation
from natsd.auth.operator.login import OperatorLogins
from natsd.auth.operator.lost_rights import LoggedInClient, close_all, close_lost
from natsd.auth.operator.trust import Trust, read_preload, read_trust
from natsd.auth.proxies import Proxies
from natsd.auth.resolver.directory_resolver import CHECK_S_MAX, DirectoryResolver
from natsd.auth.resolver.jwt_directory import JwtDirectory
from natsd.auth.resolver.resolver import MemoryResolver, NotResolved, Resolver
from natsd.auth.resolver.services import ClaimsServices, serve_directory, serve_updates
from natsd.auth.resolver.synchronizing import OtherServers, PackExchange
from natsd.auth.resolver.url_resolver import UrlResolver
from natsd.config import Options, OptionsError
from natsd.config.account_jetstream import AccountJetStream
from natsd.config.account_options import AccountOptions
from natsd.config.public_keys import Kind, is_public
from natsd.server.callout_accounts import DirectoryCalloutAccounts

if TYPE_CHECKING:
    from natsd.config.resolver_options import ResolverOptions

INTERVAL_S: Final = 60.0
OF_RESOLVER: Final = ("resolver", "resolver_tls", "resolver_preload")
"""Settings that only `OperatorMode.changing` applies."""
NO_STREAMS: Final = AccountOptions(jetstream=AccountJetStream(enabled=False))
CACHE_LIMIT: Final = 1000
CACHE_TTL_S: Final = 3600.0

logger = logging.getLogger("natsd.server")


class OperatorHost(Protocol):
    """The part of the server that operator mode uses."""

    accounts: AccountDirectory

    @property
    def id(self) -> str:
        """The server's id."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the server's fields in a message that it publishes about itself."""
        ...

    def apply_account(
        self, name: str, options: AccountOptions, *, jwt: str, name_in_jwt: str
    ) -> None:
        """Create or change an account, as its settings say; the rest is for monitoring."""
        ...

    def disable_account(self, name: str) -> None:
        """End the streams, exports and imports of an account that was deleted."""
        ...

    def clients_of(self, account: str) -> Iterable[LoggedInClient]:
        """Return the connected clients of an account."""
        ...


class OperatorMode:
    """The accounts and logins of a server in operator mode."""

    def __init__(
        self,
        options: Options,
        host: OperatorHost,
        keys: ServerKeys,
        *,
        server_fields: Mapping[str, object],
        other_servers: Callable[[], int],
    ) -> None:
        """Read the settings. Raises OptionsError if they contradict each other."""
        self._options = options
        self._host = host
        self.trust: Trust = read_trust(options)
        self._resolver = make_resolver(options)
        self._other_servers = other_servers
        self._keys = keys
        self._server_fields = server_fields
        self.claimed = ClaimedAccounts(self._resolver, self.trust, self, lambda: now_ns() / 1e9)
        self._services: ClaimsServices | None = None
        self._packs: PackExchange | None = None

    def make_authenticator(self, options: Options) -> OperatorCallout:
        """Return what decides over each CONNECT as the settings say. Raises OptionsError."""
        proxies = Proxies(options.proxies.trusted if options.proxies else ())
        logins = OperatorLogins(self.claimed, read_trust(options), proxies, now_ns)
        timeout_s = options.authorization.timeout.total_seconds()
        service = AuthService(self._keys, self._server_fields, timeout_s, now_ns)
        accounts = DirectoryCalloutAccounts(lambda: self._host.accounts)
        return OperatorCallout(logins, self.claimed, accounts, service, now_ns)

    async def start(self, stored_accounts: Iterable[str]) -> None:
        """Open the resolver, load accounts, and serve requests about JWTs.

        The system account is loaded, and those of `stored_accounts` that are public keys: their
        streams must work before a client connects. Raises OptionsError for a JWT in the settings
        that is not valid, and OSError.
        """
        await self._resolver.start()
        await self._check_preload(self._options)
        await self._preload()
        names = [self.trust.system_account] if self.trust.system_account else []
        names += [name for name in stored_accounts if is_public(name, Kind.ACCOUNT)]
        for name in names:
            try:
                await self.claimed.require(name)
            except AccountUnavailable as error:
                logger.error("Account %s is not available: %s", name, error)
        self._serve()

    async def close(self) -> None:
        """Close the resolver and end its services."""
        await self._end_services()
        await self.claimed.close()
        await self._resolver.close()

    async def _end_services(self) -> None:
        if self._packs is not None:
            await self._packs.close()
            self._packs = None
        if self._services is not None:
            await self._services.close()
            self._services = None

    # ---- a reload

    def check_unchanged(self, options: Options) -> None:
        """Check that options have the same resolver. Raises OptionsError."""
        if any(getattr(options, name) != getattr(self._options, name) for name in OF_RESOLVER):
            raise OptionsError("a resolver is changed only by a reload of the configuration file")

    @asynccontextmanager
    async def changing(self, options: Options) -> AsyncIterator[None]:
        """Change to other settings; the block applies the rest of them, and may refuse them.

        If the block raises, the settings stay as they were. The resolver, its JWTs and those of the
        settings follow after the block. Raises as `start` does, before the block.
        """
        trust = read_trust(options)
        await self._check_preload(options)
        resolver = await self._started_resolver(options)
        before = (self._options, self.trust)
        self._options, self.trust = options, trust
        try:
            yield
        except BaseException:
            self._options, self.trust = before
            if resolver is not self._resolver:
                await resolver.close()
            raise
        if resolver is not self._resolver:
            await self._change_resolver(resolver)
        await self._renew_accounts(before[0])

    async def _started_resolver(self, options: Options) -> Resolver:
        """Return the resolver of options: the present one if its settings are the same."""
        before = self._options
        if (before.resolver, before.resolver_tls) == (options.resolver, options.resolver_tls):
            return self._resolver
        resolver = make_resolver(options)
        try:
            await resolver.start()
        except OSError as error:
            raise OptionsError(f"resolver: {error}") from None
        return resolver

    async def _change_resolver(self, resolver: Resolver) -> None:
        """Put another resolver, which is started, in the place of the present one."""
        await self._end_services()
        before, self._resolver = self._resolver, resolver
        self.claimed.resolver = resolver
        await before.close()
        self._serve()

    async def _renew_accounts(self, before: Options) -> None:
        """Take the JWTs that the settings and the directory have now."""
        try:
            await self._preload()
            if isinstance(self._resolver, DirectoryResolver):
                await self._resolver.reload()
                return
        except (OptionsError, OSError) as error:
            logger.error("The JWTs of the resolver are not all in force: %s", error)
        if not isinstance(self._resolver, MemoryResolver):
            return
        for name in before.resolver_preload.keys() - self._options.resolver_preload.keys():
            self._resolver.remove(name)
            self.claimed.deleted(name)
        for name, jwt in self._options.resolver_preload.items():
            await self.claimed.changed(name, jwt)

    def settings_of(self, account: Account) -> AccountOptions:
        """Return the settings of an account; one that no JWT describes has no streams."""
        claimed = self.claimed.get(account.name)
        return NO_STREAMS if claimed is None else claimed.options

    def activation_ends_ns(
        self,
        token: str,
        exporter: str,
        importer: str,
        subject: str,
        kind: str,
        revocations: Mapping[str, int],
    ) -> int | None:
        """Return when a right to import ends; 0: never, None: there is none."""
        account = self.claimed.get(exporter)
        if account is None:
            return None
        return check_activation(
            token, account, importer, subject, kind, revocations, now_ns() / 1e9
        )

    # ---- what is told of accounts

    def account_changed(self, before: ClaimedAccount | None, account: ClaimedAccount) -> None:
        """Put an account in force, and close the clients that lost their right."""
        self._host.apply_account(
            account.name, account.options, jwt=account.jwt, name_in_jwt=account.claims.name
        )
        if before is not None:
            close_lost(list(self._host.clients_of(account.name)), before, account)

    def account_ended(self, name: str, end: AccountEnd) -> None:
        """Close the clients of an account, which may not be used any more."""
        logger.info("Account %s is %s", name, end.value)
        close_all(list(self._host.clients_of(name)), end)
        if end is AccountEnd.DELETED:
            self._host.disable_account(name)

    # ---- the start

    async def _check_preload(self, options: Options) -> None:
        """Check the JWTs of the settings, in a thread. Raises OptionsError."""
        for name, issues in (await asyncio.to_thread(_preload_issues, options)).items():
            if issues.blocks(by_time=True):
                logger.warning("Account [%s] has validation issues:", name)
                for issue in issues.all:
                    logger.warning("  - %s", issue)

    async def _preload(self) -> None:
        """Store the JWTs of the settings. Raises OptionsError."""
        for name, jwt in self._options.resolver_preload.items():
            try:
                await self._resolver.store(name, jwt)
            except NotResolved as error:
                raise OptionsError(f'preload account error for "{name}": {error}') from None

    def _serve(self) -> None:
        """Serve the requests about JWTs in the system account, if there is one."""
        if not self._host.accounts.has_system:
            return
        client = self._host.accounts.system.internal_client
        self._services = services = ClaimsServices(self._host, client)
        resolver = self._resolver
        if not isinstance(resolver, DirectoryResolver):
            serve_updates(services, self.claimed.update)
            return
        resolver.changed, resolver.deleted = self.claimed.changed, self.claimed.deleted
        is_cache = self._is_cache
        resolver.peers = OtherServers(
            client, self._host.id, self._other_servers, answers_itself=not is_cache
        )
        has_account = self.claimed.__contains__ if is_cache else None
        serve_directory(services, resolver, self.trust.claims, has_account=has_account)
        if is_cache:
            logger.info("Managing some jwt in exclusive directory %s", resolver.path)
            return
        assert self._options.resolver is not None
        interval_s = self._options.resolver.interval.total_seconds() or INTERVAL_S
        self._packs = PackExchange(services, client, resolver, self._host.id, interval_s)
        self._packs.start()
        logger.info("Managing all jwt in exclusive directory %s", resolver.path)

    @property
    def _is_cache(self) -> bool:
        return self._options.resolver is not None and self._options.resolver.kind == "cache"


def _preload_issues(options: Options) -> dict[str, Issues]:
    """Return what is wrong with the JWTs of `resolver_preload` at this time. Raises OptionsError.

    It runs in a thread: a JWT of 600 KB takes a tenth of a second.
    """
    now_s = now_ns() / 1e9
    return {name: account_issues(claims, now_s) for name, claims in read_preload(options).items()}


def make_resolver(options: Options) -> Resolver:
    """Return the resolver that the settings describe; without one, that of the preload."""
    settings = options.resolver
    if settings is None or settings.kind == "memory":
        return MemoryResolver()
    if settings.kind == "url":
        tls = None
        if options.resolver_tls is not None:
            from natsd.server.resolver_tls import resolver_context

            tls = resolver_context(options.resolver_tls)
        return UrlResolver(settings.url, settings.timeout.total_seconds(), tls)
    return _directory_resolver(settings)


def _directory_resolver(settings: "ResolverOptions") -> DirectoryResolver:
    is_cache = settings.kind == "cache"
    ttl_s = settings.ttl.total_seconds() or (CACHE_TTL_S if is_cache else 0.0)
    assert settings.dir is not None
    directory = JwtDirectory(
        settings.dir,
        lambda: now_ns() / 1e9,
        limit=settings.limit or (CACHE_LIMIT if is_cache else 0),
        is_cache=is_cache,
        ttl_s=ttl_s,
    )
    check_s = min(ttl_s / 2, CHECK_S_MAX) if ttl_s else CHECK_S_MAX
    return DirectoryResolver(
        directory,
        timeout_s=settings.timeout.total_seconds(),
        check_s=check_s,
        may_delete=settings.allow_delete or is_cache,
        keeps_deleted=not (settings.hard_delete or is_cache),
    )


def now_ns() -> int:
    """Return the wall clock in Unix nanoseconds."""
    return time.time_ns()
