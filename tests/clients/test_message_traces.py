"""Message tracing (ADR-41): the events of a trace, and its recipients.

The tests hold for nats-server 2.14.5 as well, except for those that are marked.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from tests.clients.target import Target
from tests.clients.traces import (
    DESTINATION,
    ONLY,
    TO,
    Peer,
    Tracer,
    body_of,
    came_in,
    header_block,
    went_out,
)

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

StartServer = Callable[..., Target]


@pytest.fixture
def server(shared_server: StartServer) -> Target:
    return shared_server()


@pytest.fixture
def peers() -> Any:
    opened: list[Peer] = []

    def opens(peer: Peer) -> Peer:
        opened.append(peer)
        return peer

    yield opens
    for peer in opened:
        peer.close()


@pytest.mark.parametrize("is_only", [False, True])
def test_a_message_and_its_trace(server: Target, peers: Any, is_only: bool) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, name="p"))
    reader, other = peers(Peer(server, name="r")), peers(Peer(server))
    reader.subscribe("foo", 1)
    reader.subscribe("foo", 2, "q")
    other.subscribe("*", 3)
    headers = {"X": "y", DESTINATION: TO} | ({ONLY: "true"} if is_only else {})
    assert publisher.publish("foo", headers, reply="r.e") == []
    trace = tracer.trace()
    assert set(trace) == {"server", "request", "events"}
    assert trace["server"]["id"] == publisher.info["server_id"]
    assert {"name", "host", "ver", "seq", "time"} <= set(trace["server"])
    block = header_block(headers)
    assert trace["request"] == {
        "header": {name: [value] for name, value in headers.items()},
        "msgsize": len(block) + 5,
    }
    for event in trace["events"]:
        assert event.pop("ts").endswith("Z")
    first, *rest = trace["events"]
    assert first == came_in(publisher, "foo", name="p")
    assert sorted(rest, key=str) == sorted(
        [
            went_out(reader, "foo", name="r"),
            went_out(reader, "foo", name="r", queue="q"),
            went_out(other, "*"),
        ],
        key=str,
    )
    message = b"%b foo %d r.e %d %d\r\n" + block + b"hello\r\n"
    sizes = len(block), len(block) + 5
    expected = [] if is_only else [message % (b"HMSG", sid, *sizes) for sid in (1, 2, 3)]
    assert sorted(reader.sync() + other.sync()) == sorted(expected)
    tracer.has_nothing()


@pytest.mark.parametrize(
    ("value", "is_only"),
    [("true", True), ("TRUE", True), ("1", True), ("On", True), ("yes", False), ("0", False)],
)
def test_what_trace_only_may_say(server: Target, peers: Any, value: str, is_only: bool) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    got = publisher.publish("foo", {DESTINATION: TO, ONLY: value})
    assert len(got) == (not is_only)
    assert tracer.events() == [came_in(publisher, "foo"), went_out(publisher, "foo")]


def test_no_echo_and_queue_groups(server: Target, peers: Any) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, echo=False))
    publisher.subscribe("foo", 1)
    publisher.subscribe("foo", 2, "q")
    refused = "Not delivered because of no echo"
    for only in ("0", "1"):
        assert publisher.publish("foo", {DESTINATION: TO, ONLY: only}) == []
        assert tracer.events() == [
            came_in(publisher, "foo"),
            went_out(publisher, "foo", error=refused),
            went_out(publisher, "foo", queue="q", error=refused),
        ]
    member = peers(Peer(server))
    member.subscribe("foo", 1, "q")
    publisher.publish("foo", {DESTINATION: TO})
    assert went_out(member, "foo", queue="q") in tracer.events()
    assert len(member.sync()) == 1


def test_trace_only_does_not_count_for_auto_unsubscribe(server: Target, peers: Any) -> None:
    tracer, publisher, reader = peers(Tracer(server)), peers(Peer(server)), peers(Peer(server))
    reader.subscribe("foo")
    reader.send(b"UNSUB 1 2\r\n")
    reader.sync()
    received = [came_in(publisher, "foo"), went_out(reader, "foo")]
    for only in ("1", "0", "1", "0"):
        publisher.publish("foo", {DESTINATION: TO, ONLY: only})
        assert tracer.events() == received
        assert len(reader.sync()) == (only == "0")
    publisher.publish("foo", {DESTINATION: TO})
    assert tracer.events() == received[:1]


@pytest.mark.parametrize("is_only", [False, True])
def test_no_responders(server: Target, peers: Any, is_only: bool) -> None:
    tracer, publisher, reader = peers(Tracer(server)), peers(Peer(server)), peers(Peer(server))
    publisher.subscribe("_INBOX.p")
    headers = {DESTINATION: TO} | ({ONLY: "1"} if is_only else {})
    (told,) = publisher.publish("nobody", headers, reply="_INBOX.p")
    assert b"NATS/1.0 503\r\nNats-Subject: nobody\r\n" in told
    assert tracer.events() == [came_in(publisher, "nobody")]
    reader.subscribe("somebody")
    assert publisher.publish("somebody", headers, reply="_INBOX.p") == []
    assert tracer.events() == [came_in(publisher, "somebody"), went_out(reader, "somebody")]


@pytest.mark.parametrize("destination", ["t.*", "t.>", "t..a", ".t", "t.", "t a", "*", "t\ta"])
def test_a_destination_that_is_no_subject(server: Target, peers: Any, destination: str) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    assert len(publisher.publish("foo", {DESTINATION: destination})) == 1
    assert publisher.publish("foo", {DESTINATION: destination, ONLY: "1"}) == []
    tracer.has_nothing()


@pytest.mark.parametrize("destination", ["_GR_.x", "$NRG.x"])
@pytest.mark.parametrize("only", ["0", "1"])
def test_a_destination_of_the_server_s_own(
    server: Target, peers: Any, destination: str, only: str
) -> None:
    publisher = peers(Peer(server, pedantic=True))
    publisher.subscribe("foo")
    told = publisher.publish("foo", {DESTINATION: destination, ONLY: only})
    assert told == [f"-ERR 'Permissions Violation for Publish to \"{destination}\"'\r\n".encode()]


SOME_RULES = {"publish": {"allow": ["a.>", "t.allowed"], "deny": ["a.no"]}}


def users(rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the user `free` without permissions, and `some` with these."""
    free, some = {"user": "free", "password": "p"}, {"user": "some", "password": "p"}
    return [free, {**some, "permissions": rules}]


def restricted(
    shared_server: StartServer, rules: dict[str, Any] = SOME_RULES, **settings: Any
) -> Target:
    """Return a server with the users `free`, as whom all others log in, and `some`."""
    return shared_server(authorization={"users": users(rules)}, no_auth_user="free", **settings)


SOME = {"user": "some", "pass": "p"}


@pytest.mark.parametrize("destination", ["t.here", "a.no", "$JS.API.STREAM.NAMES", "$SYS.REQ.X"])
@pytest.mark.parametrize("only", ["0", "1"])
def test_a_destination_that_the_client_must_not_publish_to(
    shared_server: StartServer, peers: Any, destination: str, only: str
) -> None:
    server = restricted(shared_server)
    reader, publisher = peers(Peer(server)), peers(Peer(server, **SOME))
    for subject in ("a.b", destination):
        reader.subscribe(subject)
    told = publisher.publish("a.b", {DESTINATION: destination, ONLY: only})
    assert told == [f"-ERR 'Permissions Violation for Publish to \"{destination}\"'\r\n".encode()]
    assert reader.sync() == []
    assert publisher.publish("a.b", {DESTINATION: "t.allowed"}) == []
    assert len(reader.sync()) == 1


def test_of_what_is_too_large_a_destination_is_checked_as_well(
    shared_server: StartServer, peers: Any
) -> None:
    server = restricted(shared_server, max_payload=1024)
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, **SOME))
    block = header_block({DESTINATION: TO})
    publisher.send(b"HPUB a.b %d 2000\r\n" % len(block) + block + b"AAA")
    told = publisher.read_until_closed()
    assert f'Permissions Violation for Publish to "{TO}"'.encode() in told
    assert b"Maximum Payload Violation" in told
    tracer.has_nothing()


def test_a_permitted_response_permits_no_destination(
    shared_server: StartServer, peers: Any
) -> None:
    rules = {"publish": "a", "subscribe": ["a", "q"], "allow_responses": True}
    server = restricted(shared_server, rules)
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, **SOME))
    publisher.subscribe("q")
    tracer.publish("q", {}, reply=TO)
    assert len(publisher.sync()) == 1
    (told,) = publisher.publish("a", {DESTINATION: TO})
    assert b"Permissions Violation for Publish to" in told
    tracer.has_nothing()


@pytest.mark.natsd_only
def test_the_account_s_destination_needs_no_permission(
    shared_server: StartServer, peers: Any
) -> None:
    account = {"users": users(SOME_RULES), "msg_trace": TO}
    server = shared_server(accounts={"A": account}, no_auth_user="free")
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, **SOME))
    assert publisher.publish("a.b", {"traceparent": PARENT + "01"}) == []
    assert tracer.events()[0]["subj"] == "a.b"


HEAD = b"NATS/1.0\r\n"


@pytest.mark.parametrize(
    "block",
    [
        HEAD + b"Nats-Trace-Only: true\r\n\r\n",
        HEAD + b"nats-trace-dest: t.here\r\n\r\n",
        HEAD + b"Nats-Trace-Dest: \r\nNats-Trace-Only: 1\r\n\r\n",
        HEAD + b"Nats-Trace-Dest : t.here\r\n\r\n",
        HEAD + b" Nats-Trace-Dest: t.here\r\n\r\n",
        HEAD + b"Nats-Trace-Dest: t.here",
        HEAD + b"Nats-Trace-Dest: trace disabled\r\nNats-Trace-Dest: t.here\r\n\r\n",
        HEAD + b"Nats-Trace-Dest: trace disabled\r\nNats-Trace-Only: 1\r\n\r\n",
        HEAD + b"foo\r\nNats-Trace-Dest: t.here\r\n\r\n",
        b"NATS/1.0 200 OK\r\nNats-Trace-Dest: t.here\r\n\r\n",
        b"Nats-Trace-Dest: t.here\r\n\r\n",
        HEAD + b"traceparent: " + PARENT.encode() + b"01\r\n\r\n",
    ],
)
def test_headers_that_ask_for_nothing(server: Target, peers: Any, block: bytes) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    (message,) = publisher.publish("foo", block)
    assert message.endswith(block + b"hello\r\n")
    tracer.has_nothing()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (b"Nats-Trace-Dest:t.here\r\n\r\n", {}),
        (b"Nats-Trace-Dest:\t t.here \t\r\n\r\n", {}),
        (b"Nats-Trace-Dest: t.here\r\n", {}),
        (
            b"A: 1\r\na: 2\r\nA: 3\r\nE:\r\nF: \r\n: v\r\nNats-Trace-Dest: t.here\r\n\r\n",
            {"A": ["1", "3"], "a": ["2"]},
        ),
        (b"X: a:b\xff<&\r\nNats-Trace-Dest: t.here\r\n\r\n", {"X": ["a:b\ufffd<&"]}),
        (
            b"X: " + b"T" * 5000 + b"\r\nNats-Trace-Dest: t.here\r\n\r\n",
            {"X": ["T" * 5000]},
        ),
    ],
)
def test_how_headers_are_read(
    server: Target, peers: Any, lines: bytes, shown: dict[str, list[str]]
) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.publish("foo", HEAD + lines)
    assert tracer.trace()["request"]["header"] == {DESTINATION: [TO], **shown}


def test_the_header_of_another_account(server: Target, peers: Any) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    headers = {"Nats-Trace-Origin-Account": "A", DESTINATION: TO}
    (message,) = publisher.publish("foo", headers, reply="r.e")
    disabled = header_block(headers | {DESTINATION: "trace disabled"})
    assert message.endswith(disabled + b"hello\r\n")
    assert message.startswith(b"HMSG foo 1 r.e %d %d\r\n" % (len(disabled), len(disabled) + 5))
    assert publisher.publish("foo", headers | {ONLY: "1"}) == []
    tracer.has_nothing()


@pytest.mark.parametrize(
    ("subject", "reply", "error"),
    [
        ("$NRG.x", "", 'Publish to "$NRG.x"'),
        ("_GR_.a.b", "", 'Publish to "_GR_.a.b"'),
        ("foo", "_R_.x", 'Publish with Reply of "_R_.x"'),
        ("foo", "$JS.ACK.x", 'Publish with Reply of "$JS.ACK.x"'),
    ],
)
def test_what_is_not_taken(
    server: Target, peers: Any, subject: str, reply: str, error: str
) -> None:
    tracer, publisher, reader = peers(Tracer(server)), peers(Peer(server)), peers(Peer(server))
    reader.subscribe("foo")
    error = f"Permissions Violation for {error}"
    for only in ("0", "1"):
        told = publisher.publish(subject, {DESTINATION: TO, ONLY: only}, reply=reply)
        assert told == [f"-ERR '{error}'\r\n".encode()]
        assert tracer.events() == [came_in(publisher, subject, error=error)]
    assert reader.sync() == []


@pytest.mark.parametrize("only", ["0", "1"])
def test_what_is_too_large(shared_server: StartServer, peers: Any, only: str) -> None:
    server = shared_server(max_payload=1024)
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, name="p"))
    block = header_block({DESTINATION: TO, ONLY: only})
    publisher.send(b"HPUB foo r.e %d 2000\r\n" % len(block) + block + b"AAA")
    trace = tracer.trace()
    assert trace["request"]["msgsize"] == 2000
    (event,) = trace["events"]
    del event["ts"]
    assert event == came_in(publisher, "foo", name="p", error="maximum payload exceeded")
    assert b"Maximum Payload Violation" in publisher.read_until_closed()


def test_of_what_is_too_large_headers_are_read_not_the_payload(
    shared_server: StartServer, peers: Any
) -> None:
    server = shared_server(max_payload=1024)
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    payload = f"A\r\n{DESTINATION}: {TO}\r\n\r\n".encode()
    publisher.send(b"HPUB foo 10 2000\r\n" + HEAD + payload)
    assert b"Maximum Payload Violation" in publisher.read_until_closed()
    tracer.has_nothing()


def test_a_recipient_without_headers(server: Target, peers: Any) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    plain = peers(Peer(server, headers=False, no_responders=False))
    plain.subscribe("foo")
    publisher.publish("foo", {DESTINATION: TO})
    assert tracer.events() == [came_in(publisher, "foo"), went_out(plain, "foo")]
    assert plain.sync() == [b"MSG foo 1 5\r\nhello\r\n"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip", "gzip"), ("S2, gzip", "snappy"), ("snappy", "snappy"), ("br", "identity")],
)
def test_a_trace_is_compressed_as_it_may_be(
    server: Target, peers: Any, accepted: str, encoding: str
) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.publish("foo", {DESTINATION: TO, "Accept-Encoding": accepted})
    frame = tracer.read_message()
    assert f"\r\nContent-Encoding: {encoding}\r\n\r\n".encode() in frame
    unpack: dict[str, Callable[[bytes], Any]] = {
        "gzip": gzip.decompress,
        "snappy": cramjam.snappy.decompress,
        "identity": bytes,
    }
    trace = json.loads(bytes(unpack[encoding](body_of(frame))))
    assert trace["events"][0]["subj"] == "foo"


def test_a_recipient_that_falls_behind(shared_server: StartServer, peers: Any) -> None:
    """A trace tells of a message that is dropped because its recipient is slow.

    It is dropped since its publisher is not to be stalled.
    """
    server = shared_server(no_fast_producer_stall=True, max_pending=2_000_000)
    tracer, publisher, reader = peers(Tracer(server)), peers(Peer(server)), peers(Peer(server))
    reader.subscribe("foo")
    data, error = b"x" * 250_000, ""
    for _ in range(200):
        publisher.publish("foo", {DESTINATION: TO}, data)
        error = tracer.events()[1].get("error", "")
        if error:
            break
    assert error == "Not delivered because fast producer not stalled and consumer is slow"
    publisher.publish("foo", {DESTINATION: TO, ONLY: "1"}, data)
    assert tracer.events()[1] == went_out(reader, "foo")


@pytest.mark.natsd_only
def test_a_recipient_that_is_closed_for_it(shared_server: StartServer, peers: Any) -> None:
    """The trace reports the closed client; nats-server's says that the message was delivered."""
    server = shared_server(max_payload=100_000, max_pending=100_000)
    tracer, publisher, reader = peers(Tracer(server)), peers(Peer(server)), peers(Peer(server))
    reader.subscribe("foo")
    asks = {DESTINATION: TO}
    publisher.publish("foo", asks, b"x" * (100_000 - len(header_block(asks))))
    error = "Not delivered because client is closed"
    assert tracer.events()[1] == went_out(reader, "foo", error=error)


def test_a_trace_of_what_goes_where_traces_go(server: Target, peers: Any) -> None:
    tracer = peers(Tracer(server))
    (message,) = tracer.publish(TO, {DESTINATION: TO})[:1]
    assert message.endswith(b"hello\r\n")


def test_verbose_clients_are_told_ok(server: Target, peers: Any) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server, verbose=True, pedantic=True))
    assert publisher.publish("foo", {DESTINATION: TO, ONLY: "1"}) == [b"+OK\r\n"]
    tracer.trace()


def test_many_at_once_are_all_traced_in_order(server: Target, peers: Any) -> None:
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo.>")
    block = header_block({DESTINATION: TO})
    frames = [
        b"HPUB foo.%d %d %d\r\n" % (number, len(block), len(block) + 1) + block + b"x\r\n"
        for number in range(300)
    ]
    publisher.send(b"".join(frames))
    got = [publisher.read_message() for _ in frames]
    assert [frame.split()[1] for frame in got] == [b"foo.%d" % number for number in range(300)]
    traced = [tracer.events()[0]["subj"] for _ in frames]
    assert traced == [f"foo.{number}" for number in range(300)]


@pytest.mark.natsd_only
def test_an_account_s_messages_with_a_sampled_parent(
    shared_server: StartServer, peers: Any
) -> None:
    server = shared_server(accounts={"$G": {"msg_trace": "t.account"}})
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    for name, flags in (("traceparent", "01"), ("TraceParent", "25"), ("TRACEPARENT", "ff")):
        headers = {name: PARENT + flags, ONLY: "1"}
        (message,) = publisher.publish("foo", headers)
        assert message.endswith(header_block(headers) + b"hello\r\n")
        assert tracer.events() == [came_in(publisher, "foo"), went_out(publisher, "foo")]
    for parent in (PARENT + "00", "00-a-01", "00-a-b-1", "00-a-b-0_", "00-a-b-c-01"):
        assert len(publisher.publish("foo", {"traceparent": parent})) == 1
    tracer.has_nothing()
    publisher.publish("foo", {"traceparent": PARENT + "01", DESTINATION: TO})
    assert tracer.read_message().split()[1] == TO.encode()


@pytest.mark.natsd_only
def test_an_account_s_sampling(shared_server: StartServer, peers: Any) -> None:
    server = shared_server(accounts={"$G": {"trace_dest": {"dest": "t.some", "sampling": "50%"}}})
    tracer, publisher = peers(Tracer(server)), peers(Peer(server))
    publisher.subscribe("foo")
    disabled = 0
    for _ in range(200):
        (message,) = publisher.publish("foo", {"traceparent": PARENT + "01"})
        disabled += b"\r\nNats-Trace-Dest: trace disabled\r\n\r\nhello" in message
    assert 0 < disabled < 200
    assert len(tracer.sync()) == 200 - disabled
