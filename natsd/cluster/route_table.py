"""The registered routes of a server: which connection serves which peer.

    pooled     peer A ─┬─ 0  connection           accounts with FNV-1a(name) mod 3 = 0
                       ├─ 1  connection                                              1
                       └─ 2  (none yet)                                              2
    dedicated  $SYS ───── peer A: connection      this account alone

Promise
- A peer has one connection for each index of the pool, and one for each account that has dedicated
  routes. The pool has the size of the larger one of the two servers'. A peer without pooling has
  one connection for everything.
- The server that dials chooses the index; it dials the next one after the first PONG.
- If both servers dial at once, both may find two connections for one place. Between two natsd the
  one stays that the server with the greater id has dialed, whichever is seen first. Another server
  keeps the first one that it sees; so does natsd then, and a lost connection is dialed again. A
  connection of which the peer does not know yet never replaces one.
- The table does no I/O: it says what must be done with a route.

Source: nats-server's `addRoute`, `handleDuplicateRoute` and `removeRoute` (server/route.go).
"""

from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.targets import Target
from natsd.core.reasons import ClosedReason

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def pool_index(account: str, size: int) -> int:
    """Return which connection of a pool carries an account; it is the same on all servers."""
    if size <= 1:
        return 0
    digest = _FNV_OFFSET
    for byte in account.encode():
        digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return digest % size


class RegisteredRoute(Protocol):
    """The part of a route that the table uses and changes."""

    remote_id: str
    is_dialed: bool
    """This server dialed it."""
    is_solicited: bool
    """This server dialed it, or will dial it again."""
    is_configured: bool
    target: Target | None
    """What is dialed; None: unknown."""
    account_name: str
    """The account of a dedicated route; empty: it is none."""
    pool_index: int
    """-1: it is not registered."""
    has_no_pool: bool
    must_reconnect: bool
    """Whether it is dialed again after its end, if it is solicited."""
    retries_implicit: bool
    """Whether it is dialed again once though it is not configured: a duplicate of it was closed."""


class RouteRefused(Exception):
    """The route cannot be registered; the text is that of `-ERR`, empty: none is sent."""

    def __init__(self, text: str, reason: ClosedReason) -> None:
        super().__init__(text)
        self.reason = reason


_Route = TypeVar("_Route", bound=RegisteredRoute)


class Registration(NamedTuple, Generic[_Route]):
    """What follows from the registration of a route."""

    is_first: bool
    """The peer had no route of the pool before, or the route is dedicated and has a place."""
    dials_next: bool
    """After the first PONG, the next connection of the pool must be dialed."""
    replaced: _Route | None
    """A duplicate that must be closed."""


class RouteTable(Generic[_Route]):
    """The registered routes of one server."""

    def __init__(self, own_id: str, pool_size: int, accounts: Iterable[str]) -> None:
        """Create an empty table; `pool_size` below 0: there is no pooling."""
        self._own_id = own_id
        self.pool_size = pool_size
        self.pooled: dict[str, dict[int, _Route]] = {}
        self.dedicated: dict[str, dict[str, _Route]] = {account: {} for account in accounts}

    def __iter__(self) -> Iterator[_Route]:
        for routes in self.pooled.values():
            yield from routes.values()
        for routes_of in self.dedicated.values():
            yield from routes_of.values()

    def one_of_each_peer(self) -> Iterator[_Route]:
        """Yield a route of the pool for each peer that has one."""
        for routes in self.pooled.values():
            yield next(iter(routes.values()))

    @property
    def own_size(self) -> int:
        """Connections among which this server distributes its accounts."""
        return max(self.pool_size, 1)

    def index_of(self, account: str) -> int:
        """Return the index of the connections that carry an account; -1: dedicated ones do."""
        return -1 if account in self.dedicated else pool_index(account, self.own_size)

    def carries(self, route: _Route, account: str) -> bool:
        """Return whether a registered route carries an account."""
        if route.account_name:
            return route.account_name == account
        return route.has_no_pool or self.index_of(account) == route.pool_index

    # ---- registration

    def register(self, route: _Route, info: PeerInfo, *, is_told: bool) -> Registration[_Route]:
        """Give the route its place, and its index in the pool. Raises RouteRefused.

        `is_told` says whether the peer has our INFO, so that it may have given the route its place.
        """
        if info.route_pool_size <= 0 or self.pool_size < 0:
            return self._register_alone(route, info, is_told)
        self._check_index(route, info)
        if route.account_name:
            return self._register_dedicated(route, info, is_told)
        return self._register_in_pool(route, info)

    def _check_index(self, route: _Route, info: PeerInfo) -> None:
        index = info.route_pool_idx
        if route.is_solicited and index:
            text = f"Route pool index should not be set but is set to {index}"
        elif not 0 <= index < max(self.pool_size, info.route_pool_size):
            text = f"Invalid route pool index: {index} - pool size is {info.route_pool_size}"
        else:
            return
        raise RouteRefused(text, ClosedReason.PROTOCOL_VIOLATION)

    def _register_alone(self, route: _Route, info: PeerInfo, is_told: bool) -> Registration[_Route]:
        """Register the only route to a peer; one of both has no pooling."""
        if route.account_name:
            route.must_reconnect = False
            raise RouteRefused(
                f'Not possible to have a dedicated route for account "{route.account_name}" '
                "between those servers",
                ClosedReason.PROTOCOL_VIOLATION,
            )
        route.has_no_pool = True
        known = self.pooled.setdefault(info.server_id, {})
        existing = next(iter(known.values()), None)
        if existing is not None and not self._must_replace(existing, route, info, is_told):
            route.must_reconnect = False
            self._refuse_duplicate(existing, route)
        known.clear()
        return self._place(known, 0, route, existing, dials_next=False)

    def _register_dedicated(
        self, route: _Route, info: PeerInfo, is_told: bool
    ) -> Registration[_Route]:
        known = self.dedicated.get(route.account_name)
        if known is None:
            raise RouteRefused(
                f'No route for account "{route.account_name}"', ClosedReason.PROTOCOL_VIOLATION
            )
        existing = known.get(info.server_id)
        if existing is not None and not self._must_replace(existing, route, info, is_told):
            route.must_reconnect = False
            self._refuse_duplicate(existing, route)
        known[info.server_id] = route
        route.pool_index = 0
        self._inherit(existing, route)
        return Registration(existing is None, False, existing)

    def _register_in_pool(self, route: _Route, info: PeerInfo) -> Registration[_Route]:
        known = self.pooled.setdefault(info.server_id, {})
        size = max(self.pool_size, info.route_pool_size)
        if route.is_solicited:
            for each in known.values():
                upgrade(each, route)
            index = next((each for each in range(size) if each not in known), -1)
            if index < 0:
                route.must_reconnect = False
                raise RouteRefused("", ClosedReason.DUPLICATE_ROUTE)
            return self._place(known, index, route, None, dials_next=len(known) + 1 < size)
        index = info.route_pool_idx
        existing = known.get(index)
        if existing is not None and not self._must_replace(existing, route, info, is_told=True):
            self._refuse_duplicate(existing, route)
        solicited = next((each for each in known.values() if each.is_solicited), None)
        if solicited is not None:
            upgrade(route, solicited)
        return self._place(known, index, route, existing, dials_next=False)

    def _place(
        self,
        known: dict[int, _Route],
        index: int,
        route: _Route,
        existing: _Route | None,
        *,
        dials_next: bool,
    ) -> Registration[_Route]:
        is_first = not known
        known[index] = route
        route.pool_index = index
        self._inherit(existing, route)
        return Registration(is_first and existing is None, dials_next, existing)

    # ---- duplicates

    def _must_replace(self, existing: _Route, route: _Route, info: PeerInfo, is_told: bool) -> bool:
        """Return whether the new route to a natsd stays, and the registered one must end."""
        if not info.natsd or not is_told or existing.is_dialed == route.is_dialed:
            return False
        return route.is_dialed == (self._own_id > info.server_id)

    def _refuse_duplicate(self, existing: _Route, route: _Route) -> None:
        """Let the registered route know what the duplicate knew, and refuse the duplicate."""
        if route.is_solicited and not existing.is_solicited:
            existing.is_solicited = True
            existing.target = route.target
        existing.is_configured |= route.is_configured
        existing.retries_implicit = True
        raise RouteRefused("", ClosedReason.DUPLICATE_ROUTE)

    def _inherit(self, existing: _Route | None, route: _Route) -> None:
        """Let a route know what the one knew that it replaces, which is not dialed again."""
        if existing is not None:
            upgrade(route, existing)
            existing.must_reconnect = False
            existing.pool_index = -1

    def remove(self, route: _Route) -> bool:
        """Forget a route that has ended; return whether its peer has no route of the pool now."""
        if route.account_name:
            dedicated = self.dedicated.get(route.account_name, {})
            if dedicated.get(route.remote_id) is route:
                del dedicated[route.remote_id]
            return False
        known = self.pooled.get(route.remote_id, {})
        if known.get(route.pool_index) is not route:
            return False
        del known[route.pool_index]
        if not known:
            del self.pooled[route.remote_id]
        return not known


def upgrade(route: RegisteredRoute, solicited: RegisteredRoute) -> None:
    """Let a route be dialed again as another one to the same peer, if that one is."""
    if not solicited.is_solicited:
        return
    if not route.is_solicited or (solicited.is_configured and not route.is_configured):
        route.target = solicited.target
    route.is_solicited = True
    route.is_configured |= solicited.is_configured
