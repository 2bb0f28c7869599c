"""What accounts share, from the server's options: exports, imports, subject mappings.

Imported only if an account has any of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.accounts.account_links import AccountLinks
from natsd.accounts.import_rules import (
    Activation,
    CheckActivation,
    Export,
    Import,
    no_activation,
    sharing_errors,
)
from natsd.clients.requestor import Requestors
from natsd.config import Options
from natsd.config.account_names import GLOBAL
from natsd.config.account_options import AccountOptions
from natsd.config.default_domains import with_default_domains
from natsd.config.settings import raise_together
from natsd.config.sharing_options import StreamImport
from natsd.core.network import Reactor

if TYPE_CHECKING:
    from natsd.accounts.remote_latency import RemoteMeasures
    from natsd.clients import Client
    from natsd.server.operator_mode import OperatorMode


class SharingHost(Protocol):
    """The part of the server that links its accounts."""

    name: str
    options: Options
    reactor: Reactor
    clients: "dict[int, Client]"

    @property
    def cluster_name(self) -> str:
        """Name of the server's cluster; empty: it is in none, or its name is not known yet."""


def make_links(
    server: SharingHost, accounts: AccountDirectory, operator: "OperatorMode | None"
) -> AccountLinks:
    """Return the links between the accounts of a server, none of them in force yet."""

    def changed(account: Account) -> None:
        for client in server.clients.values():
            if client.account is account:
                client.account_changed()

    return AccountLinks(
        accounts,
        server.reactor,
        Requestors(server.name, lambda: server.cluster_name).describe,
        cluster=server.cluster_name,
        remote=_remote_measures(server, accounts),
        check_activation=no_activation if operator is None else _check_by(operator),
        changed=changed,
    )


def _remote_measures(server: SharingHost, accounts: AccountDirectory) -> "RemoteMeasures | None":
    """Return what knows the measures of other servers; None: there are none."""
    if not server.options.has_cluster or not accounts.has_system:
        return None
    from natsd.accounts.remote_latency import RemoteMeasures

    return RemoteMeasures(server.name, accounts.system)


def check_sharing(options: Options) -> None:
    """Check what accounts share, and the subject mappings. Raises OptionsError."""
    accounts = shared_accounts(options)
    errors = sharing_errors(accounts, has_system_account=not options.no_system_account)
    for error in errors:
        if options.mappings and error.path[:3] == ("accounts", GLOBAL, "mappings"):
            error.path = error.path[2:]  # they stand at the top of the file
    raise_together(errors)


def shared_accounts(options: Options) -> Mapping[str, AccountOptions]:
    """Return the settings of all accounts; mappings at the top are those of the default account."""
    accounts = dict(options.accounts)
    if options.mappings:
        own = accounts.get(GLOBAL, AccountOptions())
        accounts[GLOBAL] = replace(own, mappings=options.mappings)
    return with_default_domains(accounts, options.default_js_domain)


def _check_by(operator: "OperatorMode") -> CheckActivation:
    """Return what checks activation tokens against the exporters' JWTs."""

    def check(exporter: str, importer: str, given: Import, export: Export) -> Activation | None:
        kind = "stream" if isinstance(given, StreamImport) else "service"
        ends_ns = operator.activation_ends_ns(
            given.token, exporter, importer, given.subject, kind, export.revocations
        )
        return None if ends_ns is None else Activation(ends_ns)

    return check
