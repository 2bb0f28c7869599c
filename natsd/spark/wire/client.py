"""Client: a NATS client over one blocking socket, for tasks that read or write much and ask little.

    with Client(options) as client:
        info = client.api("STREAM.INFO.ORDERS")
        answer = client.request("time.now", b"")

Promise
- No thread and no loop: what has come is handled while somebody waits for something. A PING is
  answered then; who waits for nothing longer than the server's ping interval is disconnected.
- One connection at a time, to the first server of the list that lets us in; what a cluster says
  about its other servers is used when that one is gone. `reconnect` is the caller's decision, who
  knows what was under way; subscriptions do not survive it.
- Messages nobody waits for are kept for their subscription, at most PENDING_MAX of them.
- Errors are of errors.py, in one line, with the server's words and without a secret.

Source: nats-server 2.14 reference 3; ADR-1 (JetStream API).
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
    ApiError,
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionLost,
    NoResponders,
    RequestTimeout,
)
from natsd.spark.wire.connecting import Address, ConnectOptions
from natsd.spark.wire.connection import Connection, connect
from natsd.spark.wire.frames import Intake, Message

PENDING_MAX: Final = 65_536
NO_RESPONDERS: Final = 503


class Subscription:
    """Messages of one subject, in the order in which they came."""

    def __init__(self, client: Client, subject: str, sid: int) -> None:
        self.subject = subject
        self.sid = sid
        self.pending: deque[Message] = deque()
        self._client = client

    def next(self, timeout_s: float) -> Message | None:
        """None: there was none in time."""
        deadline = time.monotonic() + timeout_s
        while not self.pending:
            if self._client.receive(deadline) is None:
                return None
        return self.pending.popleft()

    def unsubscribe(self) -> None:
        """What still comes is dropped."""
        self._client.unsubscribe(self.sid)


class Client:
    """Connects at once; raises ClientError where no server lets it in."""

    def __init__(
        self, options: ConnectOptions, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.options = options
        self._sleep = sleep
        self._known = options.addresses()
        self._next_server = 0
        self._next_sid = 1
        self._next_inbox = 1
        self._subscriptions: dict[int, Subscription] = {}
        self._inbox = ""
        self._replies: Subscription | None = None
        self._connection: Connection | None = None
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
    def connection(self) -> Connection:
        """Raises ConnectionLost."""
        if self._connection is None:
            raise ConnectionLost("the connection is closed")
        return self._connection

    @property
    def is_connected(self) -> bool:
        """As far as is known."""
        return self._connection is not None and self._connection.is_open

    @property
    def info(self) -> dict[str, Any]:
        """What the server says of itself."""
        return self.connection.info

    @property
    def max_payload(self) -> int:
        """Bytes of headers and data of one message."""
        return int(self.info.get("max_payload") or (1 << 20))

    @property
    def where(self) -> str:
        """The server we are connected to."""
        return str(self.connection.address)

    def reconnect(self) -> None:
        """To the next server that lets us in. Subscriptions are gone.

        Raises AuthorizationError at once where every server refuses us, else ConnectError after
        `retries` further rounds.
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
        """One round; no connection afterwards: each server's reason."""
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
        """What a cluster says; tried after those that the user named."""
        tls = self.options.wants_tls or bool(info.get("tls_required"))
        known = {(address.host, address.port) for address in self._known}
        for text in info.get("connect_urls") or ():
            host, _, port = str(text).rpartition(":")
            host = host.strip("[]")
            if host and port.isdigit() and (host, int(port)) not in known:
                known.add((host, int(port)))
                self._known.append(Address(host, int(port), tls=tls))

    def close(self) -> None:
        """Again and again if you like."""
        self._subscriptions.clear()
        self._replies = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Out

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Protocol as it is. Raises ConnectionLost."""
        self.connection.send(data)

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: bytes = b""
    ) -> None:
        """`headers` is a block as it stands on the wire. Raises ConnectionLost."""
        self.send(frame(subject, payload, reply, headers))

    def subscribe(
        self, subject: str, intake: Intake | None = None, queue: str = ""
    ) -> Subscription:
        """With an intake, compiled code takes the messages. Raises ConnectionLost."""
        sid, self._next_sid = self._next_sid, self._next_sid + 1
        subscription = self._subscriptions[sid] = Subscription(self, subject, sid)
        if intake is not None:
            self.connection.parser.attach(sid, intake)
        self.send(f"SUB {subject} {queue + ' ' if queue else ''}{sid}\r\n".encode())
        return subscription

    def unsubscribe(self, sid: int) -> None:
        """Raises ConnectionLost."""
        if self._subscriptions.pop(sid, None) is not None:
            self.connection.parser.detach(sid)
            self.send(b"UNSUB %d\r\n" % sid)

    def unsubscribe_all(self) -> None:
        """Begin anew on the same connection. Raises ConnectionLost."""
        for sid in list(self._subscriptions):
            self.unsubscribe(sid)
        self._replies = None

    def new_inbox(self) -> str:
        """A subject that nobody else uses."""
        number, self._next_inbox = self._next_inbox, self._next_inbox + 1
        return f"{self._inbox}.{number}"

    # In

    def receive(self, deadline: float) -> Message | Intake | None:
        """The next thing that came, before `deadline` (of time.monotonic), or None.

        A Message stands at the end of its subscription's `pending` too. An Intake asked for a look.
        Raises ConnectionLost, AuthorizationError, ProtocolViolation.
        """
        event = self.connection.receive(deadline)
        if isinstance(event, Message):
            subscription = self._subscriptions.get(event.sid)
            if subscription is not None and len(subscription.pending) < PENDING_MAX:
                subscription.pending.append(event)
        return event

    def flush(self, timeout_s: float | None = None) -> None:
        """What was sent before has been read by the server then; what comes meanwhile is dropped.

        Raises ConnectionLost.
        """
        self.connection.pong(self._deadline(timeout_s))

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: bytes = b"",
        timeout_s: float | None = None,
    ) -> Message:
        """The first answer. What intakes have to say meanwhile stays for them to be asked.

        Raises NoResponders, RequestTimeout, and what `receive` raises.
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
                raise RequestTimeout(f'{self.where}: no answer to a request to "{subject}" in time')
        answer = pending.pop()
        if answer.status == NO_RESPONDERS and not answer.data:
            raise NoResponders(f'{self.where}: nobody answers on "{subject}"')
        return answer

    def api(self, name: str, body: object = None, timeout_s: float | None = None) -> dict[str, Any]:
        """A request to the JetStream API, for example `STREAM.INFO.ORDERS`, with its options.

        Raises ApiError, and what `request` raises.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            answer = self.request(f"{self.options.api}.{name}", payload, timeout_s=timeout_s)
        except NoResponders:
            raise NoResponders(
                f'{self.where}: JetStream does not answer on "{self.options.api}": is it enabled '
                "for this account, and are domain and apiPrefix right?"
            ) from None
        return decode_answer(answer.data, name)

    def _deadline(self, timeout_s: float | None) -> float:
        seconds = self.options.request_timeout_s if timeout_s is None else timeout_s
        return time.monotonic() + seconds


def decode_answer(data: bytes, name: str) -> dict[str, Any]:
    """The body of an answer of the API. Raises ApiError, ClientError."""
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ClientError(f"{name}: the answer is not that of a JetStream API")
    error = answer.get("error")
    if error:
        raise ApiError(
            int(error.get("code", 500)),
            int(error.get("err_code", 0)),
            str(error.get("description", "unknown error")),
            name,
        )
    return answer


def frame(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bytes:
    """PUB, or HPUB where there are headers."""
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
