"""The message trace: a record of one message's path through the server, published as JSON.

    publish with Nats-Trace-Dest: there
        ─▶ {"server": {…}, "request": {"header": {…}, "msgsize": 39}, "events": [
              {"type": "in", "ts": …, "kind": 0, "cid": 7, "acc": "$G", "subj": "orders.new"},
              {"type": "js", "ts": …, "stream": "ORDERS", "subject": "orders.new"},
              {"type": "eg", "ts": …, "kind": 0, "cid": 9, "sub": "orders.>"}]}           to `there`

    in  ingress: a client published the message, or another server forwarded it; `error`: why the
        server refused it
    sm  subject mapping: the account maps the subject to another one
    se  stream export: it passed into an account that imports the stream
    si  service import: it passed into the account that exports the service, or is a request to a
        service of the system account
    js  a stream stored it; `error`: why the stream refused it; `nointerest`: no consumer is
        interested, so that it is not stored
    eg  egress: it was delivered to a client or forwarded to another server; `error`: why it was not

In a cluster each server that gets the message publishes a trace. The header `Nats-Trace-Hop` says
which one it is: `1` and `2` are the first two servers to which the first one forwarded the message.
A trace's `hops` is the number of servers to which that server forwarded it, and `hop` in an egress
is the number that one of them was given.

Promise
- A trace is bounded: after EGRESSES_MAX deliveries no further delivery is listed.
- The trace is published after the message, at the end of the turn, like all messages that the
  server itself publishes.

Source: ADR-41; nats-server's server/msgtrace.go.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from natsd.core.network import trace_headers
from natsd.core.wall_time import timestamp

if TYPE_CHECKING:
    from natsd.accounts.account import Account
    from natsd.accounts.directory import AccountDirectory
    from natsd.core.routing import Subscription

DESTINATION: Final = b"Nats-Trace-Dest"
ONLY: Final = b"Nats-Trace-Only"
ORIGIN_ACCOUNT: Final = b"Nats-Trace-Origin-Account"
HOP: Final = b"Nats-Trace-Hop"
PARENT: Final = b"traceparent"
DISABLED: Final = b"trace disabled"
"""Value of `Nats-Trace-Dest` that forbids the tracing of the message; it is not a subject."""

CLIENT: Final = 0
ROUTER: Final = 1
"""Numbers of the kinds of connections, as nats-server numbers them."""
EGRESSES_MAX: Final = 1024
COMPRESSED_BYTES_MAX: Final = 64 << 10
"""A longer trace is sent uncompressed: to compress it would block the event loop."""

_ACCEPT_ENCODING: Final = b"Accept-Encoding"
_VERSION_LINE: Final = b"NATS/1.0\r\n"
_TRUE: Final = (b"1", b"true", b"on")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


class TraceSource(Protocol):
    """The server, as a trace shows it."""

    @property
    def accounts(self) -> "AccountDirectory":
        """The accounts of the server."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the fields of the trace's `server` object."""
        ...

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds."""
        ...


class TracedClient(Protocol):
    """A connection, as a trace shows it."""

    @property
    def cid(self) -> int:
        """Connection id."""
        ...

    @property
    def name(self) -> str:
        """Name that the client gave in CONNECT; empty: none."""
        ...

    @property
    def account_name(self) -> str:
        """Name of the client's account."""
        ...


class TracedRoute(Protocol):
    """A connection to another server, as a trace shows it."""

    @property
    def rid(self) -> int:
        """Connection id."""
        ...

    @property
    def remote_name(self) -> str:
        """Name of the other server."""
        ...


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The trace that the headers of a message request."""

    headers: dict[str, list[str]]
    """All headers of the message, as the trace shows them."""
    destination: str
    """Subject of `Nats-Trace-Dest`. Empty: a sampled `traceparent` requests the trace, and the
    account's `msg_trace` holds the subject."""
    is_only: bool
    """Trace-only: the message is neither delivered nor stored."""
    origin_account: str
    """Value of `Nats-Trace-Origin-Account`; empty: none."""
    hop: str
    """Value of `Nats-Trace-Hop`, which counts only if another server forwarded the message."""
    encoding: bytes
    """Value of `Accept-Encoding` in lower case; empty: none."""

    @classmethod
    def read(cls, block: bytes) -> Self | None:
        """Return the trace that a header block requests; None: it requests no trace."""
        headers: dict[str, list[str]] = {}
        first: dict[bytes, bytes] = {}
        is_sampled = False
        for name, value in trace_headers(block):
            first.setdefault(name, value)
            headers.setdefault(_text(name), []).append(_text(value))
            is_sampled = is_sampled or (name.lower() == PARENT and _is_sampled(value))
        destination = first.get(DESTINATION, b"")
        if destination == DISABLED or not (destination or is_sampled):
            return None
        return cls(
            headers,
            destination.decode("utf-8", "surrogateescape"),
            bool(destination) and first.get(ONLY, b"").lower() in _TRUE,
            _text(first.get(ORIGIN_ACCOUNT, b"")),
            _text(first.get(HOP, b"")),
            first.get(_ACCEPT_ENCODING, b"").lower(),
        )


class MessageTrace:
    """The events of one traced message; `send` publishes them."""

    __slots__ = (
        "_account",
        "_destination",
        "_egresses",
        "_events",
        "_hop",
        "_hops",
        "_request",
        "_size",
        "_source",
        "is_only",
    )

    def __init__(
        self,
        account: "Account",
        destination: str,
        request: TraceRequest,
        size: int,
        source: TraceSource,
        hop: str = "",
    ) -> None:
        """Record nothing yet; `hop` is the number of this server, empty: it is the first one."""
        self._account = account
        self._destination = destination
        self._request = request
        self._size = size
        self._source = source
        self._events: list[dict[str, Any]] = []
        self._egresses = 0
        self._hop = hop
        self._hops = 0
        self.is_only = request.is_only

    def ingress(self, publisher: TracedClient, subject: bytes, error: str = "") -> None:
        """Record that a client published the message; this is always the first event.

        `error` is the reason why the server refused it, or empty.
        """
        self._ingress(CLIENT, publisher.cid, publisher.name, subject)
        if error:
            self.refused(error)

    def routed_ingress(self, route: TracedRoute, subject: bytes) -> None:
        """Record that another server forwarded the message; this is always the first event."""
        self._ingress(ROUTER, route.rid, route.remote_name, subject)

    def _ingress(self, kind: int, cid: int, name: str, subject: bytes) -> None:
        self._add("in", kind=kind, cid=cid, name=name or None)
        self._events[-1] |= {"acc": self._account.name, "subj": _text(subject)}

    def refused(self, error: str) -> None:
        """Record that the server refused the message, in the first event."""
        self._events[0]["error"] = error

    def egress(
        self, recipient: TracedClient, subscription: "Subscription", error: str = ""
    ) -> None:
        """Record a delivery to a client's subscription; `error`: why it was not delivered."""
        self._egresses += 1
        if self._egresses > EGRESSES_MAX:
            return
        account = recipient.account_name
        self._add(
            "eg",
            kind=CLIENT,
            cid=recipient.cid,
            name=recipient.name or None,
            acc=account if account != self._account.name else None,
            sub=_text(subscription.subject_bytes),
            queue=None if subscription.queue_bytes is None else _text(subscription.queue_bytes),
            error=error or None,
        )

    def next_hop(self) -> str:
        """Return the number for the next server that gets the message."""
        self._hops += 1
        return f"{self._hop}.{self._hops}" if self._hop else str(self._hops)

    @staticmethod
    def at_hop(block: bytes, hop: str) -> bytes:
        """Return the header block with the number of the server that gets it."""
        return with_header(block, HOP, hop.encode())

    @property
    def destination(self) -> bytes:
        """The subject to which the trace is sent."""
        return self._destination.encode("utf-8", "surrogateescape")

    @staticmethod
    def sent_to(block: bytes, destination: bytes) -> bytes:
        """Return the header block with which other servers send their traces to another subject."""
        return with_header(block, DESTINATION, destination)

    def forwarded(self, route: TracedRoute, hop: str, error: str) -> None:
        """Record that the message was forwarded; `error`: why it was not, or is not traced."""
        self._egresses += 1
        if self._egresses > EGRESSES_MAX:
            return
        name, error_or_none = route.remote_name or None, error or None
        self._add("eg", kind=ROUTER, cid=route.rid, name=name, hop=hop, error=error_or_none)

    def service_import(self, subject: str) -> None:
        """Record that the message is a request to a service of the system account."""
        system = self._source.accounts.system.name
        self._add("si", acc=system, **{"from": subject, "to": subject})

    def subject_mapping(self, subject: bytes) -> None:
        """Record that the publisher's account maps the subject to another one."""
        self._add("sm", to=_text(subject))

    def stream_export(self, account: str, subject: bytes) -> None:
        """Record that the message passes into an account that imports the stream."""
        self._add("se", acc=account, to=_text(subject))

    def service_entered(self, account: str, published: bytes, subject: bytes) -> None:
        """Record that the message passes into another account through a service import."""
        self._add("si", acc=account, **{"from": _text(published), "to": _text(subject)})

    def untraced(self, headers: bytes) -> bytes:
        """Return the header block with which nothing behind an account's boundary is traced."""
        return with_trace_disabled(headers)

    def stream(
        self, name: str, subject: bytes | None, *, is_unwanted: bool = False, error: str = ""
    ) -> None:
        """Record that a stream stored the message, or with trace-only would store it.

        `subject` is the subject in the stream; None: the message was refused before it had one.
        `is_unwanted`: no consumer is interested, so that it is not stored. `error`: why the stream
        refused it.
        """
        self._add(
            "js",
            stream=name,
            subject=None if subject is None else _text(subject),
            nointerest=is_unwanted or None,
            error=error or None,
        )

    def _add(self, event_type: str, **fields: object) -> None:
        """Append an event with the current time, without the fields that are None."""
        event: dict[str, Any] = {"type": event_type, "ts": self._source.now_ns()}
        event.update((name, value) for name, value in fields.items() if value is not None)
        self._events.append(event)

    def send(self) -> None:
        """Queue the trace for its destination; call this once, at the end."""
        for event in self._events:
            event["ts"] = timestamp(event["ts"])
        request = {"header": dict(sorted(self._request.headers.items())), "msgsize": self._size}
        told: dict[str, object] = {"server": self._source.describe(), "request": request}
        if self._hops:
            told["hops"] = self._hops
        text = msgspec.json.encode(told | {"events": self._events})
        payload, headers = _encoded(text, self._request.encoding)
        self._account.internal_client.publish(self._destination, payload, headers=headers)


def with_header(block: bytes, name: bytes, value: bytes) -> bytes:
    """Return the header block with one header of that name, at its end."""
    lines = block.removesuffix(b"\r\n").split(b"\r\n")
    kept = [line for line in lines if line and not line.startswith(name + b":")]
    return b"\r\n".join([*kept, name + b": " + value, b"", b""])


def with_trace_disabled(block: bytes) -> bytes:
    """Return the header block with `Nats-Trace-Dest: trace disabled` in place of its old value."""
    line = DESTINATION + b": " + DISABLED
    start = block.find(b"\r\n" + DESTINATION + b":")
    if start < 0:
        head = block.removesuffix(b"\r\n").removesuffix(b"\r\n")
        disabled = head + b"\r\n" + line + b"\r\n\r\n"
    else:
        end = block.find(b"\r\n", start + 2)
        disabled = block[: start + 2] + line + (block[end:] if end >= 0 else b"\r\n\r\n")
    if TraceRequest.read(disabled) is None:
        return disabled
    # A line without a colon before the header hides it, so it goes to the front.
    return _VERSION_LINE + line + b"\r\n" + block[len(_VERSION_LINE) :]


def _encoded(text: bytes, accepted: bytes) -> tuple[bytes, bytes]:
    """Return the payload in an encoding that `accepted` names, and its header block."""
    if not accepted:
        return text, b""
    encoding = "identity"
    if len(text) <= COMPRESSED_BYTES_MAX:
        import cramjam  # imported on use: few traces are compressed

        if b"snappy" in accepted or b"s2" in accepted:
            encoding, text = "snappy", bytes(cramjam.snappy.compress(text))
        elif b"gzip" in accepted:
            encoding, text = "gzip", bytes(cramjam.gzip.compress(text))
    return text, f"NATS/1.0\r\nContent-Encoding: {encoding}\r\n\r\n".encode()


def _is_sampled(parent: bytes) -> bool:
    """Return whether a `traceparent` (version-trace-parent-flags) has the sampled flag, bit 0."""
    parts = parent.split(b"-")
    if len(parts) != 4 or len(parts[3]) != 2 or not _HEX.issuperset(parts[3]):
        return False
    return int(parts[3], 16) & 1 == 1


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
