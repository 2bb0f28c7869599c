"""Changes of the settings of a running cluster.

    name          adopted; routes of the old name are closed
    routes        removed ones are closed (Route Removed), added ones are dialed
    pool_size     the pool is closed and dialed anew
    accounts      their routes are closed, or dialed when the peers know (dedicated.py)
    permissions   applied to all routes, and told to the peers
    compression   another level at once; on and off with new connections
    authorization accepted routes whose credentials are not accepted any more are closed
    tls, times    as for new connections; pinned certificates and times at once

Source: nats-server's `clusterOption.Apply`, `routesOption.Apply`, `reloadClusterPermissions` and
`reloadClusterPoolAndAccounts` (server/reload.go).
"""

import logging
from collections.abc import Collection

from natsd.cluster import compression_mode
from natsd.cluster.carriers import Carriers
from natsd.cluster.cluster import Cluster
from natsd.cluster.dedicated import DedicatedRoutes
from natsd.cluster.handshake import Handshakes
from natsd.cluster.limits import set_limits
from natsd.cluster.own_info import own_info
from natsd.cluster.route import Route
from natsd.config.cluster_options import ClusterOptions
from natsd.core.reasons import ClosedReason

logger = logging.getLogger("natsd.server")


class Reload:
    """Applies changed settings to the routes of a server."""

    def __init__(
        self,
        cluster: Cluster,
        carriers: Carriers,
        dedicated: DedicatedRoutes,
        handshakes: Handshakes,
    ) -> None:
        self._cluster = cluster
        self._carriers = carriers
        self._dedicated = dedicated
        self._handshakes = handshakes

    def apply(self, before: ClusterOptions) -> None:
        """Apply the cluster's settings, which were `before`; the port has not changed."""
        cluster, options = self._cluster, self._cluster.options
        self.apply_limits()
        if options.name and options.name != cluster.name:
            cluster.rename(options.name)
        if options.compression != before.compression:
            self._change_compression()
        if options.authorization != before.authorization:
            for route in list(cluster.routes.values()):
                self._handshakes.check_again(route)
        if options.rules != before.rules:
            self._change_permissions()
        self._change_targets()
        self._change_pool()

    def apply_limits(self) -> None:
        """Apply the times and limits that all routes share, and what is traced."""
        cluster, options = self._cluster, self._cluster.host.options
        set_limits(cluster.settings, options, cluster.options)
        for route in cluster.routes.values():
            route.settings_changed()
            route.set_trace(options.trace)

    def _change_permissions(self) -> None:
        """Apply what passes now, and tell the peers: they resend interest that passes again."""
        cluster = self._cluster
        for route in list(cluster.routes.values()):
            cluster.apply_permissions(route)
        line = own_info(cluster, is_first=False).line()
        for route in cluster.table:
            route.send_protocol(line)

    def _change_compression(self) -> None:
        """Change the level of compressed routes; close those that must negotiate."""
        cluster = self._cluster
        mode = compression_mode.mode_of(cluster.options.compression)
        is_level = mode in compression_mode.LEVELS
        for route in list(cluster.table):
            if route.compression in (compression_mode.NOT_SUPPORTED, mode):
                continue
            if route.compressor is None or not (is_level or mode == compression_mode.AUTO):
                route.close(ClosedReason.CLIENT_CLOSED)
            elif is_level:
                cluster.set_level(route, mode)
            else:
                cluster.adapt_compression(route)

    def _change_targets(self) -> None:
        """Close the routes to servers that are configured no more, and dial new ones."""
        cluster = self._cluster
        before, cluster.targets = cluster.targets, cluster.targets_of(cluster.options)
        for target in before:
            if target in cluster.targets:
                continue
            for route in list(cluster.routes.values()):
                if route.target == target:
                    _remove(route)
            logger.info("Removed route %s", target)
        cluster.solicit([each for each in cluster.targets if each not in before])

    def _change_pool(self) -> None:
        """Give accounts other connections, and let a pool of another size be dialed."""
        cluster, table = self._cluster, self._cluster.table
        names = cluster.dedicated_names(cluster.options)
        removed = [name for name in table.dedicated if name not in names]
        added = [name for name in names if name not in cluster.accounts]
        cluster.accounts = names
        for name in removed:
            for route in list(table.dedicated.pop(name).values()):
                _remove(route)
        if table.pool_size != cluster.options.pool_size:
            self._resize(added)
            return
        self._carry(removed)
        if added:
            self._dedicated.add(added)

    def _resize(self, added: Collection[str]) -> None:
        """Close the pool, and dial a new one."""
        cluster, table = self._cluster, self._cluster.table
        for routes in list(table.pooled.values()):
            for route in list(routes.values()):
                route.must_reconnect = not route.is_configured  # those are dialed below
                route.close(ClosedReason.ROUTE_REMOVED)
        table.pool_size = cluster.options.pool_size
        for name in added:
            table.dedicated.setdefault(name, {})
        self._carriers.distribute_all()
        cluster.solicit(cluster.targets)

    def _carry(self, names: Collection[str]) -> None:
        """Let the pool carry accounts that have no dedicated routes any more."""
        for name in names:
            account = self._cluster.host.accounts.get(name)
            if account is not None:
                self._carriers.distribute(account)


def _remove(route: Route) -> None:
    route.must_reconnect = False
    route.close(ClosedReason.ROUTE_REMOVED)
