"""What a test asks a running server; a request crosses to the server's process as it is."""

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.testing.connection import Connection, connections_of
from natsd.testing.launch import Launch, reload_server

if TYPE_CHECKING:
    from natsd.server import Server

API_INFO: Final = "$JS.API.INFO"

Request = Callable[["Server"], Coroutine[Any, Any, Any]]
"""A request runs on the server's loop; its result and its exceptions go to the test."""


@dataclass(frozen=True, slots=True)
class ListConnections:
    """The request for the open client connections."""

    async def __call__(self, server: "Server") -> list[Connection]:
        """Return them."""
        return connections_of(server)


@dataclass(frozen=True, slots=True)
class CountRoutes:
    """The request for the connections to other servers."""

    async def __call__(self, server: "Server") -> dict[str, int]:
        """Return how many there are, by the name of the other server."""
        if server.cluster is None:
            return {}
        return Counter(route.remote_name for route in server.cluster.table)


@dataclass(frozen=True, slots=True)
class MetaLeader:
    """The question who leads JetStream of the cluster."""

    async def __call__(self, server: "Server") -> tuple[str, int]:
        """Return the leader, empty if there is none, and how many servers each request reaches."""
        jetstream = server.jetstream
        if jetstream is None or jetstream.cluster is None:
            return "", 0
        servers = jetstream.cluster.assignments.servers
        online = jetstream.cluster.peers.online.items()
        members = [name for name, each in online if each.group and name in servers]
        reached = [
            len(each.account.sublist.match(API_INFO).plain) for each in jetstream.accounts.values()
        ]
        return jetstream.cluster.meta.leader, min([1 + len(members), *reached])


@dataclass(frozen=True, slots=True)
class IsStreamLeader:
    """The question whether a server leads a stream."""

    stream: str
    account: str

    async def __call__(self, server: "Server") -> bool:
        """Return whether it does."""
        jetstream = server.jetstream
        if jetstream is None or jetstream.cluster is None:
            return False
        local = jetstream.cluster.streams.find(self.account, self.stream)
        return local is not None and local.is_led


@dataclass(frozen=True, slots=True)
class HasInterest:
    """The question whether a message would reach a subscription of any server."""

    subject: str
    account: str

    async def __call__(self, server: "Server") -> bool:
        """Return whether there is such a subscription in the account."""
        account = server.accounts.find(self.account)
        return account is not None and account.sublist.has_interest(self.subject)


@dataclass(frozen=True, slots=True)
class Reload:
    """The request for other settings."""

    launch: Launch

    async def __call__(self, server: "Server") -> list[str]:
        """Apply the settings; return the changes as texts. Raises OptionsError or ReloadError."""
        return await reload_server(server, self.launch)
