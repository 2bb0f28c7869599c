"""The cluster as one server sees it: its name, its settings, its routes, and what they share.

- `routes` has every open connection, `table` those whose handshake is over.
- Background work ends with `close`, after which nothing is dialed.

Monitoring reads this. What happens with connections is in service.py and handshake.py.
"""

import asyncio
import binascii
import logging
import os
from collections.abc import Awaitable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final

from natsd.auth.passwords import Passwords
from natsd.cluster.client_urls import ClientUrls
from natsd.cluster.cluster_name import ClusterName, NameVerdict
from natsd.cluster.compression_mode import AUTO, level_for, mode_of
from natsd.cluster.dialer import Connected, Dial, Dialer
from natsd.cluster.host import ClusterHost
from natsd.cluster.limits import compiled_rules, set_limits
from natsd.cluster.peer_info import PeerConnect, PeerInfo
from natsd.cluster.route import Route
from natsd.cluster.route_table import RouteTable
from natsd.cluster.targets import Target
from natsd.config.cluster_options import ClusterOptions
from natsd.core.network import Settings
from natsd.core.reasons import ClosedReason

if TYPE_CHECKING:
    from natsd.config.tls_options import TlsOptions

logger = logging.getLogger("natsd.server")

DEFAULT_HOST: Final = "0.0.0.0"
NAME_BYTES: Final = 16


class Cluster:
    """A server's part in its cluster."""

    def __init__(self, host: ClusterHost, connected: Connected) -> None:
        """Know no peer yet; `connected` is called with each connection that was dialed."""
        self.host = host
        options = self.options
        drawn = binascii.hexlify(os.urandom(NAME_BYTES)).decode().upper()
        self.naming = ClusterName(options.name or drawn, is_dynamic=not options.name)
        self.settings = Settings()
        set_limits(self.settings, host.options, options)
        self.routes: dict[int, Route] = {}
        self.accounts = self.dedicated_names(options)  # those that the settings give own routes
        self.table: RouteTable[Route] = RouteTable(host.id, options.pool_size, self.accounts)
        self.urls = ClientUrls()
        self.port = 0
        self.own_addresses: Collection[tuple[str, int]] = ()
        self.targets = self.targets_of(options)
        self.is_closing = False
        self._passwords = Passwords()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dialer = Dialer(asyncio.get_running_loop(), self, connected)

    async def close(self) -> None:
        """End all attempts to connect, and background work."""
        self.is_closing = True
        await self._dialer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run work in the background; it ends with the cluster."""
        task = asyncio.get_running_loop().create_task(work, name="natsd-cluster")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- settings

    @property
    def options(self) -> ClusterOptions:
        """The settings as they are now."""
        options = self.host.options.cluster
        assert options is not None
        return options

    @property
    def address(self) -> str:
        """The address on which the server listens for routes."""
        return self.options.host or DEFAULT_HOST

    @property
    def needs_login(self) -> bool:
        """Whether peers that connect must log in."""
        tls = self.options.tls
        return bool(self.options.authorization.user) or _is_by_certificate(tls)

    def dedicated_names(self, options: ClusterOptions) -> tuple[str, ...]:
        """Return the accounts with dedicated routes, as the settings say."""
        accounts = self.host.accounts
        if options.pool_size < 0 or not accounts.has_system:
            return options.accounts
        return tuple(dict.fromkeys((*options.accounts, accounts.system.name)))

    @staticmethod
    def targets_of(options: ClusterOptions) -> tuple[Target, ...]:
        """Return the servers that the settings name."""
        return tuple(Target.from_url(url, is_configured=True) for url in options.routes)

    # ---- the name

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self.naming.name

    def meet_name(self, name: str, *, is_dynamic: bool, kept_id: str) -> NameVerdict:
        """Compare the name of a peer's cluster with ours, which may become that of the peer.

        Then all routes but those to the peer `kept_id` are closed: the others have the old name.
        """
        verdict = self.naming.meet(name, is_dynamic=is_dynamic)
        if verdict is NameVerdict.ADOPTED:
            self._name_changed(kept_id)
        return verdict

    def rename(self, name: str) -> None:
        """Use another configured name."""
        self.naming = ClusterName(name, is_dynamic=False)
        self._name_changed()

    def _name_changed(self, kept_id: str = "") -> None:
        """Close the routes of the old name, and tell clients the new one."""
        for route in list(self.table):
            if route.remote_id != kept_id:
                route.close(ClosedReason.CLUSTER_NAME_CONFLICT)
        logger.info("Cluster name updated to %s", self.name)
        self.host.topology_changed()

    # ---- dialing

    def dial(self, dial: Dial, *, after_loss: bool = False) -> None:
        """Connect in the background; `after_loss`: after a pause."""
        if not self.is_closing:
            self._dialer.dial(dial, after_loss=after_loss)

    def is_dialing(self, dial: Dial) -> bool:
        """Return whether there are attempts to make such a connection."""
        return self._dialer.is_under_way(dial)

    def solicit(self, targets: Collection[Target], *, only: Collection[str] = ()) -> None:
        """Dial configured servers: for the pool, and for each account with dedicated routes.

        With `only`, dial for these accounts alone.
        """
        for target in targets:
            if not only:
                self.dial(Dial(target))
            for account in only or self.table.dedicated:
                self.dial(Dial(target, account))

    @property
    def retries(self) -> int:
        """Attempts after the first one, for servers that another one told of."""
        return self.options.connect_retries

    @property
    def has_backoff(self) -> bool:
        """Whether pauses between attempts grow."""
        return self.options.connect_backoff

    @property
    def connect_reports(self) -> int:
        """Every such attempt to a new server is logged."""
        return self.host.options.connect_error_reports

    @property
    def reconnect_reports(self) -> int:
        """Every such attempt to a lost server is logged."""
        return self.host.options.reconnect_error_reports

    def is_wanted(self, dial: Dial) -> bool:
        """Return whether a connection is still to be made."""
        if self.is_closing or (dial.account and dial.account not in self.table.dedicated):
            return False
        return not dial.target.is_configured or dial.target in self.targets

    # ---- logins and permissions

    def check_login(self, route: Route, connect: PeerConnect) -> bool | Awaitable[bool]:
        """Return whether a peer that has connected may log in."""
        login, tls = self.options.authorization, self.options.tls
        if tls is not None and _is_by_certificate(tls):
            return self._is_certified(route, tls)
        if not login.user:
            return True
        if not self._passwords.same(login.user, connect.user):
            return False
        return self._passwords.check(login.password, connect.password, route.ip)

    def _is_certified(self, route: Route, tls: "TlsOptions") -> bool:
        """Return whether the peer's certificate names a configured host or our user."""
        from natsd.cluster.certificates import names_host_of, names_user

        certificates = route.peer_certificates()
        if not certificates:
            return False
        hosts = (target.host for target in self.targets)
        if tls.verify_cert_and_check_known_urls and names_host_of(certificates[0], hosts):
            return True
        return tls.verify_and_map and names_user(certificates[0], self.options.authorization.user)

    def apply_permissions(self, route: Route) -> None:
        """Apply what may be imported and exported, as the settings say."""
        route.set_permissions(compiled_rules(self.options.rules))

    # ---- compression

    def compress(self, route: Route) -> None:
        """Compress what follows in both directions."""
        from natsd.cluster.compression import CompressionFraming

        route.compressor = CompressionFraming(route.endpoint, route.compression)
        route.endpoint.frame_rest(route.compressor)

    def adapt_compression(self, route: Route) -> None:
        """Give a compressed route the level for its round trip time, if the mode is `s2_auto`."""
        options = self.options.compression
        if route.compressor is not None and mode_of(options) == AUTO:
            self.set_level(route, level_for(route.rtt_ns, options))

    def set_level(self, route: Route, level: str) -> None:
        """Compress with another level from now on."""
        if route.compressor is not None:
            route.compression = route.compressor.level = level

    # ---- for monitoring

    @property
    def pool_size(self) -> int:
        """Connections to each peer; 0: there is no pooling."""
        return max(self.table.pool_size, 0)

    @property
    def peers(self) -> list[PeerInfo]:
        """The other servers to which there is a route of the pool."""
        return [route.remote for route in self.table.one_of_each_peer() if route.remote]

    @property
    def connect_urls(self) -> tuple[str, ...]:
        """The addresses at which clients reach the other servers."""
        return () if self.options.no_advertise else tuple(self.urls)


def _is_by_certificate(tls: "TlsOptions | None") -> bool:
    """Return whether the certificate of a peer is its login."""
    return tls is not None and (tls.verify_and_map or tls.verify_cert_and_check_known_urls)
