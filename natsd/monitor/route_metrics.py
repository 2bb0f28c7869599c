"""The metrics of routes: `gnatsd_routez_*`, with one row per connection to another server.

Source: prometheus-nats-exporter's `routezCollector`.
"""

from typing import Final

from natsd.core.wall_time import SECOND_NS
from natsd.monitor.clock import Clock
from natsd.monitor.metric_text import Gauges, Row, label_text, row
from natsd.monitor.observed import ObservedServer

INFO: Final[Gauges] = (("routez_route_info", "route_info"),)
"""A gauge that is 1; its labels describe the route."""
ROUTES: Final[Gauges] = (
    ("routez_route_rtt_seconds", "rtt_seconds"),
    ("routez_route_subscriptions", "subscriptions"),
    ("routez_route_uptime_seconds", "uptime_seconds"),
    ("routez_route_in_msgs", "in_msgs"),
    ("routez_route_out_msgs", "out_msgs"),
    ("routez_route_in_bytes", "in_bytes"),
    ("routez_route_out_bytes", "out_bytes"),
    ("routez_route_pending_bytes", "pending_bytes"),
)
"""The last one is natsd's own."""


def route_rows(server: ObservedServer, server_id: str, clock: Clock) -> tuple[list[Row], list[Row]]:
    """Return the rows of `INFO` and those of `ROUTES`."""
    infos: list[Row] = []
    rows: list[Row] = []
    now_ns = clock.monotonic_ns()
    for route in () if server.cluster is None else server.cluster.table:
        named = {"server_id": server_id, "rid": str(route.rid)}
        labels = label_text(
            **named,
            remote_id=route.remote_id,
            remote_name=route.remote_name,
            account=route.account_name,
            ip=route.ip,
            compression=route.compression,
        )
        infos.append(row(labels, (1,)))
        values = (
            route.rtt_ns / SECOND_NS,
            route.num_subscriptions,
            (now_ns - route.start_ns) // SECOND_NS,
            route.in_msgs,
            route.out_msgs,
            route.in_bytes,
            route.out_bytes,
            route.pending_bytes,
        )
        rows.append(row(label_text(**named), values))
    return infos, rows
