"""Gossip: what a server tells the others about a new peer, and what it does with such news.

    B dials A, which knows C:   A tells C of B (INFO of B with its URL in `ip`); C dials B

- `gossip_mode` in the INFO about a peer says whether the server that dials because of it passes the
  news of its new route on: by default not; `disabled`: neither does the server that it dials;
  `override`: it does, because what it was told comes from a configured route.

Source: nats-server's `forwardNewRouteInfoToKnownServers`, `processImplicitRoute` and
`hasThisRouteConfigured` (server/route.go).
"""

from collections.abc import Collection
from enum import IntEnum
from urllib.parse import urlsplit

from natsd.clients.listener import host_port
from natsd.cluster.peer_info import PeerInfo
from natsd.cluster.targets import Target


class GossipMode(IntEnum):
    """What happens with the news of a route; the values are sent to other servers."""

    DEFAULT = 0
    DISABLED = 1
    OVERRIDE = 2


def is_forwarded(info: PeerInfo, mode: int, *, is_solicited: bool, is_configured: bool) -> bool:
    """Return whether the other servers are told of a new peer.

    `mode` is the one with which its route was dialed.
    """
    is_from_gossip = is_solicited and not is_configured
    if is_from_gossip and mode != GossipMode.OVERRIDE:
        return False
    return info.gossip_mode != GossipMode.DISABLED


def forwarded_mode(
    *, is_solicited: bool, is_configured: bool, is_receiver_configured: bool
) -> GossipMode:
    """Return the mode with which a server is told of a new peer.

    `is_configured` and `is_solicited` describe the new route, `is_receiver_configured` the one to
    the server that is told.
    """
    if is_configured if is_solicited else is_receiver_configured:
        return GossipMode.OVERRIDE
    return GossipMode.DEFAULT if is_solicited else GossipMode.DISABLED


def gossip_line(info: PeerInfo, mode: GossipMode) -> bytes:
    """Return the INFO line that tells another server of a peer."""
    nonce, before = info.nonce, info.gossip_mode
    info.nonce, info.gossip_mode = "", mode
    line = info.line()
    info.nonce, info.gossip_mode = nonce, before
    return line


def is_among(info: PeerInfo, targets: Collection[Target]) -> bool:
    """Return whether a server of which another one told is one that the settings name."""
    places = {host_port(info.host, info.port).lower()}
    told = _address(info)
    if told is not None:
        places.add(host_port(told[0], info.port).lower())
    return any(target.place.lower() in places for target in targets)


def target_of(info: PeerInfo, user: str, password: str) -> Target | None:
    """Return how a server is dialed of which another one told; None: its URL is invalid."""
    address = _address(info)
    if address is None:
        return None
    login = (user, password) if info.auth_required else ("", "")
    return Target(*address, *login)


def _address(info: PeerInfo) -> tuple[str, int] | None:
    """Return host and port of the URL in the INFO; None: it has no valid one."""
    try:
        parts = urlsplit(info.ip)
        return (parts.hostname, parts.port) if parts.hostname and parts.port else None
    except ValueError:
        return None
