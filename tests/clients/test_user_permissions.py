"""What users of the settings may publish and subscribe to (reference 5.4, 3.4)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.target import Target
from tests.clients.wire import Wire

Start = Callable[..., Target]
Open = Callable[..., Wire]


class Restricted(Wire):
    """A client with permissions, beside one without any."""

    free: Wire


@pytest.fixture
def client(shared_server: Start, open_wire: Open) -> Iterator[Callable[..., Restricted]]:
    """Return a function that opens a client with these permissions; `free` has none.

    It is used as `wire = client(publish="a.>", subscribe={"deny": "b"})`.
    """

    opened = []

    def client(permissions: dict[str, Any] | None = None, **given: Any) -> Restricted:
        given = permissions or given
        users = [
            {"user": "free", "password": "p"},
            {"user": "some", "password": "p", "permissions": given},
        ]
        server = shared_server(authorization={"users": users})
        wire = Restricted(server.address)
        opened.append(wire)
        wire.free = open_wire(server)
        for each, user in ((wire, "some"), (wire.free, "free")):
            fields = {"user": user, "pass": "p", "verbose": False, "headers": True}
            each.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\n")
        return wire

    yield client
    for wire in opened:
        wire.close()


def refused(kind: str, subject: str, queue: str = "") -> bytes:
    group = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for {kind} to \"{subject}\"{group}'\r\n".encode()


def publishes(wire: Wire, subject: str) -> bool:
    wire.send(f"PUB {subject} 1\r\nx\r\n".encode())
    answer = wire.sync()
    assert answer in ([], [refused("Publish", subject)])
    return not answer


def subscribes(wire: Wire, subject: str, queue: str = "") -> bool:
    wire.send(f"SUB {subject} {queue} 1\r\nUNSUB 1\r\n".encode())
    answer = wire.sync()
    assert answer in ([], [refused("Subscription", subject, queue)])
    return not answer


PUBLISH = [
    ("a", {"a": True, "b": False, "a.b": False}),
    (["a", "b.*"], {"a": True, "b.c": True, "b.c.d": False, "b": False}),
    ({"allow": "a.>", "deny": "a.b"}, {"a.c": True, "a.b": False, "a.b.c": True, "b": False}),
    ({"deny": ["a.>", "b"]}, {"a": True, "a.b": False, "b": False, "c": True}),
    ({"allow": ["a.*"], "deny": ["*.b"]}, {"a.a": True, "a.b": False}),
    (">", {"a": True, "a.b": True}),
    ({"deny": ">"}, {"a": False}),
]


@pytest.mark.parametrize(("rules", "expected"), PUBLISH)
def test_publish(client: Callable[..., Restricted], rules: Any, expected: dict[str, bool]) -> None:
    wire = client(publish=rules)
    for _ in range(2):
        assert {subject: publishes(wire, subject) for subject in expected} == expected


SUBSCRIBE = [
    ("a.*", {"a.b": True, "a.*": True, "a": False, "b": False, "*.b": False, ">": False}),
    ({"deny": "a.b"}, {"a.b": False, "a.*": True, ">": True}),
    ({"deny": "a.*"}, {"a.b": False, "a.*": False, "*.b": True, "a": True}),
    (
        {"allow": ["a.>"], "deny": ["a.b.>"]},
        {"a.b": True, "a.b.c": False, "a.b.>": False, "a.>": True},
    ),
    ("a.>", {"a.b.>": True, "a.*.c": True, "a": False}),
    ("a w", {"a w": True, "a": False, "a v": False}),
    (["a", "a w"], {"a": True, "a w": True, "a v": False}),
    ("a", {"a": True, "a w": True}),
    ("a v*", {"a v*": True, "a v1": False}),
    ("a v.*", {"a v.1": True, "a v": False, "a v.1.2": False}),
    ({"allow": "a.>", "deny": "a.b w"}, {"a.b": True, "a.b w": False, "a.b v": True}),
    ({"deny": "> *"}, {"a": True, "a w": False, "a v.1": True}),
]


@pytest.mark.parametrize(("rules", "expected"), SUBSCRIBE)
def test_subscribe(
    client: Callable[..., Restricted], rules: Any, expected: dict[str, bool]
) -> None:
    wire = client(subscribe=rules)
    assert {given: subscribes(wire, *given.split()) for given in expected} == expected


@pytest.mark.natsd_only
def test_a_rule_for_one_token_does_not_allow_a_tail(client: Callable[..., Restricted]) -> None:
    """nats-server accepts the subscription, and delivers messages that no rule allows."""
    wire = client(subscribe="a.*")
    assert not subscribes(wire, "a.>")


@pytest.mark.natsd_only
def test_a_denied_token_does_not_deny_a_tail(client: Callable[..., Restricted]) -> None:
    """nats-server refuses the subscription, though only some of its messages are denied."""
    wire = client(subscribe={"deny": "a.*"})
    wire.send(b"SUB a.> 1\r\n")
    wire.sync()
    wire.free.send(b"PUB a.b 0\r\n\r\nPUB a.b.c 0\r\n\r\n")
    wire.free.sync()
    assert wire.sync() == [b"MSG a.b.c 1 0\r\n\r\n"]


def test_denied_messages_of_an_accepted_subscription(client: Callable[..., Restricted]) -> None:
    wire = client(subscribe={"deny": ["a.b", "c.*.d"]})
    wire.send(b"SUB > 1\r\n")
    wire.sync()
    wire.free.send(b"".join(b"PUB %b 0\r\n\r\n" % s for s in (b"a.b", b"a.c", b"c.x.d", b"c.d")))
    wire.free.sync()
    assert wire.sync() == [b"MSG a.c 1 0\r\n\r\n", b"MSG c.d 1 0\r\n\r\n"]


def test_a_denied_member_leaves_the_message_to_the_next(client: Callable[..., Restricted]) -> None:
    wire = client(subscribe={"deny": ["a.b w"]})
    for each in (wire, wire.free):
        each.send(b"SUB a.* w 1\r\n")
        each.sync()
    wire.free.send(b"PUB a.b 0\r\n\r\n" * 20)
    assert wire.free.sync() == [b"MSG a.b 1 0\r\n\r\n"] * 20
    assert wire.sync() == []


class TestResponses:
    """`allow_responses`: a request that was delivered may be answered."""

    def ask(self, wire: Restricted, reply: str = "inbox") -> None:
        wire.free.send(f"PUB service {reply} 0\r\n\r\n".encode())
        wire.free.sync()
        assert wire.read_message() == f"MSG service 1 {reply} 0\r\n\r\n".encode()

    def serve(self, client: Callable[..., Restricted], responses: Any, **rules: Any) -> Restricted:
        wire = client(subscribe="service", allow_responses=responses, **rules)
        wire.send(b"SUB service 1\r\n")
        wire.sync()
        return wire

    def test_one_response_by_default(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, True)
        assert not publishes(wire, "inbox")
        self.ask(wire)
        assert publishes(wire, "inbox")
        assert not publishes(wire, "inbox")
        assert not publishes(wire, "other")
        self.ask(wire)
        assert publishes(wire, "inbox")

    def test_so_many(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, {"max": 3, "expires": "1m"})
        self.ask(wire)
        assert [publishes(wire, "inbox") for _ in range(5)] == [True, True, True, False, False]

    def test_any_number(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, {"max": -1})
        self.ask(wire)
        assert all(publishes(wire, "inbox") for _ in range(10))

    def test_for_so_long(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, {"max": -1, "expires": "50ms"})
        self.ask(wire)
        deadline = time.monotonic() + 20
        while publishes(wire, "inbox"):
            assert time.monotonic() < deadline

    def test_with_rules_of_its_own(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, True, publish="logs")
        assert publishes(wire, "logs")
        self.ask(wire)
        assert publishes(wire, "inbox")
        assert not publishes(wire, "inbox")

    def test_a_denied_reply_may_be_answered(self, client: Callable[..., Restricted]) -> None:
        wire = self.serve(client, True, publish={"deny": "inbox"})
        self.ask(wire)
        assert publishes(wire, "inbox")
        assert not publishes(wire, "inbox")


def test_default_permissions(shared_server: Start, open_wire: Open) -> None:
    users = [
        {"user": "a", "password": "p"},
        {"user": "b", "password": "p", "permissions": {"publish": "b"}},
    ]
    server = shared_server(
        authorization={"users": users, "default_permissions": {"publish": "a"}},
        accounts={
            "X": {
                "users": [{"user": "x", "password": "p"}],
                "default_permissions": {"publish": "x"},
            },
            "Y": {"users": [{"user": "y", "password": "p"}]},
        },
    )
    expected = {"a": "a", "b": "b", "x": "x", "y": "abxy"}
    allowed = {}
    for user in expected:
        wire = open_wire(server, json.dumps({"user": user, "pass": "p", "verbose": False}))
        allowed[user] = "".join(subject for subject in "abxy" if publishes(wire, subject))
    assert allowed == expected


def test_verbose_clients_get_no_ok_for_what_is_refused(client: Callable[..., Restricted]) -> None:
    wire = client(publish="a", subscribe="a")
    wire.send(b'CONNECT {"verbose":true}\r\n')
    assert wire.read_frame() == b"+OK\r\n"
    wire.send(b"PUB a 0\r\n\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\nSUB a 1\r\nSUB b 2\r\n")
    assert wire.sync() == [
        *[b"+OK\r\n"] * 2,
        refused("Publish", "b"),
        b"+OK\r\n",
        refused("Subscription", "b"),
    ]


@pytest.mark.parametrize(
    "reply", ["_R_.x", "$JS.ACK.x", "$JS.API.STREAM.DELETE.S", "$SYS.REQ.SERVER.PING", "_GR_.x.y"]
)
def test_reserved_replies(client: Callable[..., Restricted], reply: str) -> None:
    wire = client(publish="a")
    for _ in range(2):
        wire.send(f"PUB a {reply} 0\r\n\r\n".encode())
        violation = f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'\r\n"
        assert wire.sync() == [violation.encode()]


def test_reserved_subjects_and_queues(client: Callable[..., Restricted]) -> None:
    wire = client(publish=">", subscribe=">")
    assert not publishes(wire, "_GR_.x.y")
    assert not publishes(wire, "$NRG.x")
    assert not subscribes(wire, "a", "_sys_")
