"""What a stream of a route does to a server: by the compiled code, and by the model.

    effects([stream], kind) == expected_effects(stream, kind)

The server has two accounts, with a plain subscription and members of two queue groups to
everything. There is no socket: reads are fed to the endpoint, as a transport does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from natsd.accounts import Account
from natsd.core.network import CallbackSink, Endpoint, Reactor, RouteSession, Settings
from natsd.core.reasons import ClosedReason
from natsd.core.routing import InvalidSubject, SubList, Subscription
from tests.core.plain_routes import PlainRoutes
from tests.core.without_sockets import Loop, Transport, failed, feed

PENDING_MAX = 256 * 1024 * 1024
NEVER_NS = 1 << 60
ACCOUNTS = ("$G", "ACC")
GROUPS = ("q", "r")
UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"
RENAMED = re.compile(rb"\$JS\.ACK\.([^.]*\.){6}[^@]*?@.")
"""A reply subject of a consumer: the `@` in it stands behind eight dots, and something follows."""
WEIGHT_MAX = 65536

KINDS: list[dict[str, bool]] = [{}, {"is_dedicated": True}, {"is_open": False}]


class Effects(NamedTuple):
    """What can be seen of a stream."""

    calls: list[tuple[str, bytes | str]]
    """Of the hooks, in their order."""
    sent: bytes
    """To the peer: PONGs, and the error."""
    has_ended: bool
    interest: set[tuple[str, bytes, bytes | None, int]]
    """Account, subject, queue group, weight."""
    messages: list[tuple[str, str, str, bytes | None, bytes, bytes]]
    """Account, queue group, subject, reply subject, headers, payload."""


class Route(RouteSession):
    """A route that knows two accounts."""

    def __init__(self, endpoint: Endpoint, accounts: dict[bytes, Account]) -> None:
        super().__init__(endpoint, 1)
        self.accounts = accounts
        self.calls: list[tuple[str, bytes | str]] = []

    def find_account(self, name: bytes) -> Account | None:
        return self.accounts.get(name)

    def info_received(self, json: bytes) -> None:
        self.calls.append(("INFO", json))

    def connect_received(self, json: bytes) -> None:
        self.calls.append(("CONNECT", json))

    def error_received(self, text: str) -> None:
        self.calls.append(("-ERR", text))

    def pong_received(self) -> None:
        self.calls.append(("PONG", b""))


def settings() -> Settings:
    """Return settings with which nothing is pinged, and nothing is too much."""
    chosen = Settings()
    chosen.max_pending = PENDING_MAX
    chosen.ping_interval_ns = chosen.write_deadline_ns = NEVER_NS
    chosen.ping_max = 2
    return chosen


class Rig:
    """A route without a socket, on a reactor of its own."""

    def __init__(self, *, is_open: bool = True, is_dedicated: bool = False) -> None:
        self.reactor = Reactor(Loop(), failed)  # type: ignore[arg-type]  # all that is used
        self.transport = Transport()
        self.messages: list[tuple[str, str, str, bytes | None, bytes, bytes]] = []
        accounts = {name: Account(name, self.reactor) for name in ACCOUNTS}
        for name, account in accounts.items():
            for group in ("", *GROUPS):
                sink = CallbackSink(self.reactor, partial(self.received, name, group))
                account.sublist.insert(Subscription(">", group or None, sink=sink))
        endpoint = Endpoint(self.reactor, settings(), -1, self.transport)
        self.route = Route(endpoint, {name.encode(): each for name, each in accounts.items()})
        self.accounts = accounts
        if is_open:
            self.route.begin(accounts["$G"] if is_dedicated else None)

    def received(
        self, account: str, group: str, subject: str, reply: str | None, head: bytes, data: bytes
    ) -> None:
        answer = None if reply is None else reply.encode("utf-8", "surrogateescape")
        self.messages.append((account, group, subject, answer, head, data))

    def feed(self, data: bytes) -> None:
        """Feed bytes, and do what follows from them."""
        if self.route.reason is None:
            feed(self.route.endpoint, data)
            self.reactor.turn()

    def effects(self) -> Effects:
        interest = {
            (link.account.name, sub.subject_bytes, sub.queue_bytes, sub.weight)
            for link in self.route.account_links
            for sub in link.remote_subscriptions()
        }
        ended = self.route.reason is not None
        written = bytes(self.transport.written)
        return Effects(self.route.calls, written, ended, interest, self.messages)

    def close(self) -> None:
        self.route.close(ClosedReason.CLIENT_CLOSED)
        self.reactor.turn()
        for account in self.accounts.values():
            assert account.sublist.count == 1 + len(GROUPS)
            account.sublist.clear()


def effects(pieces: Iterable[bytes], kind: dict[str, bool]) -> Effects:
    """Return what the compiled code does with a stream that arrives in pieces."""
    rig = Rig(**kind)
    for piece in pieces:
        rig.feed(piece)
    found = rig.effects()
    rig.close()
    return found


def expected_effects(stream: bytes, kind: dict[str, bool]) -> Effects:
    """Return what the model says of a stream."""
    found = Expected()
    for operation in PlainRoutes(**kind).parse(stream):
        found.apply(*operation)
    interest = {
        (account, subject, queue, weight)
        for (account, _, subject, queue), weight in found.interest.items()
    }
    if found.has_ended:  # the subscriptions have ended with the route
        interest = set()
    return Effects(found.calls, found.sent, found.has_ended, interest, found.messages)


class Expected:
    """The effects so far."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes | str]] = []
        self.sent = b""
        self.has_ended = False
        self.interest: dict[tuple[str, bytes, bytes, bytes | None], int] = {}
        self.messages: list[tuple[str, str, str, bytes | None, bytes, bytes]] = []

    def apply(self, name: object, *arguments: Any) -> None:
        match name:
            case "PING":
                self.sent += b"PONG\r\n"
            case "PONG":
                self.calls.append((name, b""))
            case "INFO" | "CONNECT":
                self.calls.append((name, arguments[0]))
            case "-ERR":
                self.calls.append((name, arguments[0].decode(errors="surrogateescape").strip(" '")))
            case "violation":
                self.sent += UNKNOWN
                self.has_ended = True
            case "RS+" | "RS-":
                self.change_interest(*arguments)
            case "MSG":
                self.deliver(*arguments)

    def change_interest(
        self,
        origin: bytes,
        account: bytes | None,
        subject: bytes,
        queue: bytes | None,
        weight: int | None = None,
    ) -> None:
        name = named(account)
        key = (name, origin, subject, queue)
        if name not in ACCOUNTS:
            return
        if weight is None:
            self.interest.pop(key, None)
        elif is_listed(subject):
            self.interest[key] = 1 if queue is None else min(weight, WEIGHT_MAX)

    def deliver(
        self,
        account: bytes | None,
        subject: bytes,
        reply: bytes | None,
        queues: tuple[bytes, ...],
        headers: bytes,
        payload: bytes,
    ) -> None:
        name = named(account)
        if name not in ACCOUNTS or not is_matched(subject):
            return
        is_rerouted = queues[:1] == (b"_rerouted_",)
        groups = [] if is_rerouted else [""]
        groups += [each.decode() for each in queues if each in (b"q", b"r")]
        if reply is not None and RENAMED.match(reply):
            subject, reply = renamed(reply)
        shown = subject.decode("utf-8", "surrogateescape")
        self.messages += [(name, group, shown, reply, headers, payload) for group in groups]


def named(account: bytes | None) -> str:
    return "$G" if account is None else account.decode(errors="replace")


def renamed(reply: bytes) -> tuple[bytes, bytes]:
    """Return the subject of a stream's message, and its reply subject."""
    dots = [at for at, byte in enumerate(reply) if byte == ord(".")]
    mark = reply.index(b"@", dots[7])
    return reply[mark + 1 :], reply[:mark]


def is_listed(subject: bytes) -> bool:
    """Return whether there may be a subscription to a subject."""
    try:
        return SubList().insert(Subscription(subject))
    except InvalidSubject:
        return False


def is_matched(subject: bytes) -> bool:
    """Return whether a message with any subject reaches a subscription to everything."""
    sublist = SubList()
    sublist.insert(Subscription(">"))
    return len(sublist.match(subject)) > 0


def cuts(stream: bytes, places: Iterable[int]) -> Iterator[bytes]:
    """Yield a stream in pieces."""
    at = 0
    for place in sorted(place % (len(stream) + 1) for place in places):
        yield stream[at:place]
        at = place
    yield stream[at:]
