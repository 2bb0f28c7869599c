"""An API request as its handler gets it: account, subject, arguments, body and origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from natsd.accounts import Account
from natsd.core.network import Session
from natsd.jetstream.models.base import Model

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.meta_group.cluster import JetStreamCluster

B = TypeVar("B", bound=Model)


class NoBody(Model):
    """Empty body, for requests that have none."""


@dataclass(frozen=True, slots=True)
class Request(Generic[B]):
    """A request; its body has been read and checked against its model.

    `arguments` are the tokens of the subject at the route's wildcards; the last one holds all
    tokens that `>` matches. `origin` is the connection that sent the request; None: the server
    itself. `accounts` are all accounts that JetStream serves, by name. `requestor` is the system
    account if it sent the request for the account. `cluster`: what this server does in its cluster;
    None: it is in none.
    """

    account: "JetStreamAccount"
    subject: str
    arguments: tuple[str, ...]
    body: B
    accounts: "Mapping[str, JetStreamAccount]"
    origin: Session | None = None
    headers: bytes = b""
    requestor: Account | None = None
    cluster: "JetStreamCluster | None" = None

    @property
    def transfer_account(self) -> Account:
        """The account in which the subjects of a snapshot's or restore's chunks are."""
        return self.requestor or self.account.account

    @property
    def client(self) -> Mapping[str, object]:
        """The requesting client as advisories describe it."""
        return self.account.jetstream.client_info(self.origin, self.account.name, self.headers)

    @property
    def stream(self) -> str:
        """Name of the stream: the first argument."""
        return self.arguments[0]

    @property
    def consumer(self) -> str:
        """Name of the consumer: the second argument."""
        return self.arguments[1]
