"""`STATSZ`: the load statistics that servers send to each other.

Source: nats-server's `ServerStats`: its fields and their order.
"""

from typing import TYPE_CHECKING, Any

from natsd.monitor import jetstream
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import cores, resident_bytes
from natsd.monitor.values import by_kind, client_traffic, datetime_ns, number, timestamp

if TYPE_CHECKING:
    from natsd.cluster.route import Route

PRIVATE = ("store_dir",)
"""JetStream settings that are not shown to other servers."""


def statsz(server: ObservedServer, *, processor_percent: float) -> dict[str, Any]:
    """Return the load of the server; `processor_percent` is its share of one core."""
    counters = server.counters
    to_clients, from_clients = client_traffic(counters)
    stats = {
        "start": timestamp(datetime_ns(server.start_time)),
        "mem": resident_bytes(),
        "cores": cores(),
        "cpu": number(processor_percent),
        "connections": len(server.clients),
        "total_connections": server.total_connections,
        "active_accounts": sum(bool(each.connections) for each in server.accounts.values()),
        "subscriptions": sum(each.sublist.count for each in server.accounts.values()),
        "sent": {"msgs": counters.out_msgs, "bytes": counters.out_bytes},
        "sent_to_clients": to_clients,
        "received": {"msgs": counters.in_msgs, "bytes": counters.in_bytes},
        "received_from_clients": from_clients,
        "slow_consumers": counters.slow_consumers,
    }
    if counters.slow_consumers:
        stats["slow_consumer_stats"] = by_kind(counters.slow_consumers, counters.slow_routes)
    if counters.stale_connections:
        stats["stale_connections"] = counters.stale_connections
        stats["stale_connection_stats"] = by_kind(counters.stale_connections, counters.stale_routes)
    if counters.stalled_clients:
        stats["stalled_clients"] = counters.stalled_clients
    if server.cluster is not None:
        routes = [_route(each) for each in server.cluster.table]
        if routes:
            stats["routes"] = routes
    stats["active_servers"] = 1 + server.known_servers
    if server.jetstream is not None:
        settings = jetstream.config(server.jetstream.options)
        stats["jetstream"] = {
            "config": {name: settings[name] for name in settings if name not in PRIVATE},
            "stats": jetstream.stats(server.jetstream),
            "limits": jetstream.limits(server.jetstream.options),
        }
    return stats | {"gomaxprocs": 1}


def _route(route: "Route") -> dict[str, Any]:
    """Return the traffic of one route."""
    return {
        "rid": route.rid,
        "name": route.remote_name,
        "sent": {"msgs": route.out_msgs, "bytes": route.out_bytes},
        "received": {"msgs": route.in_msgs, "bytes": route.in_bytes},
        "pending": route.pending_bytes,
    }
