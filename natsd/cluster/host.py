"""The part of the server that its routes use."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.config import Options
from natsd.core.network import Reactor

if TYPE_CHECKING:
    from natsd.clients.transport import Transports


class ClusterHost(Protocol):
    """A server that is part of a cluster."""

    @property
    def options(self) -> Options:
        """The settings of the server."""

    @property
    def id(self) -> str:
        """The id of the server."""

    @property
    def server_name(self) -> str:
        """The name of the server."""

    @property
    def reactor(self) -> Reactor:
        """What reads and sends."""

    @property
    def accounts(self) -> AccountDirectory:
        """The accounts of the server."""

    @property
    def transports(self) -> "Transports | None":
        """What serves connections where there is no poller; None: the poller does."""

    @property
    def client_urls(self) -> tuple[str, ...]:
        """The addresses at which clients reach this server."""

    def describe(self) -> dict[str, object]:
        """Return the server's members in a message about it, with a new sequence number."""

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""

    def next_cid(self) -> int:
        """Return the number of a new connection."""

    def local_addresses(self) -> Collection[str]:
        """Return the IP addresses of this machine."""

    def find_account(self, name: str) -> Account | None:
        """Return the account of which a peer tells; None: this server does not have it."""

    def topology_changed(self) -> None:
        """Tell clients of other servers that came or left, or of the name of the cluster."""
