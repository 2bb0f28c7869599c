"""Which connection carries which account: each account has one to each peer.

A route tells its peer of the interest in the accounts that it carries, and takes their messages. An
account that is created later is carried at once; one that is removed is carried no more.

Source: nats-server's `setRouteInfo` (server/server.go) and `sendSubsToRoute` (server/route.go).
"""

import asyncio

from natsd.accounts import Account, AccountDirectory
from natsd.cluster.route import Route
from natsd.cluster.route_table import RouteTable
from natsd.core.reasons import ClosedReason


class Carriers:
    """Distributes the accounts of a server among its registered routes."""

    def __init__(self, table: RouteTable[Route], accounts: AccountDirectory) -> None:
        self._table = table
        self._accounts = accounts
        self._loop = asyncio.get_running_loop()
        accounts.on_added(self.distribute)
        accounts.on_removed(self.withdraw)

    def close(self) -> None:
        """Follow the accounts no more."""
        self._accounts.no_longer(self.distribute)
        self._accounts.no_longer_removed(self.withdraw)

    def load(self, route: Route) -> None:
        """Let a registered route carry its accounts."""
        if route.account_name:
            account = self._accounts.get(route.account_name)
            if account is not None:
                route.carry(account)
            return
        for account in self._accounts.values():
            if self._table.carries(route, account.name):
                route.carry(account)

    def distribute(self, account: Account) -> None:
        """Let the routes carry an account that are to carry it.

        The peer may tell of its interest on another route, if its pool has another size.
        """
        for route in self._table:
            if self._table.carries(route, account.name):
                route.carry(account)

    def distribute_all(self) -> None:
        """Let all accounts be carried by the routes that are to carry them."""
        for account in list(self._accounts.values()):
            self.distribute(account)

    def take_from_pool(self, account: Account) -> None:
        """Let the pool carry an account no more, and forget the peers' interest that came there."""
        for route in self._table:
            if not self._table.carries(route, account.name):
                route.drop(account)

    def withdraw(self, account: Account) -> None:
        """Let no route carry an account, after the peers were told that its interest ended."""
        self._loop.call_soon(self._drop, account)

    def _drop(self, account: Account) -> None:
        for route in list(self._table):
            if route.account_name == account.name:
                route.close(ClosedReason.MISSING_ACCOUNT)
            else:
                route.drop(account)
