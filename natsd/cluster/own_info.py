"""The INFO of this server on its routes.

Source: nats-server's `startRouteAcceptLoop`, `setRouteInfoHostPortAndIP` and
`generateRouteInitialInfoJSON` (server/route.go).
"""

from typing import Any

from natsd.clients.client import new_nonce
from natsd.clients.listener import host_port
from natsd.cluster.cluster import Cluster
from natsd.cluster.compression_mode import AUTO, mode_of
from natsd.cluster.limits import shown_rules
from natsd.cluster.peer_info import PROTOCOL_OF_SERVERS, PeerInfo
from natsd.cluster.route import Route
from natsd.version import NATS_VERSION, RUNTIME_VERSION, VERSION


def own_info(cluster: Cluster, *, is_first: bool = True, **fields: Any) -> PeerInfo:
    """Return the INFO with the fields of one route; later ones on a route have no nonce."""
    host, options = cluster.host, cluster.options
    address, port, url = _address(cluster)
    imports, exports = shown_rules(options.rules)
    return PeerInfo(
        server_id=host.id,
        server_name=host.server_name,
        version=NATS_VERSION,
        proto=PROTOCOL_OF_SERVERS,
        go=RUNTIME_VERSION,
        host=address,
        port=port,
        headers=not host.options.no_header_support,
        auth_required=bool(options.authorization.user),
        tls_required=options.tls is not None,
        tls_verify=options.tls is not None,
        max_payload=host.options.max_payload,
        jetstream=host.options.jetstream.enabled,
        ip=url,
        nonce=new_nonce().decode() if is_first else "",
        cluster=cluster.name,
        cluster_dynamic=cluster.naming.is_dynamic,
        domain=host.options.jetstream.domain,
        connect_urls=() if options.no_advertise else host.client_urls,
        imports=imports,
        exports=exports,
        lnoc=True,
        lnocu=True,
        route_pool_size=cluster.pool_size,
        natsd=VERSION,
        **fields,
    )


def send_info(cluster: Cluster, route: Route, compression: str, index: int = 0) -> None:
    """Send our INFO on a route, with its mode of compression and its index in the pool."""
    mode = mode_of(cluster.options.compression)
    info = own_info(
        cluster,
        route_account=route.account_name if route.is_dialed else "",
        compression=mode if mode == AUTO else compression,
        route_pool_idx=index,
        gossip_mode=route.gossip_mode,
    )
    route.send_protocol(info.line())


def _address(cluster: Cluster) -> tuple[str, int, str]:
    """Return host and port of the port for routes, and the URL if one is advertised."""
    advertise = cluster.options.advertise
    if not advertise:
        return cluster.address, cluster.port, ""
    host, colon, number = advertise.rpartition(":")
    if not colon or not number.isdigit() or host.endswith(":"):
        host, number = advertise, str(cluster.port)
    host = host.strip("[]")
    port = int(number) or cluster.port
    return host, port, f"nats-route://{host_port(host, port)}/"
