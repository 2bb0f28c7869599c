"""Accounts that get dedicated routes while the server runs.

    A (reloaded)                              B
    forgets B's interest on the pool
    INFO route_account, route_acc_add_reqid ─▶ forgets A's interest on the pool
                                            ◀─ INFO route_acc_add_reqid
    dials a route for the account

Until the new route stands, messages of the account do not pass between the two servers.

Source: nats-server's `reloadClusterPoolAndAccounts` (server/reload.go), `processRouteInfo`
(server/route.go).
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from natsd.clients.client import new_nonce
from natsd.cluster.carriers import Carriers
from natsd.cluster.cluster import Cluster
from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.route import Route
from natsd.cluster.route_table import pool_index

logger = logging.getLogger("natsd.server")

CONFIRMED_WITHIN_S: Final = 2.0


class DedicatedRoutes:
    """The accounts of a server that move from the pool to routes of their own."""

    def __init__(self, cluster: Cluster, carriers: Carriers) -> None:
        self._cluster = cluster
        self._carriers = carriers
        self._request = ""
        self._missing = 0  # confirmations of `_request`
        self._confirmed = asyncio.Event()

    def add(self, names: Collection[str]) -> None:
        """Move accounts, and dial their routes when the peers have confirmed it."""
        self._request, self._missing = new_nonce().decode(), 0
        self._confirmed.clear()
        for name in names:
            self._missing += self._announce(name)
        self._cluster.create_task(self._dial(names))

    def _announce(self, name: str) -> int:
        """Move an account, and tell the peers; return how many were told."""
        table = self._cluster.table
        index = pool_index(name, table.own_size)  # also if a peer was reloaded before
        self._move(name)
        line = PeerInfo(
            route_pool_size=table.own_size,
            route_account=name,
            route_acc_add_reqid=self._request,
        ).line()
        told = [routes[index] for routes in table.pooled.values() if index in routes]
        told = [route for route in told if not route.has_no_pool]
        for route in told:
            route.send_protocol(line)
        return len(told)

    def _move(self, name: str) -> None:
        """Let the pool carry an account no more."""
        account = self._cluster.host.find_account(name)
        self._cluster.table.dedicated.setdefault(name, {})
        if account is not None:
            self._carriers.take_from_pool(account)

    async def _dial(self, names: Collection[str]) -> None:
        try:
            async with asyncio.timeout(CONFIRMED_WITHIN_S):
                while self._missing > 0:
                    await self._confirmed.wait()
                    self._confirmed.clear()
        except TimeoutError:
            logger.warning(
                "Timed out waiting for confirmation from all routes regarding per-account routes "
                "changes"
            )
        self._cluster.solicit(self._cluster.targets, only=names)

    def asked(self, route: Route, info: PeerInfo) -> None:
        """Move an account, because a peer does, and confirm it."""
        self._move(info.route_account)
        answer = PeerInfo(
            route_pool_size=info.route_pool_size, route_acc_add_reqid=info.route_acc_add_reqid
        )
        route.send_protocol(answer.line())

    def confirmed(self, request: str) -> None:
        """Count the confirmation of a peer."""
        if request == self._request:
            self._missing -= 1
            self._confirmed.set()
