"""The server as monitoring sees it: it reads these attributes, and no others."""

from collections.abc import Iterable, Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from natsd.accounts import AccountDirectory
from natsd.auth import Authenticator
from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.config import Options
from natsd.core.network import Reactor, TrafficStats

if TYPE_CHECKING:
    from natsd.accounts.account_links import AccountLinks
    from natsd.clients.openings import Openings
    from natsd.cluster.cluster import Cluster
    from natsd.config.loaded import LoadedConfig
    from natsd.jetstream.jetstream import JetStream


class ObservedServer(Protocol):
    """The attributes of a server that monitoring reads."""

    @property
    def options(self) -> Options:
        """The server's configuration."""

    @property
    def config(self) -> "LoadedConfig | None":
        """The configuration file, if there is one."""

    @property
    def id(self) -> str:
        """The server's id, random and new with each start."""

    @property
    def name(self) -> str:
        """The server's name."""

    @property
    def start_time(self) -> datetime:
        """The time of the server's start."""

    @property
    def config_load_time(self) -> datetime:
        """The time at which the settings were loaded last."""

    @property
    def client_host(self) -> str:
        """The address that clients connect to."""

    @property
    def client_port(self) -> int:
        """The port that clients connect to."""

    @property
    def counters(self) -> TrafficStats:
        """The traffic of all connections so far."""

    @property
    def total_connections(self) -> int:
        """The number of connections that were ever accepted."""

    @property
    def clients(self) -> Mapping[int, Client]:
        """The open client connections, by connection id."""

    @property
    def closed_clients(self) -> Iterable[ClosedClient]:
        """The latest closed client connections."""

    @property
    def reactor(self) -> Reactor:
        """The part of the server that serves its clients."""

    @property
    def is_ready(self) -> bool:
        """Whether the server accepts connections."""

    @property
    def jetstream(self) -> "JetStream | None":
        """The JetStream of the server; None while it is not served."""

    @property
    def accounts(self) -> AccountDirectory:
        """The accounts, by name."""

    def describe(self) -> dict[str, Any]:
        """Return the server's members in a message about it, with a new sequence number."""

    def send_statsz(self) -> None:
        """Publish the load of the server in the system account, if somebody listens."""

    @property
    def config_digest(self) -> str:
        """The digest of the configuration file; empty: there is none."""

    @property
    def links(self) -> "AccountLinks | None":
        """What the accounts share; None: they share nothing."""

    @property
    def cluster(self) -> "Cluster | None":
        """The routes to the other servers; None: the server is in no cluster, or not running."""

    @property
    def cluster_name(self) -> str:
        """Name of the cluster; empty: the server is in none."""

    @property
    def cluster_certificate_end(self) -> datetime | None:
        """When the certificate for routes ends; None: they have no TLS."""

    @property
    def connect_urls(self) -> tuple[str, ...]:
        """The addresses that clients are told, of all servers; empty: none are told."""

    @property
    def known_servers(self) -> int:
        """How many other servers have told of themselves in the system account."""

    def servers_connected_to(self, account: str) -> int:
        """Return how many other servers have connections in an account."""

    @property
    def openings(self) -> "Openings | None":
        """What comes before the protocol of connections; None: nothing."""

    @property
    def authenticator(self) -> Authenticator:
        """The part of the server that decides over logins."""

    @property
    def http_requests(self) -> MutableMapping[str, int]:
        """The number of monitoring requests by HTTP so far, by endpoint."""

    @property
    def http_port(self) -> int:
        """The monitoring port; 0: there is none."""
