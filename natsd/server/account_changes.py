"""A reload of accounts: new ones, changed ones, and those that are gone.

    check_sharing(options)          before anything is applied: imports, exports and mappings
    change_accounts(server, before) new and changed accounts, what they share
    remove_accounts(server, before) accounts that are gone, after their clients lost their login

- A change of one account touches neither the clients nor the messages of another, except what it
  shared with it.
- A removed account keeps its files.

Source: nats-server's `reloadAuthorization` (server/reload.go).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import AccountDirectory
from natsd.clients import Client
from natsd.config import Options, OptionsError
from natsd.config.settings import raise_together
from natsd.core.reasons import ClosedReason

if TYPE_CHECKING:
    from natsd.accounts.account_links import AccountLinks
    from natsd.config.account_options import AccountOptions


class ServerWithAccounts(Protocol):
    """The part of the server that a change of accounts needs."""

    options: Options
    accounts: AccountDirectory
    clients: dict[int, Client]
    links: "AccountLinks | None"

    def apply_settings(self, name: str, options: "AccountOptions") -> object:
        """Create or change an account, except for what it shares."""
        ...

    def renew_links(self) -> None:
        """Put the imports, exports and mappings of the options in force."""
        ...

    def clients_of(self, account: str) -> list[Client]:
        """Return the connected clients of an account."""
        ...

    def remove_streams(self, account: str) -> None:
        """Disable JetStream of an account, whose files stay."""
        ...


def check_sharing(options: Options) -> None:
    """Check what accounts share, and the subject mappings. Raises OptionsError."""
    accounts = shared_accounts(options)
    if not any(each.shares for each in accounts.values()):
        return
    from natsd.accounts.import_rules import check_accounts

    errors = check_accounts(accounts, has_system_account=not options.no_system_account)
    raise_together([OptionsError(text, setting="accounts") for text in errors])


def shared_accounts(options: Options) -> "Mapping[str, AccountOptions]":
    """Return the settings of all accounts; mappings at the top are those of the default account."""
    accounts = dict(options.accounts)
    if options.mappings:
        from dataclasses import replace

        from natsd.config.account_names import GLOBAL
        from natsd.config.account_options import AccountOptions

        own = accounts.get(GLOBAL, AccountOptions())
        accounts[GLOBAL] = replace(own, mappings=options.mappings)
    return with_domains(accounts, options.default_js_domain)


def with_domains(
    accounts: "Mapping[str, AccountOptions]", domains: Mapping[str, str]
) -> "Mapping[str, AccountOptions]":
    """Return the settings with the mappings of accounts that have a default domain."""
    if not any(domains.values()):
        return accounts
    from natsd.config.default_domains import with_default_domains

    return with_default_domains(accounts, domains)


def change_accounts(server: ServerWithAccounts, before: Options) -> None:
    """Create and change accounts, and what they share, as the options say."""
    from natsd.config.account_options import AccountOptions

    for name, options in server.options.accounts.items():
        if before.accounts.get(name) != options:
            server.apply_settings(name, options)
            _apply_limits(server, name, options)
    for name in _gone(server, before):
        if server.accounts[name] in (server.accounts.default, server.accounts.system):
            server.apply_settings(name, AccountOptions())
    server.renew_links()


def _apply_limits(server: ServerWithAccounts, name: str, options: "AccountOptions") -> None:
    """Apply an account's limits to its clients; the newest ones beyond the limit are closed."""
    clients = server.clients_of(name)
    most = options.limits.max_connections
    for client in clients:
        client.apply_account_limits()
    for client in clients[most:] if most >= 0 else []:
        client.account_full()


def remove_accounts(server: ServerWithAccounts, before: Options) -> None:
    """Remove the accounts that are gone, with all that they share; close clients that are left."""
    gone = [
        name
        for name in _gone(server, before)
        if server.accounts[name] not in (server.accounts.default, server.accounts.system)
    ]
    for name in gone:
        for client in server.clients_of(name):
            client.close(ClosedReason.MISSING_ACCOUNT)
        server.remove_streams(name)
        server.accounts.remove(name)
    if server.links is not None and gone:
        server.links.remove(gone)


def _gone(server: ServerWithAccounts, before: Options) -> list[str]:
    """Return the names of accounts that the options do not have any more."""
    return [
        name
        for name in before.accounts
        if name not in server.options.accounts and name in server.accounts
    ]
