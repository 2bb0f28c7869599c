"""The members of a cluster: registers their routes, passes on news, and misses those that end.

Source: nats-server's `addRoute`, `removeRoute`, `processImplicitRoute` and
`forwardNewRouteInfoToKnownServers` (server/route.go), `reconnect` (server/client.go).
"""

import logging

from natsd.accounts import Account
from natsd.clients.listener import host_port
from natsd.cluster import gossip
from natsd.cluster.carriers import Carriers
from natsd.cluster.cluster import Cluster
from natsd.cluster.dialer import Dial
from natsd.cluster.own_info import send_info
from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.route import Route
from natsd.cluster.route_table import RouteRefused, upgrade
from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason

logger = logging.getLogger("natsd.server")


class Membership:
    """What becomes of routes from the end of their handshake on."""

    def __init__(self, cluster: Cluster, carriers: Carriers) -> None:
        self._cluster = cluster
        self._carriers = carriers
        self._urls: dict[str, tuple[str, ...]] = {}  # of each peer, as clients are told

    # ---- a route comes

    def register(self, route: Route, info: PeerInfo, *, sends_info: bool) -> None:
        """Give a route its place; with `sends_info` our INFO is due. Close it if there is none."""
        cluster = self._cluster
        route.remote, route.remote_id = info, info.server_id
        self._complete(route, info)
        account = self._account_of(route)
        if route.reason is not None:
            return
        try:
            registration = cluster.table.register(route, info, is_told=not sends_info)
        except RouteRefused as refused:
            self._refuse(route, refused)
            return
        if sends_info:
            index = 0 if route.account_name else route.pool_index
            send_info(cluster, route, route.compression, index)
        route.begin(account)
        if registration.replaced is not None:
            registration.replaced.close(ClosedReason.DUPLICATE_ROUTE)
        if registration.is_first:
            self._announce(route, info)
        self._carriers.load(route)
        if registration.dials_next:
            route.ping()
        of_account = f" for account {quoted(route.account_name)}" if route.account_name else ""
        route.debug(f"Registering remote route {quoted(info.server_id)}{of_account}")

    def _complete(self, route: Route, info: PeerInfo) -> None:
        """Add to the INFO what follows from the connection."""
        if route.is_dialed:
            info.route_account = route.account_name
        else:
            route.account_name = info.route_account
        if not info.ip:
            info.ip = f"nats-route://{host_port(route.ip, info.port)}/"
        if route.target is None:
            login = self._cluster.options.authorization
            route.target = gossip.target_of(info, login.user, login.password)

    def _account_of(self, route: Route) -> Account | None:
        """Return the account of a dedicated route; close the route if there is none."""
        if not route.account_name:
            return None
        account = self._cluster.host.find_account(route.account_name)
        if account is None:
            name = quoted(route.account_name)
            route.refuse(
                f"Unable to lookup account {name}: account missing", ClosedReason.MISSING_ACCOUNT
            )
        return account

    def _refuse(self, route: Route, refused: RouteRefused) -> None:
        if str(refused):
            route.refuse(str(refused), refused.reason)
            return
        route.debug(f"Detected duplicate remote route {quoted(route.remote_id)}")
        route.close(refused.reason)

    def _announce(self, route: Route, info: PeerInfo) -> None:
        """Tell the other servers of a new peer, and clients of its URLs."""
        cluster = self._cluster
        if gossip.is_forwarded(
            info,
            route.gossip_mode,
            is_solicited=route.is_dialed_first,
            is_configured=route.is_configured,
        ):
            self._forward(route, info)
        if not route.account_name:
            self._urls[info.server_id] = info.connect_urls
            if cluster.urls.add(info.connect_urls):
                cluster.host.topology_changed()

    def _forward(self, route: Route, info: PeerInfo) -> None:
        """Tell each other peer, by its dedicated route if it has one, of a new route."""
        table = self._cluster.table
        told = {info.server_id}
        dedicated = table.dedicated.get(route.account_name, {}) if route.account_name else {}
        for other in (*dedicated.values(), *table.one_of_each_peer()):
            if other.remote_id in told or (route.account_name and other.has_no_pool):
                continue
            told.add(other.remote_id)
            mode = gossip.forwarded_mode(
                is_solicited=route.is_dialed_first,
                is_configured=route.is_configured,
                is_receiver_configured=other.is_configured,
            )
            other.send_protocol(gossip.gossip_line(info, mode))

    # ---- news

    def told_of(self, info: PeerInfo, by: Route) -> None:
        """Dial a server of which another one told, unless there is or will be a route to it."""
        cluster, account = self._cluster, info.route_account
        if info.server_id == cluster.host.id or self._is_known(info.server_id, account):
            return
        if gossip.is_among(info, cluster.targets):
            return
        login = cluster.options.authorization
        target = gossip.target_of(info, login.user, login.password)
        if target is None:
            logger.error("Error parsing URL from INFO: %s", quoted(info.ip))
            return
        cluster.dial(Dial(target, account, info.gossip_mode))
        if by.has_no_pool and not account:
            for name in cluster.accounts:
                cluster.dial(Dial(target, name, info.gossip_mode))

    def _is_known(self, server_id: str, account: str) -> bool:
        """Return whether no route to a server is needed, because it exists or is impossible."""
        table = self._cluster.table
        if not account:
            return server_id in table.pooled
        return table.pool_size <= 0 or server_id in table.dedicated.get(account, {})

    def peer_is_leaving(self, route: Route) -> None:
        """Tell clients that a peer in lame duck mode takes no more of them."""
        self._forget_urls(route.remote_id)

    def _forget_urls(self, server_id: str) -> None:
        """Tell clients that they do not reach a peer any more."""
        cluster = self._cluster
        if cluster.urls.remove(self._urls.pop(server_id, ())) and not cluster.is_closing:
            cluster.host.topology_changed()

    # ---- a pool is completed

    def complete_pool(self, route: Route) -> None:
        """Dial the next connection of a pool, after a PONG on one that this server has to dial."""
        cluster, target = self._cluster, route.target
        if (
            not route.is_solicited
            or not route.is_registered
            or route.account_name
            or route.has_no_pool
            or target is None
            or route.remote is None
        ):
            return
        size = max(cluster.table.pool_size, route.remote.route_pool_size)
        dial = Dial(target, gossip_mode=route.gossip_mode)
        if len(cluster.table.pooled.get(route.remote_id, ())) < size and not self._is_opening(dial):
            cluster.dial(dial)

    def _is_opening(self, dial: Dial) -> bool:
        """Return whether such a connection is being dialed, or its handshake is under way."""
        return self._cluster.is_dialing(dial) or any(
            not route.is_registered and route.is_dialed and route.target == dial.target
            for route in self._cluster.routes.values()
            if not route.account_name
        )

    # ---- a route ends

    def route_closed(self, route: Route) -> None:
        """Give up the place of a route, and dial it again if it is wanted."""
        cluster = self._cluster
        is_last = cluster.table.remove(route)
        if is_last:
            self._forget_urls(route.remote_id)
        for other in cluster.table.pooled.get(route.remote_id, {}).values():
            other.ping()  # the PONG completes the pool, should no attempt of ours or theirs do it
            break
        if cluster.is_closing or not route.must_reconnect:
            return
        if is_last and route.has_no_pool and route.is_configured and route.target is not None:
            for account in cluster.table.dedicated:
                cluster.dial(Dial(route.target, account, is_first=False), after_loss=True)
        if route.is_solicited or route.retries_implicit:
            self._reconnect(route)

    def _reconnect(self, route: Route) -> None:
        cluster, target = self._cluster, route.target
        if target is None:
            return
        others = cluster.table.pooled.get(route.remote_id)
        if route.remote_id == cluster.host.id:
            logger.debug('Detected route to self, ignoring "%s"', target)
        elif others and not route.account_name and cluster.table.pool_size < 0:
            for other in others.values():
                upgrade(other, route)
            logger.debug(
                "Not attempting reconnect for solicited route, already connected to %s",
                quoted(route.remote_id),
            )
        else:
            logger.debug('Attempting reconnect for solicited route "%s"', target)
            cluster.dial(Dial(target, route.account_name, is_first=False), after_loss=True)
