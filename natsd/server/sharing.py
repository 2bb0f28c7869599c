"""What accounts share, from the server's options: exports, imports, subject mappings.

Imported only if an account has any of them.
"""

from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.accounts.account_links import AccountLinks
from natsd.accounts.import_rules import Activation, CheckActivation, Export, Import, no_activation
from natsd.clients.requestor import Requestors
from natsd.config import Options
from natsd.config.shared_subjects import StreamImport
from natsd.core.network import Reactor

if TYPE_CHECKING:
    from natsd.clients import Client
    from natsd.server.operator_mode import OperatorMode


class SharingHost(Protocol):
    """The part of the server that links its accounts."""

    name: str
    options: Options
    reactor: Reactor
    accounts: AccountDirectory
    clients: "dict[int, Client]"
    operator: "OperatorMode | None"


def make_links(server: SharingHost) -> AccountLinks:
    """Return the links between the accounts of a server, none of them in force yet."""

    def changed(account: Account) -> None:
        for client in server.clients.values():
            if client.account is account:
                client.account_changed()

    return AccountLinks(
        server.accounts,
        server.reactor,
        Requestors(server.name).describe,
        check_activation=no_activation if server.operator is None else _check_by(server.operator),
        changed=changed,
    )


def _check_by(operator: "OperatorMode") -> CheckActivation:
    """Return what checks activation tokens against the exporters' JWTs."""

    def check(exporter: str, importer: str, given: Import, export: Export) -> Activation | None:
        kind = "stream" if isinstance(given, StreamImport) else "service"
        ends_ns = operator.activation_ends_ns(
            given.token, exporter, importer, given.subject, kind, export.revocations
        )
        return None if ends_ns is None else Activation(ends_ns)

    return check
