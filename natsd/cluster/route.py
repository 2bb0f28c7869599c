"""A route: the connection to another server of the cluster.

    dialed      ──▶ CONNECT, then INFO at once or after the peer's INFO      (handshake.py)
    accepted    ──▶ INFO; the peer's CONNECT and INFO                        (handshake.py)
    registered  ──▶ interest and messages of its accounts, INFO about news   (compiled; news.py)

Messages and interest are compiled code (natsd.core.network.RouteSession). This module has what is
known of a route and its peer, its log lines, and the reading of CONNECT and INFO. What these lead
to is decided by `RouteEvents`.

Source: nats-server's `createRoute` and `route` (server/route.go), `markConnAsClosed`
(server/client.go).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from natsd.accounts import Account
from natsd.accounts.message_trace import TraceSource
from natsd.clients.log_lines import LogLines
from natsd.cluster.compression_mode import OFF
from natsd.cluster.dialer import Dial
from natsd.cluster.peer_info import (
    PROTOCOL_WITH_TRACES,
    BadFieldsError,
    PeerConnect,
    PeerInfo,
    decode_connect,
    decode_info,
)
from natsd.cluster.targets import Target
from natsd.config import Options
from natsd.core.network import Endpoint, Reactor, RouteSession, Session, Settings, TlsFraming
from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason, ErrorText

if TYPE_CHECKING:
    import ssl

    from natsd.accounts.request_times import RequestTimes
    from natsd.clients.tracing import Decision
    from natsd.cluster.compression import CompressionFraming
    from natsd.tls.peer import TlsState

HELD_MAX: Final = 4
"""INFO lines that wait for the end of a login."""


class RouteEvents(Protocol):
    """What decides about routes."""

    reactor: Reactor
    settings: Settings

    @property
    def server_options(self) -> Options:
        """The settings of the server."""

    def connect_received(self, route: "Route", connect: PeerConnect) -> None:
        """Handle the peer's CONNECT."""

    def info_received(self, route: "Route", info: PeerInfo) -> None:
        """Handle an INFO: the peer's first one, or news."""

    def pong_received(self, route: "Route") -> None:
        """Handle the answer to a PING, which measures the round trip time."""

    def opening_timed_out(self, route: "Route") -> bool:
        """Handle the deadline of a TLS handshake; False: there is none under way."""

    @property
    def request_times(self) -> "RequestTimes":
        """When measured requests of peers were delivered here."""

    @property
    def trace_source(self) -> TraceSource:
        """The server, as a trace of a message shows it."""

    def find_account(self, name: str) -> Account | None:
        """Return the account that the peer names; None: it cannot be one."""

    def route_closed(self, route: "Route") -> None:
        """Forget the route."""


class Route(LogLines, RouteSession):
    """The session of a connection that speaks the route protocol."""

    logger = logging.getLogger("natsd.route")
    kind: Final = "Router"

    def __init__(
        self,
        events: RouteEvents,
        rid: int,
        fd: int,
        ip: str,
        port: int,
        dial: Dial | None = None,
        transport: Any = None,
    ) -> None:
        """Create the session with its endpoint; `fd` is -1 if `transport` serves the connection.

        `dial` is what this server dialed; None: the peer did.
        """
        super().__init__(Endpoint(events.reactor, events.settings, fd, transport), rid)
        self._events = events
        self.ip = ip
        self.port = port
        self.is_dialed = dial is not None
        # A server that is dialed again may be another one now, of which nobody has told the others.
        self.is_dialed_first = dial is not None and (dial.is_first or dial.target.is_configured)
        self.is_solicited = dial is not None
        self.is_configured = dial is not None and dial.target.is_configured
        self.target: Target | None = None if dial is None else dial.target
        self.account_name = "" if dial is None else dial.account
        self.gossip_mode = 0 if dial is None else dial.gossip_mode
        self.remote_id = ""
        self.remote: PeerInfo | None = None  # None: the handshake is not over
        self.pool_index = -1
        self.has_no_pool = False
        self.must_reconnect = True
        self.retries_implicit = False
        self.compression = OFF
        self.compressor: CompressionFraming | None = None  # None: nothing is compressed
        self.has_negotiated = False
        self.has_connected = self.is_dialed
        self.connect: PeerConnect | None = None  # the peer's, if it dialed
        self.login: asyncio.Task[None] | None = None  # its check is under way
        self._held: list[bytes] = []  # INFO lines that wait for the login
        if events.server_options.trace:
            self.set_trace(True)

    # ---- events, called by the compiled connection

    def connect_received(self, json: bytes) -> None:
        """Handle the peer's CONNECT."""
        if self.trace:
            from natsd.clients.redact import redact_connect

            self.trace_operation("<<-", b"CONNECT " + redact_connect(json))
        try:
            connect = decode_connect(json)
        except BadFieldsError as error:
            self.refuse_fields("CONNECT", error)
            return
        self._events.connect_received(self, connect)

    def info_received(self, json: bytes) -> None:
        """Handle an INFO: the peer's first one, or news."""
        if self.trace:
            self.trace_operation("<<-", b"INFO " + json)
        if self.login is not None:
            if len(self._held) == HELD_MAX:
                self.close(ClosedReason.PROTOCOL_VIOLATION)
            self._held.append(json)
            return
        try:
            info = decode_info(json)
        except BadFieldsError as error:
            self.refuse_fields("INFO", error)
            return
        self._events.info_received(self, info)

    def refuse_fields(self, operation: str, error: BadFieldsError) -> None:
        """Close the connection because of CONNECT or INFO that cannot be read."""
        self.error(f"{operation}: {error}")
        self.close(ClosedReason.PROTOCOL_VIOLATION)

    def error_received(self, text: str) -> None:
        """Close the connection, because the peer reports an error."""
        self.error(f"Route Error {text}")
        self.close(ClosedReason.PARSE_ERROR)

    def pong_received(self) -> None:
        """Handle the answer to a PING."""
        self._events.pong_received(self)

    def authentication_timed_out(self) -> None:
        """Close a connection whose handshake takes too long."""
        if self._events.opening_timed_out(self):
            return
        self.debug(ErrorText.AUTHENTICATION_TIMEOUT)
        self.close_with_error(ErrorText.AUTHENTICATION_TIMEOUT, ClosedReason.AUTHENTICATION_TIMEOUT)

    def find_account(self, name: bytes) -> Account | None:
        """Return the account that the peer names; None: this server does not have it."""
        text = name.decode(errors="replace")
        account = self._events.find_account(text)
        if account is None:
            self.debug(f"Unknown account {quoted(text)}")
        return account

    def closed(self) -> None:
        """Unregister the connection, and dial it again if it is wanted."""
        assert self.reason is not None
        if self.login is not None:
            self.login.cancel()
            self.login = None
        remote = f" - Remote: {self.remote_name}" if self.remote_name else ""
        self.notice(f"Router connection closed: {self.reason.value}{remote}")
        self._events.route_closed(self)

    # ---- traces of messages

    def begin_trace(
        self, account: Account, subject: bytes, headers: bytes, size: int
    ) -> "Decision | None":
        """Return how to treat a message that may request a trace; None: it is delivered."""
        from natsd.cluster.traces import decide

        return decide(self, self._events.trace_source, account, subject, headers, size)

    def request_measured(self, account: Account, reply: bytes) -> None:
        """Remember when a request is delivered here whose latency the peer measures."""
        self._events.request_times.request(account.name, reply)

    def response_measured(self, reply: bytes, responder: Session | None) -> None:
        """Tell the peer how long a measured request took here."""
        self._events.request_times.response(reply, responder)

    def takes_traces(self) -> bool:
        """Return whether the peer records what becomes of a traced message."""
        return self.remote is not None and self.remote.proto >= PROTOCOL_WITH_TRACES

    # ---- login

    def login_decided(self) -> None:
        """Handle the INFO that waited for the end of the login's check."""
        self.login = None
        held, self._held = self._held, []
        for json in held:
            if self.reason is None:
                self.info_received(json)

    # ---- answers

    def refuse(self, text: str, reason: ClosedReason) -> None:
        """Log an error, tell the peer, and close."""
        self.error(text)
        self.close_with_error(text, reason)

    # ---- what is known of the peer

    @property
    def remote_name(self) -> str:
        """Name of the peer; empty: not known yet."""
        return "" if self.remote is None else self.remote.server_name

    @property
    def is_registered(self) -> bool:
        """Whether the route has a place in the table."""
        return self.pool_index >= 0

    @property
    def tls(self) -> "ssl.SSLObject | None":
        """The TLS of the connection after its handshake; None: it has none."""
        framing = self.endpoint.framing
        return framing.tls if isinstance(framing, TlsFraming) and framing.is_open else None

    def peer_certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that the peer presented, in DER; empty: none."""
        if self.tls is None:
            return ()
        from natsd.tls.peer import certificates

        return certificates(self.tls)

    @property
    def tls_state(self) -> "TlsState | None":
        """What was negotiated, and the peer's certificates; None: TLS is not used."""
        if self.tls is None:
            return None
        from natsd.tls.peer import state_of

        return state_of(self.tls, is_first=True)

    # ---- log lines (natsd/clients/log_lines.py)

    @property
    def server_options(self) -> Options:
        """The settings of the server."""
        return self._events.server_options

    def __str__(self) -> str:
        return f"{self.address} - rid:{self.rid}"
