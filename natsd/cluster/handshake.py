"""The handshake of a route, from its first line to its place in the table.

    dialed                      accepted
    CONNECT ─────────────────▶  checks cluster name, login
            ◀─────────── INFO   at once
    INFO    ─────────────────▶  checks name, registers, sends interest
    registers, sends interest

- With a pool, or if the connection may be compressed, the dialing server sends its INFO after that
  of the peer: it knows its index in the pool then.
- If both compress, the dialing server sends an INFO with the agreed mode before; after it both
  streams are compressed, and the peer answers with an INFO of its own.

Source: nats-server's `createRoute`, `processRouteConnect`, `processRouteInfo` and
`negotiateRouteCompression` (server/route.go).
"""

import time
from collections.abc import Awaitable
from typing import Final

from natsd.cluster import compression_mode
from natsd.cluster.cluster import Cluster
from natsd.cluster.cluster_name import NameVerdict
from natsd.cluster.compression_mode import UnknownMode
from natsd.cluster.membership import Membership
from natsd.cluster.own_info import send_info
from natsd.cluster.peer_info import PeerConnect, PeerInfo
from natsd.cluster.route import Route
from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason, ErrorText

SILENCE_S_MAX: Final = 30.0
"""Seconds that a handshake may take; a peer that must log in has less."""


class Handshakes:
    """The handshakes of a server's routes."""

    def __init__(self, cluster: Cluster, membership: Membership) -> None:
        self._cluster = cluster
        self._membership = membership

    def begin(self, route: Route) -> None:
        """Send the first line, after the TLS handshake if there is one."""
        cluster, options = self._cluster, self._cluster.options
        timeout_s = SILENCE_S_MAX
        if not route.is_dialed and cluster.needs_login:
            timeout_s = options.login_timeout.total_seconds()
        route.await_connect(round(timeout_s * 1e9))
        if route.is_dialed:
            cluster.apply_permissions(route)
            route.debug("Route connect msg sent")
            route.send_protocol(self._connect(route).line())
        if not self._sends_info_later(route):
            send_info(cluster, route, compression_mode.mode_of(options.compression))
        route.notice("Route connection created")

    def _sends_info_later(self, route: Route) -> bool:
        """Return whether our INFO waits for that of the peer."""
        options = self._cluster.options
        mode = compression_mode.mode_of(options.compression)
        is_pooled = not route.account_name and options.pool_size > 0
        return route.is_dialed and (is_pooled or compression_mode.is_negotiated(mode))

    def _connect(self, route: Route) -> PeerConnect:
        cluster, target = self._cluster, route.target
        assert target is not None
        return PeerConnect(
            echo=True,
            user=target.user,
            password=target.password,
            tls_required=cluster.options.tls is not None,
            headers=not cluster.host.options.no_header_support,
            name=cluster.host.id,
            cluster=cluster.name,
            cluster_dynamic=cluster.naming.is_dynamic,
            lnoc=True,
        )

    # ---- CONNECT

    def connect_received(self, route: Route, connect: PeerConnect) -> None:
        """Check the peer's CONNECT: that it is a server, its login, its cluster's name."""
        if connect.lang:
            route.refuse(ErrorText.CLIENT_ON_ROUTE_PORT, ClosedReason.INCORRECT_PORT)
            return
        if route.has_connected:  # a server sends one, and none to a server that dialed it
            route.close(ClosedReason.PROTOCOL_VIOLATION)
            return
        route.has_connected, route.connect = True, connect
        verdict = self._cluster.check_login(route, connect)
        if isinstance(verdict, bool):
            self._logged_in(route, connect, is_right=verdict)
        else:
            route.login = self._cluster.create_task(self._await_login(route, connect, verdict))

    async def _await_login(
        self, route: Route, connect: PeerConnect, verdict: Awaitable[bool]
    ) -> None:
        """Continue after a login whose check takes a while."""
        is_right = await verdict
        if route.reason is None:
            self._logged_in(route, connect, is_right=is_right)
            route.login_decided()

    def _logged_in(self, route: Route, connect: PeerConnect, *, is_right: bool) -> None:
        if not is_right:
            refuse_login(route)
            return
        if connect.gateway:
            route.refuse(
                f'Rejecting connection from gateway "{connect.gateway}" on the Route port',
                ClosedReason.WRONG_GATEWAY,
            )
            return
        ours = self._cluster.name
        verdict = self._cluster.meet_name(
            connect.cluster, is_dynamic=connect.cluster_dynamic, kept_id=connect.name
        )
        if verdict is NameVerdict.CONFLICT:
            route.refuse(
                f"Rejecting connection, cluster name {quoted(connect.cluster)} does not match "
                f"{quoted(ours)}",
                ClosedReason.CLUSTER_NAME_CONFLICT,
            )
            return
        route.remote_id = connect.name
        self._cluster.apply_permissions(route)

    def check_again(self, route: Route) -> None:
        """Close a route if its peer may not log in any more, after a reload."""
        if route.connect is None:
            return
        verdict = self._cluster.check_login(route, route.connect)
        if not isinstance(verdict, bool):
            self._cluster.create_task(self._await_check(route, verdict))
        elif not verdict:
            refuse_login(route)

    async def _await_check(self, route: Route, verdict: Awaitable[bool]) -> None:
        if not await verdict and route.reason is None:
            refuse_login(route)

    # ---- the first INFO

    def info_received(self, route: Route, info: PeerInfo) -> None:
        """Check the peer's INFO, agree on the compression, and register the route."""
        if not route.has_connected:
            refuse_login(route)
        elif self._is_acceptable(route, info) and not self._is_switching(route, info):
            sends_info = self._sends_info_later(route)
            self._membership.register(route, info, sends_info=sends_info)

    def _is_acceptable(self, route: Route, info: PeerInfo) -> bool:
        """Return whether the peer is another server of our cluster; close the route if not."""
        host = self._cluster.host
        if info.server_id == host.id:
            route.remote_id = info.server_id
            route.close(ClosedReason.DUPLICATE_ROUTE)
        elif info.client_id:
            route.error("Attempted to connect to a client port")
            route.close(ClosedReason.INCORRECT_PORT)
        elif not route.is_dialed and info.server_name == host.server_name:
            route.error(f"Remote server has a duplicate name: {quoted(info.server_name)}")
            route.close(ClosedReason.DUPLICATE_SERVER_NAME)
        elif info.cluster and NameVerdict.CONFLICT is self._cluster.meet_name(
            info.cluster, is_dynamic=info.cluster_dynamic, kept_id=info.server_id
        ):
            route.close(ClosedReason.CLUSTER_NAME_CONFLICT)
        else:
            return True
        return False

    def _is_switching(self, route: Route, info: PeerInfo) -> bool:
        """Agree on the compression; return whether another INFO follows, or the route closes."""
        options = self._cluster.options.compression
        ours = compression_mode.mode_of(options)
        if not compression_mode.is_negotiated(ours):
            is_old = not info.compression or ours == compression_mode.NOT_SUPPORTED
            route.compression = compression_mode.NOT_SUPPORTED if is_old else compression_mode.OFF
            return False
        if route.has_negotiated:
            return False
        route.has_negotiated = True
        try:
            mode = compression_mode.agreed(ours, info.compression)
        except UnknownMode as error:
            route.refuse(str(error), ClosedReason.PROTOCOL_VIOLATION)
            return True
        if mode == compression_mode.AUTO:
            rtt_ns = route.rtt_ns or time.monotonic_ns() - route.start_ns
            mode = compression_mode.level_for(rtt_ns, options)
        route.compression = mode
        if not compression_mode.is_negotiated(mode):
            return False
        if route.is_dialed:
            send_info(self._cluster, route, mode)
        self._cluster.compress(route)
        if not route.is_dialed:
            send_info(self._cluster, route, mode)
        return True


def refuse_login(route: Route) -> None:
    """Close the connection of a peer that may not log in."""
    route.must_reconnect = False
    route.error("authentication error")
    route.close_with_error(ErrorText.AUTHORIZATION_VIOLATION, ClosedReason.AUTHENTICATION_FAILURE)
