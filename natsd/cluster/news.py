"""INFO on a registered route: news of the peer, of another server, or of a dedicated route.

Source: nats-server's `processRouteInfo` and `updateRemoteRoutePerms` (server/route.go).
"""

import logging

from natsd.cluster.dedicated import DedicatedRoutes
from natsd.cluster.membership import Membership
from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.route import Route
from natsd.core.quoting import quoted

logger = logging.getLogger("natsd.server")


def info_received(
    route: Route, info: PeerInfo, membership: Membership, dedicated: DedicatedRoutes
) -> None:
    """Apply the news."""
    if info.route_acc_add_reqid:
        if info.route_account:
            dedicated.asked(route, info)
        else:
            dedicated.confirmed(info.route_acc_add_reqid)
    elif info.gateway:
        logger.error(
            "Received information about gateway %s from %s, but gateway is not configured",
            quoted(info.gateway),
            route.remote_id,
        )
    elif info.server_id != route.remote_id:
        membership.told_of(info, by=route)
    elif info.ldm:
        membership.peer_is_leaving(route)
    else:
        _apply_permissions(route, info)


def _apply_permissions(route: Route, info: PeerInfo) -> None:
    """Remember what the peer lets pass, and send interest again that passes now."""
    remote = route.remote
    assert remote is not None
    has_changed = remote.exports != info.exports
    remote.imports, remote.exports = info.imports, info.exports
    if has_changed:
        route.announce_again()
