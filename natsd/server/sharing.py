"""What accounts share, from the server's options: exports, imports, subject mappings.

Imported only if an account has any of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.accounts.account_links import AccountLinks
from natsd.clients.requestor import Requestors
from natsd.config import Options
from natsd.config.account_options import AccountOptions
from natsd.core.network import Reactor

if TYPE_CHECKING:
    from natsd.clients import Client


class SharingHost(Protocol):
    """The part of the server that links its accounts."""

    name: str
    options: Options
    reactor: Reactor
    accounts: AccountDirectory
    clients: "dict[int, Client]"


def make_links(server: SharingHost) -> AccountLinks:
    """Return the links between the accounts of a server, none of them in force yet."""

    def changed(account: Account) -> None:
        for client in server.clients.values():
            if client.account is account:
                client.account_changed()

    return AccountLinks(
        server.accounts, server.reactor, Requestors(server.name).describe, changed=changed
    )


def shared_options(options: Options, default: str) -> Mapping[str, AccountOptions]:
    """Return the settings of all accounts; the mappings at the top are those of `default`."""
    accounts = dict(options.accounts)
    if options.mappings:
        own = accounts.get(default, AccountOptions())
        accounts[default] = replace(own, mappings=options.mappings)
    return accounts
