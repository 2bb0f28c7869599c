"""One connection to one server: socket, TLS, authentication, and received events.

    connect ─▶ [TLS first] ─▶ INFO ─▶ [TLS] ─▶ CONNECT, PING ─▶ PONG
    receive ─▶ PING is answered, INFO stored, -ERR raised
            └▶ a ReceivedMessage or a FrameHandler is returned

Promise
- Each blocking step of `connect` takes at most `connect_timeout_s`; `connect` raises
  AuthorizationError if the server refuses the credentials, else ConnectError, and leaves no socket
  open.
- After `receive` or `send` raised ConnectionLost, AuthorizationError or ProtocolViolation, the
  connection is closed. The exception is a permissions violation, for which the server does not
  close.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from typing import Any, Final

from natsd.spark.errors import (
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionLost,
    ProtocolViolation,
)
from natsd.spark.wire.connecting import Address, ClientOptions
from natsd.spark.wire.frames import Control, FrameHandler, FrameParser, ReceivedMessage
from natsd.spark.wire.signing import read_credentials, read_seed
from natsd.version import VERSION

RECEIVE_BYTES: Final = 1 << 20
REFUSALS: Final = ("authorization", "authentication", "permissions", "revoked")


class NatsConnection:
    """An open connection, created by `connect`; `info` is the server's last INFO."""

    def __init__(self, options: ClientOptions, address: Address, sock: socket.socket) -> None:
        self.address = address
        self.info: dict[str, Any] = {}
        self.parser = FrameParser(RECEIVE_BYTES)
        self.socket = sock
        self.is_open = True
        self.received_bytes = 0
        self._send_timeout_s = max(options.request_timeout_s, 1.0)

    def close(self) -> None:
        """Close the socket; further calls do nothing."""
        self.is_open = False
        self.parser.clear()
        self.socket.close()

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes; blocks until they are sent. Raises ConnectionLost."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        try:
            self.socket.settimeout(self._send_timeout_s)
            self.socket.sendall(data)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {reason_of(error)}") from None

    def receive(self, deadline: float) -> ReceivedMessage | FrameHandler | None:
        """Return the next event; None: nothing came before `deadline` (of time.monotonic).

        Blocks on the socket. Raises ConnectionLost, AuthorizationError, ProtocolViolation.
        """
        while True:
            event = self._next()
            if event is None:
                if not self._fill(deadline):
                    return None
            elif isinstance(event, Control):
                self._control(event)
            else:
                return event

    def pong(self, deadline: float) -> None:
        """Send a PING and wait for the PONG: the server has then read everything sent before.

        Messages that arrive meanwhile are dropped. Raises ConnectionLost at `deadline`.
        """
        self.send(b"PING\r\n")
        while True:
            event = self._next()
            if isinstance(event, Control) and event.verb == "PONG":
                return
            if isinstance(event, Control):
                self._control(event)
            elif event is None and not self._fill(deadline):
                raise ConnectionLost(f"{self.address} does not answer")

    def _next(self) -> ReceivedMessage | FrameHandler | Control | None:
        try:
            return self.parser.next()
        except ProtocolViolation as error:
            self.close()
            raise ProtocolViolation(f"{self.address}: {error}") from None

    def _fill(self, deadline: float) -> bool:
        """Receive more bytes; return False if none came before `deadline`."""
        remaining = deadline - time.monotonic()
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        try:
            self.socket.settimeout(max(remaining, 0.0))
            count = self.socket.recv_into(self.parser.room())
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {reason_of(error)}") from None
        if count == 0:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection")
        self.parser.received(count)
        self.received_bytes += count
        return True

    def _control(self, control: Control) -> None:
        if control.verb == "PING":
            self.send(b"PONG\r\n")
        elif control.verb == "INFO":
            self._remember(control.text)
        elif control.verb == "-ERR":
            self._refused(control.text.strip("'"))
        elif control.verb not in ("PONG", "+OK"):
            self.close()
            raise ProtocolViolation(f"{self.address} does not speak NATS")

    def _remember(self, text: str) -> None:
        try:
            info = json.loads(text)
        except ValueError:
            info = None
        if not isinstance(info, dict):
            self.close()
            raise ProtocolViolation(f"{self.address} does not speak NATS")
        self.info = info

    def _refused(self, text: str) -> None:
        if not text.lower().startswith("permissions violation"):
            self.close()
        raise error_of(text)(f"{self.address}: {text}")

    # Connecting

    def expect_info(self, deadline: float) -> None:
        """Wait for the server's INFO. Raises ConnectionLost at `deadline`."""
        while not self.info:
            event = self._next()
            if event is None:
                if not self._fill(deadline):
                    raise ConnectionLost(f"{self.address} does not greet")
            elif isinstance(event, Control):
                self._control(event)

    def secure(self, options: ClientOptions) -> None:
        """Upgrade the socket to TLS. Raises ConnectError."""
        context = tls_context(options)
        name = options.tls_server_name or self.address.host
        try:
            self.socket.settimeout(options.connect_timeout_s)
            self.socket = context.wrap_socket(self.socket, server_hostname=name)
        except (OSError, ValueError) as error:
            raise ConnectError(f"{self.address}: TLS: {reason_of(error)}") from None


def connect(options: ClientOptions, address: Address) -> NatsConnection:
    """Connect to one server; blocks. Raises AuthorizationError, ConnectError, or BadKey."""
    try:
        sock = socket.create_connection((address.host, address.port), options.connect_timeout_s)
    except OSError as error:
        raise ConnectError(f"{address}: {reason_of(error)}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = NatsConnection(options, address, sock)
    try:
        _enter(options, address, connection)
    except (ConnectionLost, ProtocolViolation) as error:
        connection.close()
        raise ConnectError(str(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _enter(options: ClientOptions, address: Address, connection: NatsConnection) -> None:
    deadline = time.monotonic() + options.connect_timeout_s
    if options.tls_handshake_first:
        connection.secure(options)
    connection.expect_info(deadline)
    info = connection.info
    offers = info.get("tls_required") or info.get("tls_available")
    wants = options.wants_tls or address.tls
    if wants and not offers and not options.tls_handshake_first:
        raise ConnectError(f"{address} does not offer TLS, which is asked for")
    if not options.tls_handshake_first and (info.get("tls_required") or wants):
        connection.secure(options)
    words = {**greeting(options), **proof(options, address, info.get("nonce"))}
    connection.send(f"CONNECT {json.dumps(words)}\r\n".encode())
    connection.pong(deadline)


def greeting(options: ClientOptions) -> dict[str, Any]:
    """Return the fields of CONNECT that do not depend on the user."""
    return {
        "verbose": False,
        "pedantic": False,
        "lang": "python",
        "version": VERSION,
        "name": options.name,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
    }


def proof(options: ClientOptions, address: Address, nonce: object) -> dict[str, str]:
    """Return the fields of CONNECT that authenticate the client. Raises BadKey.

    `nonce` is the server's, which a key signs; None: the server sent none.
    """
    asked = nonce if isinstance(nonce, str) else ""
    if options.credentials:
        jwt, seed = read_credentials(options.credentials)
        return {"jwt": jwt, **({"sig": seed.sign(asked)} if asked else {})}
    if options.nkey:
        seed = read_seed(options.nkey)
        return {"nkey": seed.public, **({"sig": seed.sign(asked)} if asked else {})}
    if options.user:
        return {"user": options.user, "pass": options.password or ""}
    if options.token:
        return {"auth_token": options.token}
    if address.user and address.password:
        return {"user": address.user, "pass": address.password}
    return {"auth_token": address.user} if address.user else {}


def tls_context(options: ClientOptions) -> ssl.SSLContext:
    """Return the TLS context for the options. Raises ConnectError."""
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        names = (options.tls_ca, options.tls_cert, options.tls_key)
        files = ", ".join(os.path.abspath(name) for name in names if name)
        where = f"{files} cannot be used on {socket.gethostname()}"
        raise ConnectError(f"TLS: {where}: {reason_of(error)}") from None
    if options.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def error_of(text: str) -> type[ClientError]:
    """Return the error class for the text of a server's -ERR."""
    lowered = text.lower()
    return AuthorizationError if any(word in lowered for word in REFUSALS) else ConnectionLost


def reason_of(error: Exception) -> str:
    """Return the reason of the error as one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return str(error).partition("\n")[0]
