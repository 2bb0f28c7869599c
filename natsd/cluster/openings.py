"""TLS of routes: both servers shake hands before their first line, and check each other.

- The dialing server checks that the certificate is for the host of the URL that it dialed. If that
  is an address, the first host name in `routes` counts: servers of which others told have only
  addresses. If the certificate is not for that name either, the next attempt is made without it.
- A reload applies to new connections. Connections whose certificate is not one of the pinned ones
  any more are closed.

Source: nats-server's `doTLSHandshake` (server/client.go), `saveRouteTLSName` (server/route.go) and
`isRouterAuthorized` (server/auth.go).
"""

import ipaddress
import ssl
from collections.abc import Callable, Iterable

from natsd.clients.openings import LOST, NOT_PINNED, TIMED_OUT
from natsd.cluster.route import Route
from natsd.cluster.targets import Target
from natsd.config.tls_options import TlsOptions
from natsd.core.network import Reactor, TlsEngine, TlsFraming
from natsd.core.reasons import ClosedReason
from natsd.tls import failures, peer
from natsd.tls.context import TlsContext, client_context


class RouteOpenings:
    """The TLS handshakes of a server's routes. Raises TlsError if TLS cannot be set up."""

    def __init__(
        self, options: TlsOptions, reactor: Reactor, opened: Callable[[Route], None]
    ) -> None:
        """Shake no hands yet; `opened` is called with each route whose handshake is over."""
        self.engine = TlsEngine(reactor)
        self.opened = opened
        self.tls_name = ""
        self._pending: dict[int, RouteOpening] = {}
        self.prepare(options)()

    def prepare(self, options: TlsOptions) -> Callable[[], None]:
        """Return what makes new connections use these settings. Raises TlsError."""
        accepting, dialing = TlsContext(options), client_context(options)

        def commit() -> None:
            self.options, self.accepting, self.dialing = options, accepting.context, dialing
            self.not_after = accepting.certificates[0].not_after

        return commit

    def use_names_of(self, targets: Iterable[Target]) -> None:
        """Remember the first host name, for servers whose names are not known."""
        names = (target.host for target in targets if not is_address(target.host))
        self.tls_name = self.tls_name or next(names, "")

    def begin(self, route: Route) -> None:
        """Shake hands on a new connection."""
        opening = self._pending[route.rid] = RouteOpening(self, route)
        opening.begin()

    def timed_out(self, route: Route) -> bool:
        """Handle the deadline of a connection that is being opened; False: it is not."""
        opening = self._pending.get(route.rid)
        if opening is not None:
            opening.timed_out()
        return opening is not None

    def closed(self, route: Route) -> None:
        """Forget a connection."""
        self._pending.pop(route.rid, None)

    def check_pins(self, routes: Iterable[Route]) -> None:
        """Close the routes whose certificate is not one of the pinned ones, after a reload."""
        pins = self.options.pinned_certs
        for route in list(routes):
            if route.tls is not None and not peer.is_pinned(route.peer_certificates(), pins):
                route.close(ClosedReason.TLS_HANDSHAKE_FAILURE)


class RouteOpening:
    """One connection, until its handshake is over."""

    def __init__(self, openings: RouteOpenings, route: Route) -> None:
        self._openings = openings
        self._route = route
        self._options = openings.options  # a reload does not change them for this connection
        self.context: ssl.SSLContext = openings.dialing if route.is_dialed else openings.accepting
        self._name = ""

    def begin(self) -> None:
        """Wait for the peer's first record, or send ours."""
        route = self._route
        route.await_connect(round(self._options.timeout.total_seconds() * 1e9))
        role = "client" if route.is_dialed else "server"
        route.debug(f"Starting TLS route {role} handshake")
        framing = TlsFraming(self._openings.engine, route.endpoint, self)
        route.endpoint.frame(framing)
        if route.is_dialed:
            assert route.target is not None
            self._name = route.target.host
            if is_address(self._name) and self._openings.tls_name:
                self._name = self._openings.tls_name
            framing.connect(self._name)

    def handshake_done(self) -> None:
        """Begin the route's handshake, if the certificate is one of the pinned ones."""
        route, tls = self._route, route_tls(self._route)
        assert tls is not None
        pins = self._options.pinned_certs
        if pins and not peer.is_pinned(peer.certificates(tls), pins):
            self.handshake_failed(NOT_PINNED)
            return
        self._openings.closed(route)
        route.debug("TLS handshake complete")
        route.debug(f"TLS version {peer.version(tls)}, cipher suite {peer.cipher_suite(tls)}")
        self._openings.opened(route)

    def handshake_failed(self, error: ssl.SSLError | str) -> None:
        """Log the failure and close the connection, after OpenSSL's alert was sent."""
        openings = self._openings
        if isinstance(error, ssl.SSLCertVerificationError) and self._name == openings.tls_name:
            openings.tls_name = ""
        self._fail(failures.text_of(error))

    def handshake_ended(self, reason: ClosedReason) -> ClosedReason:
        """Return why a connection closes in its handshake."""
        if reason not in LOST:
            return reason
        is_end = reason is ClosedReason.CLIENT_CLOSED
        self._tell("EOF" if is_end else "connection reset by peer")
        return ClosedReason.TLS_HANDSHAKE_FAILURE

    def timed_out(self) -> None:
        """Close a connection whose handshake takes too long."""
        self._fail(TIMED_OUT)

    def _fail(self, text: str) -> None:
        self._tell(text)
        self._route.endpoint.linger()
        self._route.close(ClosedReason.TLS_HANDSHAKE_FAILURE)

    def _tell(self, text: str) -> None:
        self._route.error(f"TLS route handshake error: {text}")


def route_tls(route: Route) -> ssl.SSLObject | None:
    """Return the TLS of a connection; None: it has none, or has not begun its handshake."""
    framing = route.endpoint.framing
    return framing.tls if isinstance(framing, TlsFraming) else None


def is_address(host: str) -> bool:
    """Return whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
