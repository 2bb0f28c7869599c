"""The server's part in a cluster: built if the settings have a `cluster` with a port.

- Without one, natsd.cluster is not imported.
- Peers may have accounts that this server does not have, or not yet: such an account is kept aside
  (`_strangers`) with the peers' interest in it, so that nothing is lost if a reload or a JWT
  creates it later. Nobody is in it until then.
- Clients are told of the other servers from the first one on.
"""

import functools
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.accounts.directory import is_account_name
from natsd.clients.listener import host_port
from natsd.config import Options, OptionsError
from natsd.core.network import Reactor
from natsd.core.quoting import quoted
from natsd.server.files import UNSPECIFIED
from natsd.server.info import Topology

if TYPE_CHECKING:
    from datetime import datetime

    from natsd.accounts.account_links import AccountLinks
    from natsd.clients.transport import Transports
    from natsd.cluster.cluster import Cluster
    from natsd.cluster.service import RouteService
    from natsd.config.cluster_options import ClusterOptions

_logger = logging.getLogger("natsd.server")

STRANGERS_MAX: Final = 65_536
"""Accounts of peers that are kept aside."""


class ClusteredServer(Protocol):
    """The parts of a server that its routes use."""

    options: Options
    id: str
    name: str
    reactor: Reactor
    accounts: AccountDirectory
    client_port: int

    @property
    def transports(self) -> "Transports | None":
        """What serves connections where there is no poller; None: the poller does."""

    def describe(self) -> dict[str, object]:
        """Return the server's members in a message about it, with a new sequence number."""

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""

    @property
    def links(self) -> "AccountLinks | None":
        """What accounts share; None: nothing."""

    def next_cid(self) -> int:
        """Return the number of a new connection."""

    def renew_info(self) -> None:
        """Send clients INFO if it has changed."""


class ClusterPart:
    """The cluster of one server, if it is part of one."""

    def __init__(self, server: ClusteredServer, make_account: Callable[[str], Account]) -> None:
        """Build nothing yet; `make_account` creates accounts that are kept aside."""
        self._server = server
        self._make_account = make_account
        self._strangers: dict[str, Account] = {}
        self._has_met = False
        self.told = Topology()  # what clients were told last
        self._client_urls: tuple[str, ...] | None = None
        self._before: ClusterOptions | None = None  # settings that are not in force any more
        self.service: RouteService | None = None

    # ---- life

    def listen(self) -> None:
        """Bind the port for routes, if there is one. Raises ListenError and OptionsError."""
        if not self._server.options.has_cluster:
            return
        from natsd.cluster.service import RouteService  # few servers are part of a cluster

        self._has_met, self._client_urls = False, None
        self.service = RouteService(self)
        self.service.listen()

    def start(self) -> None:
        """Accept and dial routes; called when clients are accepted."""
        if self.service is not None:
            self.service.start()

    def enter_lame_duck(self) -> None:
        """Tell the other servers that this one takes no more clients."""
        if self.service is not None:
            self.service.enter_lame_duck()

    async def close(self) -> None:
        """End all routes."""
        if self.service is not None:
            await self.service.close()
            self.service = None
        self._strangers.clear()

    @property
    def cluster(self) -> "Cluster | None":
        """The cluster as this server sees it; None: it is in none."""
        return None if self.service is None else self.service.cluster

    @property
    def certificate_end(self) -> "datetime | None":
        """When the certificate for routes ends; None: they have no TLS."""
        return None if self.service is None else self.service.certificate_end

    # ---- a reload

    def prepare(self, options: Options) -> Callable[[], None]:
        """Return what makes new routes use the certificates as they are now.

        Raises OptionsError: a certificate cannot be used, or an account is missing.
        """
        service, after = self.service, options.cluster
        if service is None or after is None:
            return lambda: None
        for name in after.accounts:
            is_new = name not in service.cluster.options.accounts
            if is_new and name not in options.accounts and name not in self._server.accounts:
                raise OptionsError(
                    f"unable to add account {quoted(name)} to the list of dedicated routes: "
                    "account missing"
                )
        before = service.cluster.options
        commit = service.prepare(after)

        def change() -> None:
            self._before = self._before or before
            commit()

        return change

    def apply(self) -> None:
        """Apply the changed settings of the cluster."""
        if self.service is not None and self._before is not None:
            before, self._before = self._before, None
            self.service.apply(before)

    def apply_limits(self) -> None:
        """Apply changed settings of connections that routes share with clients."""
        if self.service is not None:
            self.service.apply_limits()

    # ---- for the INFO to clients

    @property
    def name(self) -> str:
        """Name of the cluster; empty: it is not known yet."""
        if self.cluster is not None:
            return self.cluster.name
        configured = self._server.options.cluster
        return "" if configured is None else configured.name

    def expected_servers(self) -> int:
        """Return the servers of the cluster that the settings name, this one included.

        They are two at least: a server without routes waits for others, which dial it.
        """
        cluster, configured = self.cluster, self._server.options.cluster
        if cluster is None or configured is None:
            return 2
        places = {address for url in configured.routes for address in _addresses_of(url)[:1]}
        return max(len(places.difference(cluster.own_addresses)) + 1, 2)

    def topology(self) -> Topology:
        """Return what clients are told; addresses only after another server was met."""
        self._client_urls = None  # a reload may have changed them
        self.told = Topology(self.name)
        if self.cluster is not None and not self.cluster.options.no_advertise:
            others = self.cluster.connect_urls
            self._has_met |= bool(others)
            urls = (*self.client_urls, *others) if self._has_met else ()
            self.told = Topology(self.name, urls, others)
        return self.told

    # ---- for routes

    @property
    def options(self) -> Options:
        """The settings of the server."""
        return self._server.options

    @property
    def id(self) -> str:
        """The id of the server."""
        return self._server.id

    @property
    def server_name(self) -> str:
        """The name of the server."""
        return self._server.name

    @property
    def reactor(self) -> Reactor:
        """What reads and sends."""
        return self._server.reactor

    @property
    def accounts(self) -> AccountDirectory:
        """The accounts of the server."""
        return self._server.accounts

    @property
    def transports(self) -> "Transports | None":
        """What serves connections where there is no poller; None: the poller does."""
        return self._server.transports

    def describe(self) -> dict[str, object]:
        """Return the server's members in a message about it, with a new sequence number."""
        return self._server.describe()

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""
        return self._server.now_ns()

    def next_cid(self) -> int:
        """Return the number of a new connection."""
        return self._server.next_cid()

    @property
    def client_urls(self) -> tuple[str, ...]:
        """The addresses at which clients reach this server."""
        if self._client_urls is None:
            self._client_urls = tuple(self._find_client_urls())
        return self._client_urls

    def _find_client_urls(self) -> list[str]:
        options, port = self._server.options, self._server.client_port
        if options.client_advertise:
            from natsd.server.info import advertised

            return [host_port(*advertised(options, port))]
        if options.host not in UNSPECIFIED:
            return [host_port(options.host, port)]
        found = [
            host_port(address, port)
            for address in self.local_addresses()
            if _is_global(address) and (options.host != "0.0.0.0" or ":" not in address)
        ]
        if not found:
            _logger.error('Address "%s" can not be resolved properly', options.host)
        return found

    def local_addresses(self) -> Collection[str]:
        """Return the IP addresses of this machine."""
        from natsd.server.interfaces import local_addresses

        return local_addresses()

    def topology_changed(self) -> None:
        """Tell clients of other servers that came or left, or of the name of the cluster."""
        self._server.renew_info()
        if self._server.links is not None:
            self._server.links.move_to_cluster(self.name)

    def find_account(self, name: str) -> Account | None:
        """Return the account of which a peer tells; None: it cannot be an account."""
        account = self._server.accounts.find(name) or self._strangers.get(name)
        if account is None and is_account_name(name) and len(self._strangers) < STRANGERS_MAX:
            account = self._strangers[name] = self._make_account(name)
        return account

    def take_stranger(self, name: str) -> Account | None:
        """Return an account that was kept aside, because it is created now; None: there is none."""
        return self._strangers.pop(name, None)


@functools.cache
def _addresses_of(url: str) -> list[tuple[str, int]]:
    """Return the IP addresses of a route; its name, if they cannot be found out now."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [(host, port)]
    return [(str(each[4][0]), int(each[4][1])) for each in found]


def _is_global(address: str) -> bool:
    """Return whether an address is one that other machines may reach."""
    import ipaddress  # only servers of a cluster need it

    ip = ipaddress.ip_address(address)
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified)
