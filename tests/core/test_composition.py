"""Connections are composed: another protocol on the same endpoint, and a framing before a protocol.

    Endpoint ── LengthFraming ── ClientProtocol (unchanged) ── ClientSession
    Endpoint ── ToyProtocol ── ToySession

The toy protocol has frames of a length (two bytes) and a body: `S subject` subscribes, `P subject
data` publishes, and the server sends `M subject data`.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.accounts import Account
from natsd.core.network import ClientSession, Endpoint, Framing, Protocol, Session
from natsd.core.reasons import ClosedReason
from natsd.core.routing import Kind, Subscription
from tests.core.recipients import Rig

LENGTH = struct.Struct(">H")
LENGTH_MAX = 1000
MASK = bytes(byte ^ 0x5A for byte in range(256))


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def frames_of(data: bytes) -> tuple[list[bytes], int]:
    """Return the bodies of the whole frames, and how many bytes these took."""
    bodies, at = [], 0
    while len(data) - at >= LENGTH.size:
        end = at + LENGTH.size + LENGTH.unpack_from(data, at)[0]
        if end > len(data):
            break
        bodies.append(data[at + LENGTH.size : end])
        at = end
    return bodies, at


class ToySession(Session):
    """What a toy connection means: subscriptions, publishing, delivery."""

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        super().__init__(endpoint, Kind.LEAF_KIND)
        self.account = account
        self.subscriptions: list[Subscription] = []
        endpoint.attach(ToyProtocol(self), self)

    def handle(self, body: bytes) -> None:
        verb, subject, data = (*body.split(b" ", 2), b"")[:3]
        if verb == b"S":
            self.subscriptions.append(Subscription(subject, sink=self))
            self.account.sublist.insert(self.subscriptions[-1])
        elif verb == b"P":
            self.account.publisher.publish(subject, data, session=self)
        else:
            raise ValueError(f"no operation of the toy protocol: {body!r}")

    def send_message(
        self, sub: Subscription, subject: bytes, reply: bytes | None, headers: bytes, data: bytes
    ) -> bool:
        if data == b"refused":
            return False
        if data == b"fails":
            raise ValueError("a toy that breaks")
        self.endpoint.send(frame(b"M %b %b" % (subject, data)))
        return self.reason is None

    def closed(self) -> None:
        self.account.sublist.remove_batch(self.subscriptions)
        for sub in self.subscriptions:
            sub.detach()


class ToyProtocol(Protocol):
    """Bytes to operations of the toy protocol."""

    def __init__(self, session: ToySession) -> None:
        self._session = session

    def receive(self, data: bytes) -> int:
        used = 0
        for body in frames_of(data)[0]:
            if self.is_suspended:
                break
            self._session.handle(body)
            used += LENGTH.size + len(body)
        return used


class LengthFraming(Framing):
    """Frames of a length and masked bytes; a frame ends anywhere in the inner protocol's bytes."""

    def decode(self, data: bytes) -> tuple[bytes, int]:
        bodies, used = frames_of(data)
        return b"".join(bodies).translate(MASK), used

    def encode(self, data: bytes) -> bytes:
        return framed(data, LENGTH_MAX)


def framed(data: bytes, size: int) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(frame(piece.translate(MASK)) for piece in pieces)


def unframed(data: bytes) -> bytes:
    bodies, used = frames_of(data)
    assert used == len(data)
    return b"".join(bodies).translate(MASK)


class Ends:
    """The peers' ends of connections to one account."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.account = Account("A", rig.reactor)
        self.sockets: list[socket.socket] = []
        self.sessions: list[Session] = []

    def endpoint(self, buffer_bytes: int) -> tuple[Endpoint, socket.socket]:
        served, peer = socket.socketpair()
        for each in (served, peer):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        peer.setblocking(False)
        self.sockets.append(peer)
        return Endpoint(self.rig.reactor, self.rig.limits, served.detach()), peer

    def toy(self, buffer_bytes: int = 1 << 20) -> tuple[ToySession, socket.socket]:
        endpoint, peer = self.endpoint(buffer_bytes)
        session = ToySession(endpoint, self.account)
        endpoint.open()
        self.sessions.append(session)
        return session, peer

    def client(
        self, framing: Framing | None = None, buffer_bytes: int = 1 << 20
    ) -> tuple[ClientSession, socket.socket]:
        endpoint, peer = self.endpoint(buffer_bytes)
        session = ClientSession(endpoint, len(self.sessions) + 1)
        if framing is not None:
            endpoint.frame(framing)
        session.bind_account(self.account, self.account.sublist, self.account.counters)
        session.negotiate(False, False, True, True, True)
        endpoint.open()
        self.sessions.append(session)
        return session, peer

    def send(self, peer: socket.socket, data: bytes) -> None:
        while data:
            try:
                data = data[peer.send(data) :]
            except BlockingIOError:
                self.rig.run(0.001)
        self.rig.run()

    def read(self, peer: socket.socket) -> bytes:
        """Return all that is there and what comes while there is room for it."""
        received = []
        for _ in range(3):
            self.rig.run()
            try:
                while data := peer.recv(1 << 16):
                    received.append(data)
                    self.rig.run()
            except BlockingIOError:
                pass
        return b"".join(received)

    def close(self) -> None:
        for session in self.sessions:
            session.close(ClosedReason.SERVER_SHUTDOWN)
        self.account.close()
        self.rig.run()
        for peer in self.sockets:
            peer.close()
        assert len(self.account.sublist) == 0


@pytest.fixture
def ends() -> Iterator[Ends]:
    with Rig() as rig:
        ends = Ends(rig)
        yield ends
        ends.close()
        assert rig.failures == []


def test_two_protocols_share_an_account(ends: Ends) -> None:
    (_, toy), (_, client) = ends.toy(), ends.client()
    ends.send(client, b"SUB from.* 1\r\n")
    ends.send(toy, frame(b"S to.*") + frame(b"S from.*"))
    ends.send(toy, frame(b"P from.toy hello"))
    ends.send(client, b"PUB to.toy 5\r\nworld\r\nPUB to.toy reply 2\r\nhi\r\n")
    assert ends.read(client) == b"MSG from.toy 1 5\r\nhello\r\n"
    assert ends.read(toy) == b"".join(
        frame(body) for body in (b"M from.toy hello", b"M to.toy world", b"M to.toy hi")
    )


def test_a_message_carries_its_origin(ends: Ends) -> None:
    (toy, toy_end), (client, client_end) = ends.toy(), ends.client()
    origins: list[Session | None] = []
    ends.account.internal_client.serve("who", lambda *message: origins.append(message[4]))
    ends.send(toy_end, frame(b"P who"))
    ends.send(client_end, b"PUB who 0\r\n\r\n")
    ends.account.publisher.publish(b"who")
    ends.account.publisher.publish(b"who", session=toy)
    ends.rig.run()
    assert origins == [toy, client, None, toy]
    assert all(origin is None or origin.account is ends.account for origin in origins)


@given(cuts=st.lists(st.integers(1, 40), max_size=20))
@settings(deadline=None, max_examples=30)
def test_the_toy_protocol_does_not_depend_on_the_reads(cuts: list[int]) -> None:
    with Rig() as rig:
        ends = Ends(rig)
        _, toy = ends.toy()
        data = frame(b"S a") + b"".join(frame(b"P a %d" % number) for number in range(8))
        for size in cuts:
            ends.send(toy, data[:size])
            data = data[size:]
        ends.send(toy, data)
        assert ends.read(toy) == b"".join(frame(b"M a %d" % number) for number in range(8))
        ends.close()


def test_a_failing_session_closes_itself_and_nobody_else(ends: Ends) -> None:
    (toy, toy_end), (client, client_end) = ends.toy(), ends.client()
    ends.send(toy_end, frame(b"S a"))
    ends.send(client_end, b"SUB a 1\r\nPUB a 7\r\nrefused\r\nPUB a 5\r\nfails\r\nPING\r\n")
    assert ends.read(client_end) == b"MSG a 1 7\r\nrefused\r\nMSG a 1 5\r\nfails\r\nPONG\r\n"
    assert (client.reason, toy.reason) == (None, ClosedReason.PROTOCOL_VIOLATION)
    broken, broken_end = ends.toy()
    ends.send(broken_end, frame(b"nonsense"))
    assert broken.reason is ClosedReason.PROTOCOL_VIOLATION
    assert len(ends.rig.failures) == 2
    ends.rig.failures.clear()


def test_a_publisher_waits_for_a_congested_toy() -> None:
    with Rig(max_pending=1_000_000) as rig:
        ends = Ends(rig)
        (toy, toy_end), (_, client) = ends.toy(buffer_bytes=4096), ends.client()
        ends.send(toy_end, frame(b"S a"))
        messages = [b"PUB a 10000\r\n%b\r\n" % (b"%02d" % number * 5000) for number in range(97)]
        for message in messages:
            ends.send(client, message)
        assert toy.stalls > 0
        received = b""
        while toy.pending_bytes:
            received += ends.read(toy_end)
        bodies, _ = frames_of(received + ends.read(toy_end))
        assert [body[4:6] for body in bodies] == [b"%02d" % number for number in range(97)]
        ends.send(client, b"".join(messages * 3))  # it reads no more
        rig.run(0.05)
        assert toy.reason is ClosedReason.SLOW_CONSUMER_PENDING_BYTES
        ends.close()


OPERATIONS = {
    "subscribe": b"SUB a 1\r\n",
    "unsubscribe": b"UNSUB 1\r\n",
    "publish": b"PUB a 5\r\nhello\r\n",
    "request": b"PUB nobody a 0\r\n\r\n",
    "publish with headers": b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    "publish much": b"PUB a 50000\r\n" + b"x" * 50_000 + b"\r\n",
    "ping": b"PING\r\n",
    "connect": b'CONNECT {"verbose":true}\r\n',
    "subscribe to others": b"SUB b.> 2\r\nPUB b.c 3\r\nabc\r\n",
}


@given(
    st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=20),
    st.integers(1, LENGTH_MAX),
    st.lists(st.integers(1, 5000), max_size=10),
)
@settings(deadline=None, max_examples=60)
def test_a_framing_changes_nothing_for_the_client_protocol(
    names: list[str], size: int, cuts: list[int]
) -> None:
    """The same operations framed, in frames and reads of any sizes, and not framed."""
    with Rig() as rig:
        plain, covered = Ends(rig), Ends(rig)
        _, plain_end = plain.client()
        _, covered_end = covered.client(LengthFraming())
        answers = b"".join(said(plain, plain_end, OPERATIONS[name]) for name in names)
        data = framed(b"".join(OPERATIONS[name] for name in names), size)
        coded = b""
        for cut in cuts:
            coded += said(covered, covered_end, data[:cut])
            data = data[cut:]
        assert unframed(coded + said(covered, covered_end, data)) == answers
        plain.close()
        covered.close()


def said(ends: Ends, peer: socket.socket, data: bytes) -> bytes:
    ends.send(peer, data)
    return ends.read(peer)


def test_a_framed_client_that_reads_slowly(ends: Ends) -> None:
    """Frames that the socket does not take whole are sent on, in order; the publisher waits."""
    (slow, slow_end), (_, client) = ends.client(LengthFraming(), 4096), ends.client()
    ends.send(slow_end, framed(b"SUB a 1\r\n", 7))
    payloads = [(b"%d," % number) * 3000 for number in range(40)]
    for payload in payloads:
        ends.send(client, b"PUB a %d\r\n%b\r\n" % (len(payload), payload))
    assert slow.pending_bytes > 0
    received = b""
    while slow.pending_bytes:
        received += ends.read(slow_end)
    expected = b"".join(b"MSG a 1 %d\r\n%b\r\n" % (len(each), each) for each in payloads)
    assert unframed(received + ends.read(slow_end)) == expected


def test_a_framing_on_a_transport() -> None:
    """The transport gets whole frames only, whenever it pauses writing."""
    with Rig() as rig:
        reader, publisher = rig.transport_peer(buffer_bytes=700), rig.socket_peer()
        reader.connection.endpoint.frame(LengthFraming())
        reader.send(framed(b"SUB a 1\r\n", 5))
        payloads = [b"%d" % number * 300 for number in range(30)]
        for payload in payloads:
            publisher.send(b"PUB a %d\r\n%b\r\n" % (len(payload), payload))
        received = b""
        while data := reader.read(500):
            received += data
        expected = b"".join(b"MSG a 1 %d\r\n%b\r\n" % (len(each), each) for each in payloads)
        assert unframed(received) == expected


def test_a_framed_client_that_is_told_why_it_is_closed(ends: Ends) -> None:
    session, peer = ends.client(LengthFraming())
    ends.send(peer, framed(b"nonsense\r\nPING\r\n", 3))
    assert unframed(ends.read(peer)) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert session.reason is ClosedReason.PROTOCOL_VIOLATION


def test_nothing_keeps_a_closed_connection_alive(ends: Ends) -> None:
    """Endpoint, protocol and session refer to each other only while the connection is open."""
    for session, peer in (ends.client(), ends.client(LengthFraming()), ends.toy()):
        open_count = sys.getrefcount(session)
        session.close(ClosedReason.KICKED)
        ends.rig.run()
        assert sys.getrefcount(session) == open_count - 2  # its endpoint and its protocol let go
        assert ends.read(peer) == b""


def test_a_framed_client_that_must_wait_continues_where_it_was(ends: Ends) -> None:
    """What was decoded before a wait is handled after it, though nothing more is received."""
    session, peer = ends.client(LengthFraming())
    session.suspend_reading(1 << 60)
    ends.send(peer, framed(b"SUB a 1\r\nPUB a 2\r\nhi\r\n", 5))
    assert ends.read(peer) == b""
    session.endpoint.resume_reading(lambda: None)
    assert unframed(ends.read(peer)) == b"MSG a 1 2\r\nhi\r\n"
