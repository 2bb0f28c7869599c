"""`/routez`, `/gatewayz`, `/leafz`: the other servers that this one is connected to.

natsd runs as a single server and has none, so the lists are empty. Sources: nats-server's `Routez`,
`Gatewayz` and `Leafz`.
"""

from typing import Any

from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.values import timestamp


def routez(server: ObservedServer, clock: Clock) -> dict[str, Any]:
    """Return the answer to `/routez`."""
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": timestamp(clock.wall_ns()),
        "num_routes": 0,
        "routes": [],
    }


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
