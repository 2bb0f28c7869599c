"""NatsClient: a NATS client over one blocking socket, for tasks that move many messages.

    with NatsClient(options) as client:
        info = client.api("STREAM.INFO.ORDERS")
        answer = client.request("time.now", b"")

Promise
- There is no thread and no event loop: received bytes are handled only during a call that waits. A
  PING is answered then too; a client that makes no such call for longer than the server's ping
  timeout is disconnected.
- There is one connection at a time, to the first server of the list that accepts it. The other
  servers of a cluster, as INFO names them, are tried when that server is gone. The caller decides
  about `reconnect`, because only the caller knows which operations were pending; subscriptions do
  not survive it.
- Messages that no call waits for are kept with their subscription, at most PENDING_MAX of them.
- Errors are those of errors.py: one line, with the server's words and without a secret.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol; ADR-1 (JetStream API).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from natsd.spark.errors import (
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionLost,
    JetStreamApiError,
    NoResponders,
    RequestTimeout,
)
from natsd.spark.wire.connecting import Address, ClientOptions
from natsd.spark.wire.connection import NatsConnection, connect
from natsd.spark.wire.frames import FrameHandler, ReceivedMessage

PENDING_MAX: Final = 65_536
NO_RESPONDERS: Final = 503


class ClientSubscription:
    """The subscription to one subject, with its pending messages in the order of arrival."""

    def __init__(self, client: NatsClient, subject: str, sid: int) -> None:
        self.subject = subject
        self.sid = sid
        self.pending: deque[ReceivedMessage] = deque()
        self._client = client

    def next(self, timeout_s: float) -> ReceivedMessage | None:
        """Return the next message; None: none arrived within `timeout_s` seconds.

        Blocks on the socket. Raises what `NatsClient.receive` raises.
        """
        deadline = time.monotonic() + timeout_s
        while not self.pending:
            if self._client.receive(deadline) is None:
                return None
        return self.pending.popleft()

    def unsubscribe(self) -> None:
        """Unsubscribe; messages that still arrive are dropped. Raises ConnectionLost."""
        self._client.unsubscribe(self.sid)


class NatsClient:
    """A client that connects when it is created; raises ClientError if no server accepts it."""

    def __init__(self, options: ClientOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        self.options = options
        self._sleep = sleep
        self._known = options.addresses()
        self._next_server = 0
        self._next_sid = 1
        self._next_inbox = 1
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._inbox = ""
        self._replies: ClientSubscription | None = None
        self._connection: NatsConnection | None = None
        self.reconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # The connection

    @property
    def connection(self) -> NatsConnection:
        """The open connection. Raises ConnectionLost if there is none."""
        if self._connection is None:
            raise ConnectionLost("the connection is closed")
        return self._connection

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, as far as this side knows."""
        return self._connection is not None and self._connection.is_open

    @property
    def info(self) -> dict[str, Any]:
        """The server's last INFO."""
        return self.connection.info

    @property
    def max_payload(self) -> int:
        """Maximum bytes of headers and data of one message."""
        return int(self.info.get("max_payload") or (1 << 20))

    @property
    def server_address(self) -> str:
        """Address of the connected server."""
        return str(self.connection.address)

    def reconnect(self) -> None:
        """Connect to the next server that accepts the client; subscriptions are dropped.

        Blocks. Raises AuthorizationError at once if every server refuses the credentials, and
        ConnectError after `retries` further rounds over all servers.
        """
        if self._connection is not None:
            self._learn_servers(self._connection.info)
        self.close()
        for attempt in range(self.options.retries + 1):
            if attempt:
                self._sleep(self.options.retry_interval_s * 2 ** min(attempt - 1, 6))
            errors = self._try_all()
            if self._connection is not None:
                return
            if all(isinstance(error, AuthorizationError) for error in errors):
                raise errors[0]
        raise ConnectError(" · ".join(dict.fromkeys(str(error) for error in errors)))

    def _try_all(self) -> list[ClientError]:
        """Try each known server once; return the errors. The connection stays None if all fail."""
        errors: list[ClientError] = []
        for _ in range(len(self._known)):
            address = self._known[self._next_server % len(self._known)]
            self._next_server += 1
            try:
                self._connection = connect(self.options, address)
            except ClientError as error:
                errors.append(error)
                continue
            self._learn_servers(self._connection.info)
            self._inbox = f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"
            return errors
        return errors

    def _learn_servers(self, info: dict[str, Any]) -> None:
        """Append the servers that INFO names to the list; those of the user are tried first."""
        tls = self.options.wants_tls or bool(info.get("tls_required"))
        known = {(address.host, address.port) for address in self._known}
        for text in info.get("connect_urls") or ():
            host, _, port = str(text).rpartition(":")
            host = host.strip("[]")
            if host and port.isdigit() and (host, int(port)) not in known:
                known.add((host, int(port)))
                self._known.append(Address(host, int(port), tls=tls))

    def close(self) -> None:
        """Close the connection and drop the subscriptions; further calls do nothing."""
        self._subscriptions.clear()
        self._replies = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Sending

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes of the protocol unchanged. Blocks until sent. Raises ConnectionLost."""
        self.connection.send(data)

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: bytes = b""
    ) -> None:
        """Publish a message; `headers` is a header block as on the wire, b"" for none.

        Does not wait for the server. Raises ConnectionLost.
        """
        self.send(frame(subject, payload, reply, headers))

    def subscribe(
        self, subject: str, handler: FrameHandler | None = None, queue: str = ""
    ) -> ClientSubscription:
        """Subscribe; with a frame handler, compiled code handles the messages.

        `queue` is the queue group, "" for none. Raises ConnectionLost.
        """
        sid, self._next_sid = self._next_sid, self._next_sid + 1
        subscription = self._subscriptions[sid] = ClientSubscription(self, subject, sid)
        if handler is not None:
            self.connection.parser.attach(sid, handler)
        self.send(f"SUB {subject} {queue + ' ' if queue else ''}{sid}\r\n".encode())
        return subscription

    def unsubscribe(self, sid: int) -> None:
        """Unsubscribe; an unknown id is ignored. Raises ConnectionLost."""
        if self._subscriptions.pop(sid, None) is not None:
            self.connection.parser.detach(sid)
            self.send(b"UNSUB %d\r\n" % sid)

    def unsubscribe_all(self) -> None:
        """Drop all subscriptions and keep the connection. Raises ConnectionLost."""
        for sid in list(self._subscriptions):
            self.unsubscribe(sid)
        self._replies = None

    def new_inbox(self) -> str:
        """Return a new subject that no other client uses."""
        number, self._next_inbox = self._next_inbox, self._next_inbox + 1
        return f"{self._inbox}.{number}"

    # Receiving

    def receive(self, deadline: float) -> ReceivedMessage | FrameHandler | None:
        """Return the next event before `deadline` (of time.monotonic), or None.

        A ReceivedMessage is also appended to the `pending` of its subscription. A FrameHandler is
        returned if it stopped the parser (STOP), so that the caller looks at its state. Blocks on
        the socket. Raises ConnectionLost, AuthorizationError, ProtocolViolation.
        """
        event = self.connection.receive(deadline)
        if isinstance(event, ReceivedMessage):
            subscription = self._subscriptions.get(event.sid)
            if subscription is not None and len(subscription.pending) < PENDING_MAX:
                subscription.pending.append(event)
        return event

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the server has read everything sent so far.

        Messages that arrive meanwhile are dropped, but frame handlers still receive their messages.
        `timeout_s` None: the request timeout. Raises ConnectionLost.
        """
        self.connection.pong(self._deadline(timeout_s))

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: bytes = b"",
        timeout_s: float | None = None,
    ) -> ReceivedMessage:
        """Return the first answer to a request.

        A FrameHandler that stops meanwhile is not reported: the caller looks at its state later.
        `timeout_s` None: the request timeout. Blocks on the socket. Raises NoResponders,
        RequestTimeout, and what `receive` raises.
        """
        if self._replies is None:
            self._replies = self.subscribe(f"{self._inbox}.r.*")
        self._next_inbox += 1
        reply = f"{self._inbox}.r.{self._next_inbox}"
        pending = self._replies.pending
        pending.clear()
        deadline = self._deadline(timeout_s)
        self.publish(subject, payload, reply, headers)
        while not (pending and pending[-1].subject == reply):
            if self.receive(deadline) is None:
                raise RequestTimeout(
                    f'{self.server_address}: no answer to a request to "{subject}" in time'
                )
        answer = pending.pop()
        if answer.status == NO_RESPONDERS and not answer.data:
            raise NoResponders(f'{self.server_address}: nobody answers on "{subject}"')
        return answer

    def api(self, name: str, body: object = None, timeout_s: float | None = None) -> dict[str, Any]:
        """Send a request to the JetStream API, for example `STREAM.INFO.ORDERS`; return its answer.

        `body` is encoded as JSON; None: no body. Raises JetStreamApiError, and what `request`
        raises.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            answer = self.request(f"{self.options.api}.{name}", payload, timeout_s=timeout_s)
        except NoResponders:
            raise NoResponders(
                f'{self.server_address}: JetStream does not answer on "{self.options.api}": is it '
                "enabled for this account, and are domain and apiPrefix right?"
            ) from None
        return decode_answer(answer.data, name)

    def _deadline(self, timeout_s: float | None) -> float:
        seconds = self.options.request_timeout_s if timeout_s is None else timeout_s
        return time.monotonic() + seconds


def decode_answer(data: bytes, name: str) -> dict[str, Any]:
    """Decode an answer of the JetStream API.

    Raises JetStreamApiError if it is an error, or ClientError.
    """
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ClientError(f"{name}: the answer is not that of a JetStream API")
    error = answer.get("error")
    if error:
        raise JetStreamApiError(
            int(error.get("code", 500)),
            int(error.get("err_code", 0)),
            str(error.get("description", "unknown error")),
            name,
        )
    return answer


def frame(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bytes:
    """Return the frame of a message: HPUB if there are headers, else PUB."""
    to = f"{subject} {reply}" if reply else subject
    if headers:
        total = len(headers) + len(payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (
            to.encode(),
            len(headers),
            total,
            headers,
            payload,
        )
    return b"PUB %b %d\r\n%b\r\n" % (to.encode(), len(payload), payload)
