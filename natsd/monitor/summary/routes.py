"""The routes of the summary: the busiest connections to other servers of the cluster.

A route is chosen if it is among the first by messages per second, by bytes per second, or by
pending bytes. `/routez` lists all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.core.steps import Steps
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.summary.connections import NO_RATES
from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import Ranking, shown
from natsd.monitor.values import timestamp

if TYPE_CHECKING:
    from natsd.cluster.route import Route

ROUTES_PER_STEP: Final = 64
FIRST_BY_EACH: Final = 30


@dataclass(slots=True, eq=False)
class MeasuredRoute:
    """A route and its traffic per second: messages in and out, bytes in and out."""

    route: "Route"
    rates: tuple[float, ...] | None


def cluster_facts(server: ObservedServer) -> dict[str, Any] | None:
    """Return the name of the cluster, and how many servers it has; None: there is none."""
    if server.cluster is None:
        return None
    return {"name": shown(server.cluster.name), "servers": 1 + len(server.cluster.peers)}


def choose_routes(server: ObservedServer, meter: Meter) -> Steps[Ranking[MeasuredRoute]]:
    """Return the routes to show."""
    ranking: Ranking[MeasuredRoute] = Ranking(3, FIRST_BY_EACH)
    routes = [] if server.cluster is None else list(server.cluster.table)
    for index, route in enumerate(routes):
        if index % ROUTES_PER_STEP == ROUTES_PER_STEP - 1:
            yield
        counters = (route.in_msgs, route.out_msgs, route.in_bytes, route.out_bytes)
        rates = meter.rates(route.rid, counters)
        in_msgs, out_msgs, in_bytes, out_bytes = rates or (0, 0, 0, 0)
        ranking.add(
            MeasuredRoute(route, rates),
            (in_msgs + out_msgs, in_bytes + out_bytes, route.pending_bytes),
        )
    return ranking


def route_row(measured: MeasuredRoute, clock: Clock) -> dict[str, Any]:
    """Return one route; the names of its fields are those of `/routez` where it has them."""
    route = measured.route
    in_msgs, out_msgs, in_bytes, out_bytes = map(rounded, measured.rates or NO_RATES)
    return {
        "rid": route.rid,
        "remote_id": shown(route.remote_id),
        "remote_name": shown(route.remote_name),
        "did_solicit": route.is_solicited,
        "ip": route.ip,
        "port": route.port,
        "account": shown(route.account_name),
        "tls": route.tls is not None,
        "compression": route.compression,
        "start": timestamp(clock.to_wall_ns(route.start_ns)),
        "rtt_ms": round(route.rtt_ns / 1e6, 3),
        "pending_bytes": route.pending_bytes,
        "subscriptions": route.num_subscriptions,
        "in_msgs_rate": in_msgs,
        "out_msgs_rate": out_msgs,
        "in_bytes_rate": in_bytes,
        "out_bytes_rate": out_bytes,
    }
