"""TLS before the client protocol: the bytes are exactly those without it, however they are split.

client's SSLObject ── random pieces ──▶ Endpoint ── TlsFraming ── ClientProtocol ── ClientSession
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.core.network import TlsEngine, TlsFraming
from natsd.core.reasons import ClosedReason
from natsd.testing.certificates import Authority
from tests.core.recipients import Peer, Rig, SocketPeer, TransportPeer

ANY_PEER = pytest.mark.parametrize("kind", [SocketPeer, TransportPeer])
PIECES = st.integers(1, 40_000)
PAYLOADS = st.one_of(st.integers(0, 300), st.integers(8_000, 40_000), st.just(100_000))
ROUNDS_MAX = 2000


class Opening:
    """What is told of a handshake."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.told: list[object] = []

    def handshake_done(self) -> None:
        self.told.append("done")

    def handshake_failed(self, error: ssl.SSLError | str) -> None:
        self.told.append(error)

    def handshake_ended(self, reason: ClosedReason) -> ClosedReason:
        self.told.append(reason)
        return ClosedReason.TLS_HANDSHAKE_FAILURE


class TlsPeer:
    """A client with TLS, at the other end of a peer."""

    def __init__(self, rig: Rig, engine: TlsEngine, peer: Peer, server: ssl.SSLContext) -> None:
        self.rig = rig
        self.peer = peer
        self.opening = Opening(server)
        self.framing = TlsFraming(engine, peer.connection.endpoint, self.opening)
        peer.connection.endpoint.frame(self.framing)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.wrap_bio(self.incoming, self.outgoing)
        self.plain = bytearray()

    def shake_hands(self) -> None:
        for _ in range(ROUNDS_MAX):
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.peer.send(self.outgoing.read())
                self.incoming.write(self.peer.read(1 << 20))
        self.peer.send(self.outgoing.read())
        for _ in range(ROUNDS_MAX):  # it may have to wait for its turn
            if self.opening.told:
                return
            self.rig.run(0.001)
        raise AssertionError("the handshake does not end")

    def send(self, data: bytes) -> None:
        self.peer.send(self.sealed(data))

    def sealed(self, data: bytes) -> bytes:
        if data:
            self.tls.write(data)
        return self.outgoing.read()

    def read(self) -> bytes:
        """Return what has arrived since the last call."""
        while received := self.peer.read(1 << 16):
            self.incoming.write(received)
            try:
                while True:
                    self.plain += self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLZeroReturnError:
                break
        plain, self.plain = bytes(self.plain), bytearray()
        return plain


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory: Path = tmp_path_factory.mktemp("certificates")
    pair = Authority(directory).sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    context.num_tickets = 0
    return context


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


def peer_of(rig: Rig, kind: type[Peer], buffer_bytes: int = 1 << 18) -> Peer:
    if kind is SocketPeer:
        return rig.socket_peer(buffer_bytes=buffer_bytes)
    return rig.transport_peer(buffer_bytes=buffer_bytes)


def connected(
    rig: Rig, kind: type[Peer], context: ssl.SSLContext, buffer_bytes: int = 1 << 18
) -> tuple[TlsEngine, TlsPeer]:
    engine = TlsEngine(rig.reactor)
    peer = TlsPeer(rig, engine, peer_of(rig, kind, buffer_bytes), context)
    peer.shake_hands()
    assert peer.opening.told == ["done"]
    return engine, peer


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    cut, at = [], 0
    for size in [*sizes, len(data)]:
        cut.append(data[at : at + size])
        at += size
    return [piece for piece in cut if piece]


@ANY_PEER
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PAYLOADS, min_size=1, max_size=8), st.lists(PIECES, max_size=12), st.lists(PIECES))
def test_every_split_delivers_exactly_the_bytes(
    server_context: ssl.SSLContext,
    kind: type[Peer],
    sizes: list[int],
    records: list[int],
    reads: list[int],
) -> None:
    """Records of any size, received in pieces of any size, are the messages that were sent."""
    with Rig() as rig:
        _, peer = connected(rig, kind, server_context)
        peer.send(b"SUB > 1\r\n")
        payloads = [bytes((i + n) % 251 for n in range(size)) for i, size in enumerate(sizes)]
        sent = b"".join(b"PUB a.%d %d\r\n%b\r\n" % (i, len(p), p) for i, p in enumerate(payloads))
        sealed = b"".join(peer.sealed(record) for record in pieces(sent, records))
        received = b""
        for piece in pieces(sealed, reads):
            peer.peer.send(piece)
            received += peer.read()
        for _ in range(50):
            received += peer.read()
        assert received == b"".join(
            b"MSG a.%d 1 %d\r\n%b\r\n" % (i, len(p), p) for i, p in enumerate(payloads)
        )
        assert rig.failures == []


@ANY_PEER
def test_bytes_before_tls_are_sent_as_they_are(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    plain = peer_of(rig, kind)
    plain.connection.send_protocol(b"INFO {}\r\n")
    peer = TlsPeer(rig, TlsEngine(rig.reactor), plain, server_context)
    assert plain.read(100) == b"INFO {}\r\n"
    peer.shake_hands()
    peer.send(b"PING\r\n")
    assert peer.read() == b"PONG\r\n"


@ANY_PEER
def test_bytes_of_the_handshake_wait_for_its_end(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    peer = TlsPeer(rig, TlsEngine(rig.reactor), peer_of(rig, kind), server_context)
    peer.peer.connection.send_protocol(b"+OK\r\n")
    peer.shake_hands()
    assert peer.read() == b"+OK\r\n"


@ANY_PEER
def test_two_connections_do_not_mix(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    """Publishing on one connection encrypts for another, between two records of the first."""
    engine = TlsEngine(rig.reactor)
    one, two = [TlsPeer(rig, engine, peer_of(rig, kind), server_context) for _ in range(2)]
    for peer in (one, two):
        peer.shake_hands()
        peer.send(b"SUB > 1\r\n")
    sent = b"".join(b"PUB a 20000\r\n%b\r\n" % (b"%05d" % n * 4000) for n in range(9))
    received = {one: b"", two: b""}
    for piece in pieces(one.sealed(sent), [7000] * 30):
        one.peer.send(piece)
        for peer in received:
            received[peer] += peer.read()
    for peer in received:
        received[peer] += peer.read()
        assert received[peer] == sent.replace(b"PUB a", b"MSG a 1")


@ANY_PEER
def test_the_peers_close_notify_closes(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    _, peer = connected(rig, kind, server_context)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.send(b"")
    assert peer.peer.connection.reason is ClosedReason.CLIENT_CLOSED
    peer.incoming.write(peer.peer.read(1000))
    peer.tls.unwrap()  # ours has come too


@ANY_PEER
def test_bytes_that_are_no_record_close(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    engine, peer = connected(rig, kind, server_context)
    other = TlsPeer(rig, engine, peer_of(rig, kind), server_context)
    peer.peer.send(b"\x17\x03\x03\x00\x20" + b"x" * 32 + b"PUB a 2\r\nhi\r\n")
    assert peer.peer.connection.reason is ClosedReason.READ_ERROR
    other.shake_hands()  # nothing of it is left in the engine
    assert rig.failures == []


@ANY_PEER
def test_another_protocol_is_not_given_to_openssl(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    peer = TlsPeer(rig, TlsEngine(rig.reactor), peer_of(rig, kind), server_context)
    peer.peer.send(b"GET / HTTP/1.1\r\n")
    assert peer.opening.told == ["tls: first record does not look like a TLS handshake"]
    assert peer.framing.tls is None


@ANY_PEER
def test_openssl_gets_the_first_record_when_it_is_whole(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    """Half a handshake takes no memory of OpenSSL."""
    peer = TlsPeer(rig, TlsEngine(rig.reactor), peer_of(rig, kind), server_context)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    hello = peer.outgoing.read()
    for piece in (hello[:3], hello[3:6], hello[6:-1]):
        peer.peer.send(piece)
        assert peer.framing.has_begun
        assert peer.framing.tls is None
    peer.peer.send(hello[-1:])
    assert peer.framing.tls is not None
    peer.incoming.write(peer.peer.read(1 << 16))
    peer.shake_hands()


def test_a_first_record_without_end_is_not_collected(
    rig: Rig, server_context: ssl.SSLContext
) -> None:
    peer = TlsPeer(rig, TlsEngine(rig.reactor), peer_of(rig, SocketPeer), server_context)
    peer.peer.send(b"\x16\x03\x01\x40\x00" + bytes(4090))
    assert peer.framing.tls is None
    peer.peer.send(bytes(1))
    assert peer.framing.tls is not None


@ANY_PEER
def test_a_stalled_publisher_goes_on_where_it_stopped(
    rig: Rig, server_context: ssl.SSLContext, kind: type[Peer]
) -> None:
    """A recipient is congested: the rest of the record waits, and arrives once it has room."""
    rig.limits.max_pending = 400_000
    _, publisher = connected(rig, kind, server_context, 1 << 20)
    reader = rig.socket_peer(buffer_bytes=4096)
    reader.send(b"SUB > 1\r\n")
    sent = b"".join(b"PUB a 5000\r\n%b\r\n" % (b"%05d" % n * 1000) for n in range(70))
    publisher.send(sent)
    received = b""
    for _ in range(2000):
        received += reader.read(1 << 16)
        if len(received) >= len(sent) + 70 * 2:
            break
        rig.run(0.001)
    assert received == sent.replace(b"PUB a", b"MSG a 1")


def test_handshakes_that_come_together_take_turns(rig: Rig, server_context: ssl.SSLContext) -> None:
    """Only one goes at once; the others wait, unread, and end in later turns of the loop."""
    engine = TlsEngine(rig.reactor)
    peers = [
        TlsPeer(rig, engine, rig.transport_peer(buffer_bytes=1 << 16), server_context)
        for _ in range(9)
    ]
    for peer in peers:
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        hello = peer.outgoing.read()
        endpoint = peer.peer.connection.endpoint
        endpoint.read_space(len(hello))[: len(hello)] = hello
        endpoint.bytes_read(len(hello))
    assert engine.waiting_handshakes >= 7
    for peer in peers:
        while not peer.peer.read(0) and engine.waiting_handshakes:
            rig.run()
        peer.incoming.write(peer.peer.read(1 << 16))
        peer.shake_hands()
        peer.send(b"PING\r\n")
        assert peer.read() == b"PONG\r\n"
    assert engine.waiting_handshakes == 0


def test_an_idle_connection_holds_no_decrypted_bytes(
    rig: Rig, server_context: ssl.SSLContext
) -> None:
    """The engine is empty after each read, so that connections can share it."""
    engine, peer = connected(rig, SocketPeer, server_context)
    again = TlsPeer(rig, engine, rig.socket_peer(buffer_bytes=1 << 16), server_context)
    peer.send(b"PUB a 50000\r\n" + b"x" * 20000)
    again.shake_hands()
    again.send(b"PING\r\n")
    assert again.read() == b"PONG\r\n"
