"""The opening of a connection: what comes before its protocol, if that is not INFO alone.

    accept ─▶ INFO ─▶ ┌ PROXY header? ┐ ─▶ ┌ TLS? ┐ ─▶ handshake ─▶ (INFO) ─▶ CONNECT
              not yet └───────────────┘    └──────┘     or plain
              if TLS comes first

- A server that never had TLS or PROXY headers has no `Openings`; its clients are not concerned.
- With `handshake_first`, INFO follows the handshake. With a time to wait, a client that is silent
  for that long gets INFO as if TLS did not come first.
- With `allow_non_tls`, the first byte after the PROXY header says whether a client speaks TLS. One
  that says nothing during the time of a handshake is taken for plain.
- The PROXY header must come within `PROXY_TIMEOUT_S`, the handshake within `tls.timeout`; the time
  for CONNECT begins after that. Until then a connection takes 4 KiB a read at most, and a large
  PROXY header its 64 KiB.
- Each opening that fails closes its connection with a fitting reason and one log line, at debug
  level if the peer seems to be a probe or speaks another protocol.

Source: nats-server's `createClientEx` (server/server.go) and `doTLSHandshake` (server/client.go).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from natsd.clients.handshake_rate import HandshakeRate
from natsd.clients.proxy_protocol import BadHeader, Header, read_header
from natsd.core.network import NOT_TLS, Framing, Preface, TlsEngine, TlsFraming
from natsd.core.reasons import ClosedReason, ErrorText
from natsd.tls import failures, peer
from natsd.tls.context import TlsContext

if TYPE_CHECKING:
    from natsd.config import Options
    from natsd.core.network import Endpoint, Reactor

logger = logging.getLogger("natsd.server")

PROXY_TIMEOUT_S: Final = 5.0
NOT_PINNED: Final = "certificate not pinned"
TIMED_OUT: Final = "i/o timeout"
LOST: Final = (ClosedReason.CLIENT_CLOSED, ClosedReason.READ_ERROR, ClosedReason.WRITE_ERROR)
"""Reasons with which the peer ends a handshake."""
_HANDSHAKE_RECORD: Final = 0x16


class OpenedClient(Protocol):
    """The part of a client that its opening uses."""

    ip: str
    port: int

    @property
    def cid(self) -> int:
        """Number of the connection."""

    @property
    def endpoint(self) -> "Endpoint":
        """What reads and sends."""

    @property
    def reason(self) -> ClosedReason | None:
        """Why the connection is closed; None: it is open."""

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection after its handshake."""

    def peer_certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that the client presented, in DER."""

    def send_info(self) -> None:
        """Send the first INFO."""

    def await_opening(self, timeout_ns: int) -> None:
        """Have the opening's `timed_out` called after this time."""

    def begin_protocol(self) -> None:
        """Expect CONNECT."""

    def close(self, reason: ClosedReason) -> None:
        """Close the connection."""

    def close_with_error(self, text: str, reason: ClosedReason) -> None:
        """Send `-ERR` and close the connection."""

    def debug(self, text: str) -> None:
        """Log at debug level."""

    def error(self, text: str) -> None:
        """Log at error level."""


class Openings:
    """The openings of one server's clients. Raises TlsError if TLS cannot be set up."""

    def __init__(self, options: "Options", reactor: "Reactor") -> None:
        self.options = options
        self.reactor = reactor
        self.tls: TlsContext | None = None
        self.pending: dict[int, Opening] = {}
        self.handshakes = HandshakeRate(0)
        self._engine: TlsEngine | None = None
        self.prepare(options)()

    def prepare(self, options: "Options") -> Callable[[], None]:
        """Return what makes new connections use these settings, and the files as they are now.

        Connections that exist go on as they are. Raises TlsError.
        """
        tls = None if options.tls is None else TlsContext(options.tls)
        limit = 0 if options.tls is None else options.tls.connection_rate_limit

        def commit() -> None:
            self.options, self.tls = options, tls
            if self.handshakes.limit != limit:
                self.handshakes = HandshakeRate(limit)

        return commit

    @property
    def is_tls_first(self) -> bool:
        """Whether INFO waits for the handshake."""
        return self.tls is not None and self.tls.options.handshake_first is not None

    @property
    def engine(self) -> TlsEngine:
        """What the TLS connections share."""
        if self._engine is None:
            self._engine = TlsEngine(self.reactor)
        return self._engine

    def begin(self, client: OpenedClient) -> None:
        """Open a new connection, which got INFO unless TLS comes first."""
        if self.tls is None and not self.options.proxy_protocol:
            client.begin_protocol()
            return
        opening = self.pending[client.cid] = Opening(self, client)
        opening.begin()

    def is_pending(self, client: OpenedClient) -> bool:
        """Return whether the connection's protocol has not begun."""
        return client.cid in self.pending

    def timed_out(self, client: OpenedClient) -> bool:
        """Handle the deadline of a connection that is being opened; False: it is not."""
        opening = self.pending.get(client.cid)
        if opening is not None:
            opening.timed_out()
        return opening is not None

    def check_pins(self, clients: Iterable[OpenedClient]) -> None:
        """Close the clients whose certificate is not one of the pinned ones, after a reload."""
        pins = () if self.tls is None else self.tls.options.pinned_certs
        if not pins:
            return
        for client in list(clients):
            if client.tls is not None and not peer.is_pinned(client.peer_certificates(), pins):
                client.close(ClosedReason.TLS_HANDSHAKE_FAILURE)

    def closed(self, client: OpenedClient) -> None:
        """Forget a connection that is being torn down."""
        opening = self.pending.pop(client.cid, None)
        if opening is not None:
            opening.cancel()


class Opening:
    """One connection, until its protocol begins. TLS tells it how the handshake ended."""

    __slots__ = ("_client", "_fallback", "_first", "_openings", "_preface", "_proxy", "_tls")

    def __init__(self, openings: Openings, client: OpenedClient) -> None:
        self._openings = openings
        self._client = client
        self._proxy: Header | None = None
        self._preface: FirstBytes | None = None
        self._fallback: asyncio.TimerHandle | None = None
        self._tls = openings.tls  # a reload does not change it for this connection
        self._first = openings.is_tls_first

    def begin(self) -> None:
        """Wait for the first bytes or for the handshake."""
        client, openings, tls = self._client, self._openings, self._tls
        fallback = timedelta(0)
        if self._first and tls is not None and tls.options.handshake_first is not None:
            fallback = tls.options.handshake_first
        if fallback:
            self._fallback = openings.reactor.loop.call_later(
                fallback.total_seconds(), self._fall_back
            )
        if openings.options.proxy_protocol:
            client.await_opening(round(PROXY_TIMEOUT_S * 1e9))
        elif tls is not None:
            client.await_opening(self._handshake_ns)
        if openings.options.proxy_protocol or self._must_sniff or fallback:
            self._preface = FirstBytes(self)
        else:
            self._frame()

    @property
    def context(self) -> ssl.SSLContext:
        """The settings of a handshake that begins now."""
        assert self._tls is not None
        return self._tls.context

    # ---- the first bytes

    def decide(self, data: bytes) -> tuple[int, Framing | None] | None:
        """Return how many of the first bytes are used up, and whether TLS follows.

        None: more are needed, or the connection closes.
        """
        self._cancel_fallback()
        used = 0
        if self._openings.options.proxy_protocol:
            header = self._proxy or self._read_header(data)
            if header is None:
                return None
            used = header.size
        if self._must_sniff:
            if used == len(data):
                return None
            if data[used] != _HANDSHAKE_RECORD:
                self._tls = None
        if self._tls is None:
            self._over()
            return used, None
        framing = self._new_framing()
        return None if framing is None else (used, framing)

    def _read_header(self, data: bytes) -> Header | None:
        client = self._client
        try:
            header = read_header(data)
        except BadHeader as error:
            self._fail_header(str(error))
            return None
        if header is None:
            return None
        self._proxy = header
        if header.ip:
            client.ip, client.port = header.ip, header.port
        if self._tls is not None:
            client.await_opening(self._handshake_ns)
        return header

    def _fail_header(self, reason: str) -> None:
        client = self._client
        logger.warning(
            "Error reading PROXY protocol header from %s:%d: %s", client.ip, client.port, reason
        )
        client.close(ClosedReason.PROTOCOL_VIOLATION)

    def _fall_back(self) -> None:
        """Send INFO to a client that has sent nothing: it waits for INFO."""
        self._fallback = None
        client = self._client
        if client.reason is not None or self._preface is None:
            return
        self._first = False
        client.send_info()
        if not self._must_sniff and not self._openings.options.proxy_protocol:
            framing = self._new_framing()
            if framing is not None:
                self._preface.end(framing)

    @property
    def _must_sniff(self) -> bool:
        """Whether the client may choose between TLS and none."""
        return self._tls is not None and not self._first and self._openings.options.allow_non_tls

    # ---- TLS

    @property
    def _handshake_ns(self) -> int:
        assert self._tls is not None
        return round(self._tls.options.timeout.total_seconds() * 1e9)

    def _frame(self) -> None:
        framing = self._new_framing()
        if framing is not None:
            self._client.endpoint.frame(framing)

    def _new_framing(self) -> TlsFraming | None:
        """Return the framing of a handshake; None: the connection is refused."""
        client, openings = self._client, self._openings
        if not openings.handshakes.allow(openings.reactor.loop.time()):
            client.close_with_error(
                ErrorText.TLS_THROTTLED, ClosedReason.MAXIMUM_CONNECTIONS_EXCEEDED
            )
            return None
        client.debug("Starting TLS client connection handshake")
        framing = TlsFraming(openings.engine, client.endpoint, self)
        framing.is_first = self._first
        return framing

    def handshake_done(self) -> None:
        """Begin the protocol, if the client's certificate is one of the pinned ones."""
        client, tls = self._client, client_tls(self._client)
        assert tls is not None
        assert self._tls is not None
        pins = self._tls.options.pinned_certs
        if pins and not peer.is_pinned(peer.certificates(tls), pins):
            self.handshake_failed(NOT_PINNED)
            return
        client.debug("TLS handshake complete")
        client.debug(f"TLS version {peer.version(tls)}, cipher suite {peer.cipher_suite(tls)}")
        if self._first:
            client.send_info()
        self._over()

    def handshake_failed(self, error: ssl.SSLError | str) -> None:
        """Log the failure and close the connection, after OpenSSL's alert was sent."""
        client = self._client
        if error == NOT_TLS:
            self._answer_plainly()
        self._tell(failures.text_of(error), is_probe=error == NOT_TLS)
        client.endpoint.linger()
        client.close(ClosedReason.TLS_HANDSHAKE_FAILURE)

    def handshake_ended(self, reason: ClosedReason) -> ClosedReason:
        """Return why a connection closes in its handshake."""
        if reason not in LOST:
            return reason
        framing = self._client.endpoint.framing
        if reason is ClosedReason.CLIENT_CLOSED:
            has_begun = isinstance(framing, TlsFraming) and framing.has_begun
            self._tell("unexpected EOF" if has_begun else "EOF")
        else:
            self._tell("connection reset by peer")
        return ClosedReason.TLS_HANDSHAKE_FAILURE

    def _tell(self, text: str, *, is_probe: bool = False) -> None:
        (self._client.debug if is_probe else self._client.error)(f"TLS handshake error: {text}")

    def _answer_plainly(self) -> None:
        """Tell a client that does not speak TLS that it must."""
        framing = self._client.endpoint.framing
        if isinstance(framing, TlsFraming) and not framing.has_begun:
            framing.send_unframed(f"-ERR '{ErrorText.TLS_REQUIRED}'\r\n".encode())

    # ---- the end

    def timed_out(self) -> None:
        """Close a connection whose header or handshake did not come in time."""
        client, preface = self._client, self._preface
        if client.endpoint.framing is not None:
            self._answer_plainly()
            self._tell(TIMED_OUT, is_probe=True)
            client.endpoint.linger()
            client.close(ClosedReason.TLS_HANDSHAKE_FAILURE)
        elif self._openings.options.proxy_protocol and self._proxy is None:
            self._fail_header(f"failed to read protocol version: {TIMED_OUT}")
        elif preface is not None and self._must_sniff:
            self._tls = None
            self._over()
            preface.end(None)
        else:
            self._tell(TIMED_OUT, is_probe=True)
            client.close(ClosedReason.TLS_HANDSHAKE_FAILURE)

    def cancel(self) -> None:
        """Stop, because the connection is closed."""
        self._cancel_fallback()
        self._preface = None

    def _cancel_fallback(self) -> None:
        if self._fallback is not None:
            self._fallback.cancel()
            self._fallback = None

    def _over(self) -> None:
        """Begin the protocol."""
        self._cancel_fallback()
        self._preface = None
        self._openings.pending.pop(self._client.cid, None)
        self._client.begin_protocol()


class FirstBytes(Preface):
    """What stands before the protocol until the first bytes say what they are."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening._client.endpoint)
        self._opening = opening

    def decide(self, data: bytes) -> tuple[int, Framing | None] | None:
        """Return how many of the first bytes are used up, and whether TLS follows."""
        return self._opening.decide(data)


def client_tls(client: OpenedClient) -> ssl.SSLObject | None:
    """Return the TLS of a connection; None: it has none, or has not begun its handshake."""
    framing = client.endpoint.framing
    return framing.tls if isinstance(framing, TlsFraming) else None
