"""`/routez`: the routes to the other servers of the cluster.

- A route is a connection: with a pool, and with accounts that have their own routes, there are
  several to each server. Only those are shown whose handshake is over.
- Rows are made when they are written, and so are the lists of a peer's subscriptions, of which
  there may be a million.

Source: nats-server's `Routez` and `RouteInfo`: field names and their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from natsd.core.routing import Subscription
from natsd.monitor.clock import Clock
from natsd.monitor.connection_row import subscription_row
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import Query
from natsd.monitor.values import round_trip, timestamp, uptime

if TYPE_CHECKING:
    from natsd.cluster.peer_info import SubjectList
    from natsd.cluster.route import Route
    from natsd.core.network import RouteLink


@dataclass(frozen=True, slots=True)
class RoutezParameters:
    """The parameters of a `/routez` request."""

    subs: bool
    subs_detail: bool

    @classmethod
    def of(cls, query: Query) -> "RoutezParameters":
        """Read the parameters; raises BadParameter."""
        subs_detail = query.text("subs").lower() == "detail"
        return cls(not subs_detail and query.flag("subs"), subs_detail)


def routez(server: ObservedServer, options: RoutezParameters, clock: Clock) -> dict[str, Any]:
    """Return the answer to `/routez`."""
    cluster = server.cluster
    routes = [] if cluster is None else list(cluster.table)
    answer: dict[str, Any] = {
        "server_id": server.id,
        "server_name": server.name,
        "now": timestamp(clock.wall_ns()),
    }
    if cluster is not None and cluster.options.rules is not None:
        from natsd.cluster.limits import shown_rules

        answer |= _permissions(*shown_rules(cluster.options.rules))
    now_ns = clock.monotonic_ns()
    rows = (_row(each, options, clock, now_ns) for each in routes)
    return answer | {"num_routes": len(routes), "routes": rows}


def _row(route: "Route", options: RoutezParameters, clock: Clock, now_ns: int) -> dict[str, Any]:
    """Return one route."""
    remote = route.remote
    row: dict[str, Any] = {
        "rid": route.rid,
        "remote_id": route.remote_id,
        "remote_name": route.remote_name,
        "did_solicit": route.is_solicited,
        "is_configured": route.is_configured,
        "ip": route.ip,
        "port": route.port,
        "start": timestamp(clock.to_wall_ns(route.start_ns)),
        "last_activity": timestamp(clock.to_wall_ns(route.last_activity_ns)),
        "rtt": round_trip(route.rtt_ns),
        "uptime": uptime(now_ns - route.start_ns),
        "idle": uptime(now_ns - route.last_activity_ns),
    }
    if remote is not None:
        row |= _permissions(remote.imports, remote.exports)
    row |= {
        "pending_size": route.pending_bytes,
        "in_msgs": route.in_msgs,
        "out_msgs": route.out_msgs,
        "in_bytes": route.in_bytes,
        "out_bytes": route.out_bytes,
        "subscriptions": route.num_subscriptions,
    }
    row |= _subscriptions(route, options)
    if route.account_name:
        row["account"] = route.account_name
    return row | {"compression": route.compression}


def _permissions(
    imports: "SubjectList | None", exports: "SubjectList | None"
) -> dict[str, dict[str, Any]]:
    """Return the subjects that may pass, without the directions in which all may."""
    told = {"import": imports, "export": exports}
    return {
        name: ({"allow": subjects.allow} if subjects.allow else {})
        | ({"deny": subjects.deny} if subjects.deny else {})
        for name, subjects in told.items()
        if subjects is not None
    }


def _subscriptions(route: "Route", options: RoutezParameters) -> dict[str, Iterator[Any]]:
    """Return the list of the peer's subscriptions, if it is asked for and there are any."""
    name = "subscriptions_list_detail" if options.subs_detail else "subscriptions_list"
    found = _found(route, options) if options.subs or options.subs_detail else iter(())
    first = next(found, None)
    return {} if first is None else {name: chain((first,), found)}


def _found(route: "Route", options: RoutezParameters) -> Iterator[Any]:
    """Yield the subject, or the detailed row, of each of the peer's subscriptions."""
    for link in route.account_links:
        for subscription in link.remote_subscriptions():
            if options.subs_detail:
                yield _detail(route, link, subscription)
            else:
                yield subscription.subject


def _detail(route: "Route", link: "RouteLink", subscription: Subscription) -> dict[str, Any]:
    words = ["R", subscription.subject]
    if not route.account_name:
        words.insert(1, link.account.name)
    if subscription.queue:
        words.append(subscription.queue)
    return subscription_row(
        subscription.subject,
        subscription.queue,
        " ".join(words),
        subscription.delivered,
        0,
        route.rid,
    )
