"""The client connection: INFO, CONNECT, log lines, and data for monitoring.

- The path of messages is compiled code in natsd/core/client_session.pyx. This module handles events
  that are rare, such as the start and the end of a connection.
- A client is in its server's `clients` from accept to teardown. Afterwards a `ClosedClient` is in
  the server's ring of closed clients.

Source: nats-server's server/client.go: `processConnect`, `processPing`, `processInfo`,
`traceMsgInternal`.
"""

import asyncio
import binascii
import logging
import os
import sys
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from natsd.accounts import Account, AccountDirectory
from natsd.auth import NO_LIMITS, REFUSED, Authenticator, Verdict
from natsd.clients.log_lines import LogLines
from natsd.clients.pending_logins import PendingLogins
from natsd.config import Options
from natsd.core.network import ClientSession, Endpoint, Framing, Reactor, Settings, TlsFraming
from natsd.core.quoting import quoted
from natsd.core.reasons import ClosedReason, ErrorText

if TYPE_CHECKING:
    import ssl

    from natsd.clients.connect import ConnectOptions
    from natsd.clients.openings import Openings
    from natsd.clients.subscription_info import SubscriptionInfo
    from natsd.clients.tracing import Decision
    from natsd.core.routing import PermissionRules
    from natsd.tls.peer import TlsState

PROTOCOL_ASYNC_INFO: Final = 1
HPUB_WORDS_MIN: Final = 3
"""Arguments of HPUB without a reply: a subject and two sizes. The parser may have consumed the
operation's name before."""
TOO_LARGE: Final = "maximum payload exceeded"
PROTOCOLS: Final = (0, 1)
NONCE_BYTES: Final = 11
_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")


def new_nonce() -> bytes:
    """Return a random text for a client to sign."""
    return binascii.b2a_base64(os.urandom(NONCE_BYTES), newline=False)[:-1].translate(_FOR_URLS)


def _lower(one: int, other: int) -> int:
    """Return the lower one of two limits; below 0: none."""
    return max(one, other) if one < 0 or other < 0 else min(one, other)


def claimed_user(connect: "ConnectOptions") -> str:
    """Return as what a client tries to log in, for the log; empty: without credentials."""
    if connect.nkey:
        return f"Nkey {quoted(connect.nkey)}"
    if connect.user:
        return f"User {quoted(connect.user)}"
    return 'Token "[REDACTED]"' if connect.auth_token else ""


class ClientHost(Protocol):
    """The part of the server that its clients use."""

    options: Options
    reactor: Reactor
    settings: Settings
    clients: "dict[int, Client]"
    accounts: AccountDirectory
    logins: PendingLogins
    openings: "Openings | None"  # None: INFO comes at once, and nothing before CONNECT

    @property
    def authenticator(self) -> Authenticator:
        """What decides over each CONNECT."""
        ...

    def info(
        self,
        cid: int,
        ip: str,
        account: Account | None = None,
        *,
        nonce: bytes = b"",
        max_payload: int = 0,
    ) -> bytes:
        """Return the INFO line for a client; after CONNECT, with its account.

        `nonce` is the text that the client signs; empty: the line has none. `max_payload` is the
        client's own limit; 0: it has that of the server.
        """
        ...

    def lame_duck_info(self, cid: int, ip: str) -> bytes:
        """Return the INFO line that tells a client to connect to another server."""
        ...

    def client_connected(self, client: "Client", left: Account | None) -> None:
        """Announce a client that was accepted; `left` is the account that it was in before."""
        ...

    def client_refused(self, client: "Client", told: str) -> None:
        """Announce a client whose login was refused, and whose connection has a reason.

        `told` is the name of the account that is told; empty: that of the client.
        """
        ...

    def client_closed(self, client: "Client") -> None:
        """Remember a client that is being torn down, and that its account does not count."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the server's fields in a message that it publishes about itself."""
        ...

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""
        ...


class Client(LogLines, ClientSession):
    """The session of a connection that speaks the client protocol."""

    __slots__ = ("_connect", "_is_outdated", "_login", "_verdict", "host", "ip", "nonce", "port")

    logger = logging.getLogger("natsd.client")
    kind: Final = "Client"
    account: Account | None

    def __init__(
        self,
        host: ClientHost,
        cid: int,
        fd: int,
        ip: str,
        port: int,
        transport: Any = None,
        framing: Framing | None = None,
    ) -> None:
        """Create the session with its endpoint; `fd` is -1 if `transport` serves the connection.

        `framing` stands between them if there is one.
        """
        super().__init__(Endpoint(host.reactor, host.settings, fd, transport), cid)
        if framing is not None:
            self.endpoint.frame(framing)
        self.host = host
        self._connect: ConnectOptions | None = None
        self._login: asyncio.Task[None] | None = None
        self._is_outdated = False  # the awaited verdict does not count: it must be asked for again
        self._verdict: Verdict | None = None
        self.ip = ip
        self.port = port
        self.nonce = new_nonce() if host.authenticator.needs_nonce else b""
        if host.options.trace:
            self.set_trace(True)

    def welcome(self) -> None:
        """Send INFO and start to serve, or close if there are `max_connections` already.

        Raises OSError if the system cannot watch the socket.
        """
        host = self.host
        self.debug("Client connection created")
        self._join(host.accounts.default)
        self.endpoint.open()
        limit = host.options.max_connections
        if host.openings is None or not host.openings.is_tls_first:
            self.send_info()
        if limit < 1 or len(host.clients) >= limit:
            self.refuse_connection()
            return
        host.clients[self.cid] = self
        if host.openings is not None:
            host.openings.begin(self)
        elif host.authenticator.is_required:
            self.await_connect(self._login_timeout_ns)

    def send_info(self) -> None:
        """Send the first INFO."""
        ip = self.ip
        if self.host.options.proxy_protocol and self.endpoint.framing is None:
            ip = ""  # that of the proxy, until the header has come
        self.send_protocol(self.host.info(self.cid, ip, nonce=self.nonce))

    def begin_protocol(self) -> None:
        """Expect CONNECT, after what came before: a PROXY header, or a TLS handshake."""
        self.opening_over()
        if self.host.authenticator.is_required:
            waited_ns = time.monotonic_ns() - self.start_ns
            self.await_connect(self._login_timeout_ns + waited_ns)

    @property
    def _login_timeout_ns(self) -> int:
        return round(self.host.options.login_timeout.total_seconds() * 1e9)

    def refuse_connection(self) -> None:
        """Close the connection because there are more than `max_connections`."""
        self.error(ErrorText.MAXIMUM_CONNECTIONS)
        self.close_with_error(
            ErrorText.MAXIMUM_CONNECTIONS, ClosedReason.MAXIMUM_CONNECTIONS_EXCEEDED
        )

    def _join(self, account: Account) -> None:
        """Move the connection into an account."""
        if account is not self.account:
            if self.account is not None:
                self.account.connections -= 1
            account.connections += 1
            self.bind_account(account, account.sublist, account.counters)

    # ---- operations, called by the compiled connection

    def connect_received(self, json: bytes) -> None:
        """Handle a CONNECT: ask for the verdict over it, and apply that at once or later."""
        from natsd.clients.connect import (  # not before they are used
            BadConnectError,
            decode_connect,
        )

        if self.trace:
            from natsd.clients.redact import redact_connect

            self.trace_operation("<<-", b"CONNECT " + redact_connect(json))
        try:
            connect = decode_connect(json, self._connect)
        except BadConnectError as error:
            self.error(f"CONNECT: {error}")
            self.close(ClosedReason.PROTOCOL_VIOLATION)
            return
        if self._connect is not None:
            self.drop_subscriptions()
        self._end_check()
        self._remember(connect)
        if connect.account or connect.new_account:
            self._refuse(REFUSED)
            return
        verdict = self.host.authenticator.authenticate(self, connect)
        if isinstance(verdict, Verdict):
            self._decided(connect, verdict)
        else:
            self.suspend_reading(self._login_timeout_ns)
            self._login = self.host.logins.begin(self._await_verdict(connect, verdict))

    def _end_check(self) -> None:
        """End the awaited check of a login, if there is one, before another CONNECT is decided."""
        if self._login is not None:
            self._login.cancel()
            self._login = None
            self._is_outdated = False

    async def _await_verdict(self, connect: "ConnectOptions", awaited: Awaitable[Verdict]) -> None:
        """Apply the awaited verdict over a CONNECT, then the operations that follow it."""
        verdict = await self._outcome(connect, awaited)
        self._login = None
        if self.reason is None:
            self.endpoint.resume_reading(lambda: self._decided(connect, verdict))

    async def _outcome(self, connect: "ConnectOptions", awaited: Awaitable[Verdict]) -> Verdict:
        """Return an awaited verdict; it refuses if the authenticator raises.

        If `check_login` was called meanwhile, the settings may have changed since the verdict was
        asked for: then it is asked for again.
        """
        try:
            verdict = await awaited
            while self._is_outdated:
                self._is_outdated = False
                asked = self.host.authenticator.authenticate(self, connect)
                verdict = asked if isinstance(asked, Verdict) else await asked
        except Exception:
            self.logger.exception("A client is refused because its authentication failed")
            return REFUSED
        return verdict

    def _decided(self, connect: "ConnectOptions", verdict: Verdict) -> None:
        """Refuse the client, or accept it as the verdict says and apply the options."""
        if self._accept(verdict):
            self._negotiate(connect)

    def _accept(self, verdict: Verdict) -> bool:
        """Join the account of the verdict with its permissions and limits, if that is possible."""
        account = None if verdict.account is None else self.host.accounts.find(verdict.account)
        if account is None:
            self._refuse(verdict)
        elif account.is_full_for(self.account):
            self.account_full()
        else:
            left = self.account
            self.connected()
            self._join(account)
            self._apply(verdict)
            self.host.client_connected(self, left)
            return True
        return False

    def _apply(self, verdict: Verdict) -> None:
        """Apply permissions, limits and expiry of a verdict."""
        self._verdict = verdict
        self.set_permissions(verdict.permissions)
        expires_ns = 0
        if verdict.expires_ns:
            left_ns = verdict.expires_ns - self.host.now_ns()
            expires_ns = max(1, time.monotonic_ns() + left_ns)
        self.expire_at(expires_ns)
        self.apply_account_limits()

    def apply_account_limits(self) -> None:
        """Apply the lower ones of the user's and the account's limits.

        A connection that has more subscriptions than allowed now is closed.
        """
        most, payload = NO_LIMITS if self._verdict is None else self._verdict.limits
        limits = None if self.account is None else self.account.limits
        if limits is not None:
            most = _lower(most, limits.max_subscriptions)
            payload = _lower(payload, limits.max_payload)
        self.set_own_limits(most, payload)
        if 0 <= most < self.num_subscriptions:
            self.error(ErrorText.MAXIMUM_SUBSCRIPTIONS)
            self.close_with_error(
                ErrorText.MAXIMUM_SUBSCRIPTIONS, ClosedReason.MAXIMUM_SUBSCRIPTIONS_EXCEEDED
            )

    def connect_omitted(self) -> bool:
        """Accept a client whose first operation is not CONNECT, if it needs no credentials."""
        from natsd.clients.connect import ConnectOptions

        verdict = self.host.authenticator.authenticate(self, ConnectOptions())
        if isinstance(verdict, Verdict):
            return verdict.account is not None and self._accept(verdict)
        asyncio.ensure_future(verdict).cancel()
        return False

    def check_login(self) -> None:
        """Apply what the authenticator says now, after a reload, about a connected client.

        A client whose credentials are not accepted any more is closed, and so is one that belongs
        to another account now. Changed permissions end the subscriptions that they forbid. A client
        that has not sent CONNECT must send it, if that is required now; it is closed if it has
        subscribed already. A verdict that is awaited is asked for again when it is there.
        """
        connect = self._connect
        if connect is None and self._verdict is not None:
            from natsd.clients.connect import ConnectOptions

            connect = ConnectOptions()  # as `connect_omitted` accepted it
        if connect is None:
            openings = self.host.openings
            is_opening = openings is not None and openings.is_pending(self)
            if not self.host.authenticator.is_required or is_opening:
                return
            if self.num_subscriptions:  # it must not receive messages until it has logged in
                self._refuse(REFUSED)
            else:
                self.await_connect(self._login_timeout_ns)
        elif self._login is not None:
            self._is_outdated = True
        else:
            verdict = self.host.authenticator.authenticate(self, connect)
            if isinstance(verdict, Verdict):
                self._apply_again(verdict)
            else:
                self._login = self.host.logins.begin(self._await_check(connect, verdict))

    def user_removed(self) -> None:
        """Close the connection, because its user is gone from the settings."""
        self._refuse(REFUSED)

    async def _await_check(self, connect: "ConnectOptions", awaited: Awaitable[Verdict]) -> None:
        """Apply the awaited verdict over a connected client; it is served meanwhile."""
        verdict = await self._outcome(connect, awaited)
        self._login = None
        if self.reason is None:
            self._apply_again(verdict)

    def _apply_again(self, verdict: Verdict) -> None:
        """Apply a new verdict over a connected client, or close it."""
        if verdict.account is None or verdict.account != self.account_name:
            self._refuse(verdict)
        else:
            self._apply(verdict)
            self.drop_forbidden_subscriptions()

    def apply_permissions(self, permissions: "PermissionRules | None") -> None:
        """Apply other permissions of an accepted client, and the limits of its account.

        Subscriptions that are not allowed any more end.
        """
        assert self._verdict is not None
        self._apply(replace(self._verdict, permissions=permissions))
        self.drop_forbidden_subscriptions()

    def _remember(self, connect: "ConnectOptions") -> None:
        """Keep the options; equal language and version texts of many clients are shared."""
        connect.lang = sys.intern(connect.lang)
        connect.version = sys.intern(connect.version)
        self._connect = connect

    def _refuse(self, verdict: Verdict) -> None:
        """Close the connection, and log as what the client tried to log in."""
        if verdict.reason:
            self.debug(verdict.reason)
        user = "" if self._connect is None else claimed_user(self._connect)
        self.error(f"authentication error - {user}" if user else "authentication error")
        reason = verdict.closed_reason if verdict.account is None else REFUSED.closed_reason
        self.close_with_error(ErrorText.AUTHORIZATION_VIOLATION, reason)
        self.host.client_refused(self, verdict.event_account)

    def authentication_expired(self) -> None:
        """Close the connection, because the user's credentials have expired."""
        self._end_login(ErrorText.USER_AUTHENTICATION_EXPIRED, ClosedReason.AUTHENTICATION_EXPIRED)

    def account_expired(self) -> None:
        """Close the connection, because its account has expired."""
        self._end_login(
            ErrorText.ACCOUNT_AUTHENTICATION_EXPIRED, ClosedReason.AUTHENTICATION_EXPIRED
        )

    def credentials_revoked(self) -> None:
        """Close the connection, because the user's credentials were revoked."""
        self._end_login(ErrorText.USER_AUTHENTICATION_REVOKED, ClosedReason.CREDENTIALS_REVOKED)

    def login_lost(self) -> None:
        """Close the connection, because the user has no right to it any more."""
        self._end_login(ErrorText.AUTHORIZATION_VIOLATION, ClosedReason.AUTHENTICATION_FAILURE)

    def account_full(self) -> None:
        """Close the connection, because its account has more than it may have."""
        self.error(ErrorText.MAXIMUM_ACCOUNT_CONNECTIONS)
        self.close_with_error(
            ErrorText.MAXIMUM_ACCOUNT_CONNECTIONS,
            ClosedReason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED,
        )

    def _end_login(self, text: str, reason: ClosedReason) -> None:
        self.debug(text)
        self.close_with_error(text, reason)

    def _negotiate(self, connect: "ConnectOptions") -> None:
        headers = connect.headers and not self.host.options.no_header_support
        self.negotiate(
            connect.verbose, connect.pedantic, connect.echo, headers, connect.no_responders
        )
        if connect.protocol not in PROTOCOLS:
            self.error(ErrorText.INVALID_CLIENT_PROTOCOL)
            self.close_with_error(
                ErrorText.INVALID_CLIENT_PROTOCOL, ClosedReason.BAD_CLIENT_PROTOCOL_VERSION
            )
        elif connect.no_responders and not headers:
            self.error(ErrorText.NO_RESPONDERS_REQUIRES_HEADERS)
            self.close_with_error(
                ErrorText.NO_RESPONDERS_REQUIRES_HEADERS,
                ClosedReason.NO_RESPONDERS_REQUIRES_HEADERS,
            )
        elif connect.verbose:
            self.send_ok()

    def info_received(self, json: bytes) -> None:
        """Ignore an INFO, which clients need not send; close the connection if it is not JSON."""
        from natsd.clients.connect import is_json_object

        if not is_json_object(json):
            self.close(ClosedReason.PROTOCOL_VIOLATION)

    def first_pong(self) -> None:
        """Send INFO with the account, if the client supports asynchronous INFO."""
        if self._connect is not None and self._connect.protocol >= PROTOCOL_ASYNC_INFO:
            self.send_protocol(
                self.host.info(self.cid, self.ip, self.account, max_payload=self.payload_max)
            )

    def begin_trace(self, subject: bytes, headers: bytes, size: int) -> "Decision | None":
        """Return how to trace a message whose headers may request a trace (see `decide`)."""
        from natsd.clients.tracing import decide

        return decide(self, subject, headers, size)

    def trace_oversized(self, line: bytes, headers: bytes) -> None:
        """Send the trace, if the headers request one, of a message that exceeds `max_payload`."""
        from natsd.clients.tracing import decide

        words = line.split()
        if len(words) > HPUB_WORDS_MIN and words[0].upper() == b"HPUB":
            del words[0]
        decision = decide(self, words[0], headers, int(words[-1]), TOO_LARGE)
        if decision is not None and decision.trace is not None:
            decision.trace.send()

    def announce_lame_duck(self) -> None:
        """Send INFO with `ldm`, if the client supports asynchronous INFO."""
        if self.takes_info:
            self.send_protocol(self.host.lame_duck_info(self.cid, self.ip))

    def announce_info(self) -> None:
        """Send INFO, which has changed, if the client supports asynchronous INFO."""
        if self.takes_info:
            self.send_protocol(self.host.info(self.cid, self.ip, max_payload=self.payload_max))

    @property
    def takes_info(self) -> bool:
        """Whether the client supports asynchronous INFO, and had its first PONG."""
        connect = self._connect
        return (
            connect is not None and connect.protocol >= PROTOCOL_ASYNC_INFO and self.first_pong_sent
        )

    def authentication_timed_out(self) -> None:
        """Close a connection that did not authenticate in time, or did not open in time."""
        if self.host.openings is not None and self.host.openings.timed_out(self):
            return
        self.debug("Authentication Timeout")
        self.close_with_error(ErrorText.AUTHENTICATION_TIMEOUT, ClosedReason.AUTHENTICATION_TIMEOUT)

    def closed(self) -> None:
        """Unregister the connection, which is being torn down, from server and account."""
        assert self.reason is not None
        if self._login is not None:
            self._login.cancel()
            self._login = None
        self.debug(f"Client connection closed: {self.reason.value}")
        self.host.clients.pop(self.cid, None)
        if self.host.openings is not None:
            self.host.openings.closed(self)
        if self.account is not None:
            self.account.connections -= 1
        self.host.client_closed(self)

    @property
    def connection_type(self) -> str:
        """The name of its type in `allowed_connection_types`."""
        return "STANDARD"

    def peer_certificates(self) -> tuple[bytes, ...]:
        """Return the certificates that the client presented, in DER; empty: none."""
        tls = self.tls
        if tls is None:
            return ()
        from natsd.tls.peer import certificates

        return certificates(tls)

    @property
    def tls_state(self) -> "TlsState | None":
        """What was negotiated, and the client's certificates; None: it does not use TLS."""
        framing = self.endpoint.framing
        if not isinstance(framing, TlsFraming) or framing.tls is None or not framing.is_open:
            return None
        from natsd.tls.peer import state_of

        return state_of(framing.tls, is_first=framing.is_first)

    @property
    def tls(self) -> "ssl.SSLObject | None":
        """The TLS of the connection after its handshake; None: it has none."""
        framing = self.endpoint.framing
        return framing.tls if isinstance(framing, TlsFraming) and framing.is_open else None

    def tls_facts(self) -> dict[str, Any] | None:
        """Return what an auth callout is told of TLS; None: the connection is not encrypted."""
        state = self.tls_state
        if state is None:
            return None
        from natsd.tls.peer import callout_facts

        options = self.host.options.tls
        return callout_facts(state, is_verified=options is not None and options.verify)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict by which the client was accepted; None: it was not yet."""
        return self._verdict

    @property
    def account_name(self) -> str:
        """The name of the client's account."""
        return "" if self.account is None else self.account.name

    # ---- fields of CONNECT

    @property
    def name(self) -> str:
        """The name that the client gave this connection; empty: none."""
        return "" if self._connect is None else self._connect.name

    @property
    def lang(self) -> str:
        """The client library's language; empty: unknown."""
        return "" if self._connect is None else self._connect.lang

    @property
    def version(self) -> str:
        """The client library's version; empty: unknown."""
        return "" if self._connect is None else self._connect.version

    @property
    def authorized_user(self) -> str:
        """The authenticated user, or `[REDACTED]` for a token; empty: no authentication."""
        if self._verdict is not None and self._verdict.user:
            return self._verdict.user
        if self._connect is None or not self.host.authenticator.is_required:
            return ""
        return self._connect.user or ("[REDACTED]" if self._connect.auth_token else "")

    def subscriptions(self) -> "Iterator[SubscriptionInfo]":
        """Yield the subscriptions of this client, for monitoring."""
        from natsd.clients.subscription_info import SubscriptionInfo

        for s in self.own_subscriptions():
            yield SubscriptionInfo(s.subject, s.queue, s.sid, s.delivered, s.max_delivered)

    # ---- log lines (log_lines.py)

    @property
    def server_options(self) -> Options:
        """The settings of the server."""
        return self.host.options

    def __str__(self) -> str:
        text = f"{self.address} - cid:{self.cid}"
        connect = self._connect
        if connect is None:
            return text
        version = f"v{connect.version}" if connect.version else ""
        who = ":".join(filter(None, (version, connect.lang, connect.name)))
        if who:
            text += f" - {quoted(who)}"
        if self.account is not None and self.authorized_user:
            label = "" if self._verdict is None else self._verdict.label
            user = label or (f"user:{connect.user}" if connect.user else "token")
            text += f" - {quoted(f'{self.account.name}/{user}')}"
        return text
