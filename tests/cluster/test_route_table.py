"""Which connection serves which peer: pools, dedicated routes, duplicates."""

from dataclasses import dataclass, field
from itertools import permutations

import pytest

from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.route_table import Registration, RouteRefused, RouteTable, pool_index
from natsd.cluster.targets import Target
from natsd.core.reasons import ClosedReason

OTHER = Target("other", 1, is_configured=True)


@dataclass(eq=False)
class FakeRoute:
    is_dialed: bool = False
    is_solicited: bool = False
    is_configured: bool = False
    target: Target | None = None
    account_name: str = ""
    remote_id: str = "B"
    pool_index: int = -1
    has_no_pool: bool = False
    must_reconnect: bool = True
    retries_implicit: bool = False
    closed: list[ClosedReason] = field(default_factory=list)


def dialed(account: str = "") -> FakeRoute:
    return FakeRoute(
        is_dialed=True,
        is_solicited=True,
        is_configured=True,
        target=OTHER,
        account_name=account,
    )


def table(
    own_id: str = "A", pool_size: int = 3, accounts: tuple[str, ...] = ("$SYS",)
) -> RouteTable[FakeRoute]:
    return RouteTable(own_id, pool_size, accounts)


def info(index: int = 0, size: int = 3, peer: str = "B", *, natsd: bool = False) -> PeerInfo:
    version = "1" if natsd else ""
    return PeerInfo(server_id=peer, route_pool_size=size, route_pool_idx=index, natsd=version)


def register(
    known: RouteTable[FakeRoute], route: FakeRoute, told: PeerInfo, *, is_told: bool = True
) -> Registration[FakeRoute]:
    return known.register(route, told, is_told=is_told)


def test_the_index_of_an_account_is_that_of_nats_server() -> None:
    """FNV-1a, 32 bits; known values of the hash are from its authors' page."""
    assert pool_index("a", 2**32) == 0xE40C292C
    assert pool_index("foobar", 2**32) == 0xBF9CF968
    assert pool_index("$G", 1) == pool_index("$G", 0) == pool_index("$G", -1) == 0


def test_the_dialing_server_fills_the_pool() -> None:
    routes, known = [dialed() for _ in range(4)], table()
    found = [register(known, route, info()) for route in routes[:3]]
    assert [route.pool_index for route in routes[:3]] == [0, 1, 2]
    assert [each.is_first for each in found] == [True, False, False]
    assert [each.dials_next for each in found] == [True, True, False]
    with pytest.raises(RouteRefused) as refused:
        register(known, routes[3], info())
    assert refused.value.reason is ClosedReason.DUPLICATE_ROUTE
    assert not routes[3].must_reconnect


def test_the_dialed_server_takes_the_index_that_it_is_told() -> None:
    known, route = table(), FakeRoute()
    assert register(known, route, info(2)) == Registration(True, False, None)
    assert route.pool_index == 2


def test_the_larger_pool_counts() -> None:
    known = table(pool_size=1)
    routes = [dialed() for _ in range(5)]
    assert [register(known, route, info(size=5)).dials_next for route in routes] == [True] * 4 + [
        False
    ]
    assert {known.index_of(name) for name in ("$G", "A", "B")} == {0}
    assert known.carries(routes[0], "$G")
    assert not known.carries(routes[1], "$G")


@pytest.mark.parametrize(
    ("route", "told", "text"),
    [
        (dialed(), info(1), "Route pool index should not be set but is set to 1"),
        (FakeRoute(), info(3), "Invalid route pool index: 3 - pool size is 3"),
        (FakeRoute(), info(-1), "Invalid route pool index: -1 - pool size is 3"),
        (FakeRoute(account_name="A"), info(), 'No route for account "A"'),
        (dialed("$SYS"), info(size=0), "Not possible to have a dedicated route for account"),
    ],
)
def test_a_route_is_refused(route: FakeRoute, told: PeerInfo, text: str) -> None:
    with pytest.raises(RouteRefused) as refused:
        register(table(), route, told)
    assert str(refused.value).startswith(text)
    assert refused.value.reason is ClosedReason.PROTOCOL_VIOLATION


@pytest.mark.parametrize(("ours", "theirs"), [(-1, 3), (3, 0)])
def test_a_server_without_pooling_has_one_route_for_everything(ours: int, theirs: int) -> None:
    known, route = table(pool_size=ours), dialed()
    assert register(known, route, info(size=theirs)) == Registration(True, False, None)
    assert route.has_no_pool
    assert known.carries(route, "$SYS") and known.carries(route, "$G")
    again = dialed()
    with pytest.raises(RouteRefused):
        register(known, again, info(size=theirs))
    assert not again.must_reconnect


def test_a_dedicated_route_carries_its_account_alone() -> None:
    known, route = table(), dialed("$SYS")
    assert register(known, route, info()) == Registration(True, False, None)
    assert known.carries(route, "$SYS") and not known.carries(route, "$G")
    assert known.index_of("$SYS") == -1
    assert known.pooled == {}


def test_the_first_one_stays_if_the_peer_is_no_natsd() -> None:
    known, first, second = table(), dialed(), FakeRoute()
    register(known, first, info())
    with pytest.raises(RouteRefused):
        register(known, second, info())
    assert first.retries_implicit


def test_a_duplicate_leaves_what_it_knew() -> None:
    known, first, second = table(), FakeRoute(), dialed("$SYS")
    first.account_name = "$SYS"
    register(known, first, info())
    with pytest.raises(RouteRefused):
        register(known, second, info())
    assert (first.is_solicited, first.is_configured, first.target) == (True, True, OTHER)
    assert not second.must_reconnect


@pytest.mark.parametrize(("account", "is_told"), [("", False), ("$SYS", False), ("$SYS", True)])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_two_natsd_that_dial_at_once_keep_the_same_connection(
    account: str, is_told: bool, order: tuple[int, ...]
) -> None:
    """Each server sees both connections, in any order; the ends of one share its fate.

    If INFO waits, the other server gets it after this server has registered the route.
    """
    servers = {"A": table("A", 1), "B": table("B", 1)}
    ends = {
        (by, at): FakeRoute(
            is_dialed=by == at,
            is_solicited=by == at,
            target=OTHER,
            account_name=account,
            remote_id="BA"[at == "B"],
        )
        for by in "AB"
        for at in "AB"
    }
    lost: set[str] = set()
    steps = [sorted(ends)[number] for number in order]
    if not is_told and any(steps.index((by, by)) > steps.index((by, at)) for by, at in steps):
        return
    for by, at in steps:
        if by in lost:
            continue
        told = info(size=1, peer=ends[by, at].remote_id, natsd=True)
        try:
            found = register(servers[at], ends[by, at], told, is_told=is_told or by != at)
        except RouteRefused:
            lost.add(by)
            continue
        if found.replaced is not None:
            lost.add(next(key for key, end in ends.items() if end is found.replaced)[0])
    assert len(lost) == 1


def test_a_peer_is_gone_with_its_last_route() -> None:
    known = table()
    first, second, account = dialed(), dialed(), dialed("$SYS")
    for route in (first, second, account):
        register(known, route, info())
    assert set(known) == {first, second, account}
    assert list(known.one_of_each_peer()) == [first]
    assert not known.remove(first)
    assert not known.remove(account)
    assert known.remove(second)
    assert not known.remove(second)
    assert list(known) == []


def test_routes_to_a_configured_peer_are_all_dialed_again() -> None:
    known, theirs, ours = table(), FakeRoute(), dialed()
    register(known, theirs, info(1))
    register(known, ours, info())
    assert (theirs.is_solicited, theirs.is_configured, theirs.target) == (True, True, OTHER)
    late = FakeRoute()
    register(known, late, info(2))
    assert (late.is_solicited, late.target) == (True, OTHER)


def test_a_route_beyond_the_pool_leaves_what_it_knew() -> None:
    known, theirs = table(pool_size=1), FakeRoute()
    register(known, theirs, info(size=1))
    with pytest.raises(RouteRefused):
        register(known, dialed(), info(size=1))
    assert (theirs.is_solicited, theirs.is_configured, theirs.target) == (True, True, OTHER)
