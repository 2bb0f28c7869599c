"""`/gatewayz`, `/leafz`: the servers beyond the cluster that this one is connected to.

natsd has no gateways and leaf nodes, so the lists are empty. Sources: nats-server's `Gatewayz` and
`Leafz`.
"""

from typing import Any

from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.values import timestamp


def gatewayz(server: ObservedServer, clock: Clock) -> dict[str, Any]:
    """Return the answer to `/gatewayz`."""
    return {
        "server_id": server.id,
        "now": timestamp(clock.wall_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def leafz(server: ObservedServer, clock: Clock) -> dict[str, Any]:
    """Return the answer to `/leafz`."""
    return {
        "server_id": server.id,
        "now": timestamp(clock.wall_ns()),
        "leafnodes": 0,
        "leafs": [],
    }
