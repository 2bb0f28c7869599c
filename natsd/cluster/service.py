"""The routes of one server at work: listens, serves connections, reloads, and ends them.

    listener ─▶ Route ─▶ handshake ─▶ membership: RouteTable ─▶ carriers: interest, messages
    Dialer ───▶ Route ─▶     „             „                 ─▶ gossip, URLs to clients

Everything runs on the loop of the server. After `close` there is no socket and no task.

Source: nats-server's server/route.go.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.accounts.message_trace import TraceSource
from natsd.clients.acceptor import Acceptor, refuse
from natsd.clients.listener import ListenError, bound_port, host_port, listen
from natsd.cluster import news
from natsd.cluster.carriers import Carriers
from natsd.cluster.cluster import Cluster
from natsd.cluster.dedicated import DedicatedRoutes
from natsd.cluster.dialer import Dial
from natsd.cluster.handshake import Handshakes
from natsd.cluster.host import ClusterHost
from natsd.cluster.limits import ROUTES_MAX
from natsd.cluster.membership import Membership
from natsd.cluster.own_info import own_info
from natsd.cluster.peer_info import PeerConnect, PeerInfo
from natsd.cluster.reload import Reload
from natsd.cluster.route import Route
from natsd.config import Options
from natsd.config.cluster_options import ClusterOptions
from natsd.core.reasons import ClosedReason, ErrorText

if TYPE_CHECKING:
    from datetime import datetime

    from natsd.accounts.request_times import RequestTimes
    from natsd.clients.transport import TransportLink
    from natsd.cluster.openings import RouteOpenings

logger = logging.getLogger("natsd.server")

BACKLOG: Final = 128


class RouteService:
    """The connections of a cluster. Raises OptionsError if TLS cannot be set up."""

    def __init__(self, host: ClusterHost) -> None:
        """Prepare; nothing is listened on or dialed before `listen` and `start`."""
        self.cluster = Cluster(host, self._connected)
        self.reactor = host.reactor
        self.settings = self.cluster.settings
        self._host = host
        self._carriers = Carriers(self.cluster.table, host.accounts)
        self._dedicated = DedicatedRoutes(self.cluster, self._carriers)
        self._membership = Membership(self.cluster, self._carriers)
        self._handshakes = Handshakes(self.cluster, self._membership)
        self._reload = Reload(self.cluster, self._carriers, self._dedicated, self._handshakes)
        self._openings: RouteOpenings | None = None
        self._listener: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._prepare_tls(self.cluster.options)()

    @property
    def server_options(self) -> Options:
        """The settings of the server."""
        return self._host.options

    # ---- life

    def listen(self) -> None:
        """Bind the port, so that the kernel queues connections. Raises ListenError."""
        cluster = self.cluster
        try:
            self._listener = listen(cluster.address, cluster.options.port, backlog=BACKLOG)
        except ListenError as error:
            raise ListenError(
                f"Error listening on router port: {cluster.options.port} - {error}"
            ) from None
        cluster.port = bound_port(self._listener)

    def start(self) -> None:
        """Accept routes, and dial the configured ones."""
        cluster = self.cluster
        logger.info("Cluster name is %s", cluster.name)
        if cluster.naming.is_dynamic:
            logger.warning("Cluster name was dynamically generated, consider setting one")
        logger.info(
            "Listening for route connections on %s", host_port(cluster.address, cluster.port)
        )
        assert self._listener is not None
        listener, self._listener = self._listener, None
        loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(loop, listener, self._accepted, self._refused)
        cluster.own_addresses = {(ip, cluster.port) for ip in self._host.local_addresses()}
        cluster.solicit(cluster.targets)

    def stop_listening(self) -> None:
        """Accept no more routes."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def close(self) -> None:
        """End all routes and attempts to connect."""
        self.stop_listening()
        await self.cluster.close()
        self._carriers.close()
        for route in list(self.cluster.routes.values()):
            route.close(ClosedReason.SERVER_SHUTDOWN)

    def enter_lame_duck(self) -> None:
        """Tell the peers that this server takes no more clients."""
        line = own_info(self.cluster, is_first=False, ldm=True).line()
        for route in self.cluster.table.one_of_each_peer():
            route.send_protocol(line)

    @property
    def certificate_end(self) -> "datetime | None":
        """When the certificate of this server ends; None: TLS is not used."""
        return None if self._openings is None else self._openings.not_after

    # ---- a reload

    def prepare(self, options: ClusterOptions) -> Callable[[], None]:
        """Return what makes new routes use TLS as the options say. Raises TlsError."""
        return self._prepare_tls(options)

    def apply(self, before: ClusterOptions) -> None:
        """Apply the settings, which were `before`."""
        self._reload.apply(before)
        if self._openings is not None:
            self._openings.check_pins(self.cluster.routes.values())

    def apply_limits(self) -> None:
        """Apply the times and limits that all routes share, and what is traced."""
        self._reload.apply_limits()

    def _prepare_tls(self, options: ClusterOptions) -> Callable[[], None]:
        if options.tls is None:
            return lambda: setattr(self, "_openings", None)
        if self._openings is not None:
            return self._openings.prepare(options.tls)
        from natsd.cluster.openings import RouteOpenings

        openings = RouteOpenings(options.tls, self.reactor, self._handshakes.begin)
        return lambda: setattr(self, "_openings", openings)

    # ---- connections

    def _accepted(self, descriptor: int, ip: str, port: int) -> None:
        if len(self.cluster.routes) >= ROUTES_MAX:
            self._refused(descriptor, ip, port)
        else:
            self._serve(descriptor, ip, port, None)

    def _refused(self, descriptor: int, ip: str, port: int) -> None:
        refuse(descriptor, f"-ERR '{ErrorText.MAXIMUM_CONNECTIONS}'\r\n".encode())

    def _connected(self, dial: Dial, connection: socket.socket) -> None:
        """Serve a connection that was dialed."""
        try:
            ip, port = connection.getpeername()[:2]
            self._serve(connection.detach(), ip, port, dial)
        except OSError as error:  # it is lost already, or cannot be watched
            logger.debug("A route ended at once: %s", error)
            connection.close()
            self.cluster.dial(dial._replace(is_first=False), after_loss=True)

    def _serve(self, descriptor: int, ip: str, port: int, dial: Dial | None) -> None:
        """Begin the route of a connection. Raises OSError if the system cannot watch it."""
        rid = self._host.next_cid()
        transports = self._host.transports
        if transports is not None:
            transports.add(
                socket.socket(fileno=descriptor), partial(self._linked, rid, ip, port, dial)
            )
            return
        route = Route(self, rid, descriptor, ip, port, dial)
        try:
            self._begin(route)
        except OSError:
            route.must_reconnect = False
            route.close(ClosedReason.READ_ERROR)
            raise

    def _linked(
        self, rid: int, ip: str, port: int, dial: Dial | None, link: "TransportLink"
    ) -> Route:
        route = Route(self, rid, -1, ip, port, dial, link)
        self._begin(route)
        return route

    def _begin(self, route: Route) -> None:
        self.cluster.routes[route.rid] = route
        route.endpoint.open()
        if self.cluster.is_closing:
            route.close(ClosedReason.SERVER_SHUTDOWN)
        elif self._openings is not None:
            self._openings.use_names_of(self.cluster.targets)
            self._openings.begin(route)
        else:
            self._handshakes.begin(route)

    # ---- events of routes

    def connect_received(self, route: Route, connect: PeerConnect) -> None:
        """Handle the peer's CONNECT."""
        self._handshakes.connect_received(route, connect)

    def info_received(self, route: Route, info: PeerInfo) -> None:
        """Handle an INFO: the peer's first one, or news."""
        if route.remote is None:
            self._handshakes.info_received(route, info)
        else:
            news.info_received(route, info, self._membership, self._dedicated)

    def pong_received(self, route: Route) -> None:
        """Dial the next connection of the pool, and adapt the compression."""
        self._membership.complete_pool(route)
        self.cluster.adapt_compression(route)

    def opening_timed_out(self, route: Route) -> bool:
        """Handle the deadline of a TLS handshake; False: there is none under way."""
        return self._openings is not None and self._openings.timed_out(route)

    @cached_property
    def request_times(self) -> "RequestTimes":
        """When measured requests of peers were delivered here."""
        from natsd.accounts.request_times import RequestTimes  # few requests are measured
        from natsd.clients.requestor import Requestors

        host = self._host
        describe = Requestors(host.server_name, lambda: self.cluster.name).describe
        return RequestTimes(host.accounts.system, describe)

    @property
    def trace_source(self) -> TraceSource:
        """The server, as a trace of a message shows it."""
        return self._host

    def find_account(self, name: str) -> Account | None:
        """Return the account that a peer names; None: it cannot be one."""
        return self._host.find_account(name)

    def route_closed(self, route: Route) -> None:
        """Forget a route that has ended, and dial it again if it is wanted."""
        self.cluster.routes.pop(route.rid, None)
        if self._openings is not None:
            self._openings.closed(route)
        self._membership.route_closed(route)
