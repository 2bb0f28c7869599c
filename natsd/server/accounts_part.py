"""The server's accounts and logins: built from the settings, changed by a reload or by JWTs.

    Options ─▶ AccountDirectory   accounts, with limits, traces, JetStream
            ─▶ AccountLinks       exports, imports, subject mappings; None: there are none
            ─▶ OperatorMode       accounts that JWTs describe; None: no operators
            ─▶ Authenticator      who may connect, and as what

A reload calls `check` before anything is applied, `change`, then what checks the clients' logins
again, and at last `remove`. A change of one account touches neither the clients nor the messages of
another, except what it shared with it. A removed account keeps its files.

Source: nats-server's `configureAccounts` (server/server.go) and `reloadAuthorization`
(server/reload.go).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.auth import Authenticator
from natsd.clients import Client
from natsd.config import Options
from natsd.config.trace_options import MsgTraceOptions
from natsd.core.network import Reactor
from natsd.core.reasons import ClosedReason
from natsd.server.jetstream import JetStreamPart
from natsd.server.login import make_authenticator
from natsd.version import NATS_VERSION

if TYPE_CHECKING:
    from natsd.accounts.account_links import AccountLinks
    from natsd.auth.callout.service import AuthService, ServerKeys
    from natsd.config.account_options import AccountOptions
    from natsd.server.operator_mode import OperatorMode


class AccountsHost(Protocol):
    """The part of the server that its accounts and logins use."""

    id: str
    name: str
    options: Options
    reactor: Reactor
    clients: dict[int, Client]

    def describe(self) -> dict[str, object]:
        """Return the server's fields in a message that it publishes about itself."""
        ...

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""
        ...

    @property
    def cluster_name(self) -> str:
        """Name of the server's cluster; empty: it is in none, or its name is not known yet."""
        ...

    def take_stranger(self, name: str) -> Account | None:
        """Return an account of which other servers told, and that is created now; None: none."""
        ...


class AccountsPart:
    """The accounts and logins of one server, from `build` on."""

    accounts: AccountDirectory
    authenticator: Authenticator

    def __init__(
        self,
        host: AccountsHost,
        jetstream: JetStreamPart,
        keys: "ServerKeys | None",
        authenticator: Authenticator | None,
    ) -> None:
        """Build nothing yet; `authenticator` decides over logins in place of the settings.

        `keys` None: they are made when they are needed.
        """
        self._host = host
        self._jetstream = jetstream
        self._keys = keys
        self._given = authenticator
        self._decided_before: Authenticator | None = None
        self.links: AccountLinks | None = None
        self.operator: OperatorMode | None = None

    @property
    def xkey(self) -> str:
        """Public key with which auth services encrypt their answers; empty: none is needed."""
        callout = self._host.options.authorization.auth_callout
        if self._keys is None or (callout is None and self.operator is None):
            return ""
        return self._keys.xkey.public

    # ---- the start

    def build(self) -> None:
        """Create the accounts of the host's settings. Raises OptionsError."""
        options = self._host.options
        self.operator = self.links = None
        if self._given is None and (options.operators or options.trusted_keys):
            self.operator = self._make_operator_mode()
            self._jetstream.settings_of = self.operator.settings_of
        system = self.operator and self.operator.trust.system_account
        self.accounts = AccountDirectory(
            self.make_account,
            system=system or options.system_account,
            has_system=not options.no_system_account,
        )
        for name in options.accounts:
            self.accounts.add(name)
        self._check_sharing(options)
        self._share(options)
        self.prepare_login(options)()

    def make_account(self, name: str, is_system: bool) -> Account:
        """Return a new account as the settings say."""
        options = self._host.options
        configured = options.accounts.get(name)
        settings = MsgTraceOptions() if configured is None else configured.msg_trace
        account = self._host.take_stranger(name) or self.make_stranger(name)
        account.msg_trace = settings if settings.dest else None
        account.limits = None if configured is None else configured.limits
        account.is_system = is_system
        account.describe(configured)
        return account

    def make_stranger(self, name: str) -> Account:
        """Return a new account that is not one of the directory yet."""
        is_cached = not self._host.options.disable_sublist_cache
        return Account(name, self._host.reactor, sublist_cache=is_cached)

    def _make_operator_mode(self) -> "OperatorMode":
        from natsd.server.operator_mode import OperatorMode

        return OperatorMode(
            self._host.options,
            self,
            self._server_keys(),
            server_fields=self._callout_fields(),
            other_servers=lambda: 0,
        )

    def _server_keys(self) -> "ServerKeys":
        if self._keys is None:
            from natsd.auth.callout.service import ServerKeys

            self._keys = ServerKeys.create()
        return self._keys

    def _callout_fields(self) -> dict[str, object]:
        """Return what an auth service is told of this server."""
        host = self._host
        return {"name": host.name, "host": host.options.host, "version": NATS_VERSION}

    # ---- logins

    def prepare_login(self, options: Options) -> Callable[[], None]:
        """Return what makes the credentials of the options those that are accepted.

        An authenticator that the server was given stays. Raises OptionsError.
        """
        login = self._given or make_authenticator(
            options,
            self.accounts,
            self._decided_before,
            operator=self.operator,
            ask=self._auth_service(options),
        )

        def accept() -> None:
            self.authenticator = self._decided_before = login

        return accept

    def _auth_service(self, options: Options) -> "AuthService | None":
        """Return the requests to the auth callout of the settings; None: they have none."""
        if options.authorization.auth_callout is None:
            return None
        from natsd.auth.callout.service import AuthService

        timeout_s = options.authorization.timeout.total_seconds()
        return AuthService(
            self._server_keys(), self._callout_fields(), timeout_s, self._host.now_ns
        )

    # ---- accounts that JWTs describe

    @property
    def id(self) -> str:
        """The server's id."""
        return self._host.id

    def describe(self) -> dict[str, object]:
        """Return the server's fields in a message that it publishes about itself."""
        return self._host.describe()

    def apply_account(
        self, name: str, options: "AccountOptions", *, jwt: str, name_in_jwt: str
    ) -> None:
        """Create or change an account, as its settings say; the rest is for monitoring."""
        account = self._apply_settings(name, options)
        account.describe(options, jwt, name_in_jwt)
        self._jetstream.configure_account(account)
        domain = self._host.options.default_js_domain.get(name, "")
        if domain:
            from natsd.config.default_domains import with_default_domains

            options = with_default_domains({name: options}, {name: domain})[name]
        self._link({name: options})

    def disable_account(self, name: str) -> None:
        """End the streams, exports and imports of an account that was deleted."""
        if self.links is not None:
            self.links.remove([name])
        account = self.accounts.get(name)
        if account is not None:
            self._jetstream.remove_account(account)

    def clients_of(self, account: str) -> list[Client]:
        """Return the connected clients of an account."""
        return [each for each in self._host.clients.values() if each.account_name == account]

    # ---- a reload

    def check(self, options: Options) -> None:
        """Check what accounts share, and what they may store together. Raises OptionsError."""
        self._check_sharing(options)
        self._jetstream.check(options)

    def change(self, before: Options) -> None:
        """Create and change accounts, and what they share, as the host's settings say now.

        Their streams follow when `JetStreamPart.renew` is called.
        """
        for name, options in self._host.options.accounts.items():
            if before.accounts.get(name) != options:
                self._apply_settings(name, options)
                self._apply_limits(name, options)
        for name in self._gone(before):
            if self._is_permanent(name):
                from natsd.config.account_options import AccountOptions

                self._apply_settings(name, AccountOptions())
        self._share(self._host.options)

    def remove(self, before: Options) -> None:
        """Remove the accounts that are gone, and close the clients that are left in them."""
        gone = [name for name in self._gone(before) if not self._is_permanent(name)]
        for name in gone:
            for client in self.clients_of(name):
                client.close(ClosedReason.MISSING_ACCOUNT)
            self._jetstream.remove_account(self.accounts[name])
            self.accounts.remove(name)
        if self.links is not None and gone:
            self.links.remove(gone)

    def _gone(self, before: Options) -> list[str]:
        """Return the names of accounts that the settings do not have any more."""
        now = self._host.options.accounts
        return [name for name in before.accounts if name not in now and name in self.accounts]

    def _is_permanent(self, name: str) -> bool:
        return name in self._permanent_names

    @property
    def _permanent_names(self) -> tuple[str, ...]:
        """Names of the accounts that exist without any settings."""
        permanent = (self.accounts.default, self.accounts.system)
        return tuple(account.name for account in permanent if account.name in self.accounts)

    def _apply_settings(self, name: str, options: "AccountOptions") -> Account:
        """Create or change an account, except for its streams and what it shares."""
        account = self.accounts.add(name)
        account.limits = options.limits
        account.msg_trace = options.msg_trace if options.msg_trace.dest else None
        account.describe(options)
        return account

    def _apply_limits(self, name: str, options: "AccountOptions") -> None:
        """Apply an account's limits to its clients; the newest ones beyond them are closed."""
        clients = self.clients_of(name)
        most = options.limits.max_connections
        for client in clients:
            client.apply_account_limits()
        for client in clients[most:] if most >= 0 else []:
            client.account_full()

    # ---- what accounts share

    def _check_sharing(self, options: Options) -> None:
        """Check what accounts share, and the subject mappings. Raises OptionsError."""
        if options.shares:
            from natsd.server.sharing import check_sharing

            check_sharing(options)

    def _share(self, options: Options) -> None:
        """Put what the accounts of the settings share in force."""
        if options.shares or self.links is not None:
            from natsd.config.account_options import AccountOptions
            from natsd.server.sharing import shared_accounts

            accounts = dict(shared_accounts(options))
            if self.operator is None:  # else JWTs say what they share
                for name in self._permanent_names:
                    accounts.setdefault(name, AccountOptions())
            self._link(accounts)

    def _link(self, accounts: "Mapping[str, AccountOptions]") -> None:
        """Put what these accounts share in force; do nothing as long as no account shares."""
        if self.links is None:
            if not any(each.shares for each in accounts.values()):
                return
            from natsd.server.sharing import make_links

            self.links = make_links(self._host, self.accounts, self.operator)
        self.links.configure(accounts)
