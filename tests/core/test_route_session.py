"""A route's session: what it tells its peer, what it sends there, and what the peer's frames do.

The peer is raw bytes at the other end of a socket pair; clients are connections of its reactor.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from natsd.accounts import Account
from natsd.core.network import AccountPublisher, Endpoint, RouteSession
from natsd.core.reasons import ClosedReason
from natsd.core.routing import PermissionRules
from tests.core.recipients import Rig, SocketPeer

LARGE = 100_000


class Route(RouteSession):
    """A route that knows the accounts of its rig."""

    def __init__(self, endpoint: Endpoint, accounts: dict[bytes, Account]) -> None:
        super().__init__(endpoint, 1)
        self.accounts = accounts
        self.received: list[tuple[str, object]] = []

    def find_account(self, name: bytes) -> Account | None:
        return self.accounts.get(name)

    def info_received(self, json: bytes) -> None:
        self.received.append(("INFO", json))

    def connect_received(self, json: bytes) -> None:
        self.received.append(("CONNECT", json))

    def error_received(self, text: str) -> None:
        self.received.append(("-ERR", text))

    def error(self, text: str) -> None:
        self.received.append(("error", text))


class RoutePeer:
    """Another server, at the other end of a route."""

    def __init__(self, rig: Rig, accounts: dict[bytes, Account]) -> None:
        self._rig = rig
        served, self._socket = socket.socketpair()
        self._socket.setblocking(False)
        endpoint = Endpoint(rig.reactor, rig.limits, served.detach())
        self.connection = self.route = Route(endpoint, accounts)
        endpoint.open()
        rig.peers.append(self)  # type: ignore[arg-type]  # it is closed as the others are

    def send(self, data: bytes) -> None:
        self._socket.setblocking(True)
        self._socket.sendall(data)
        self._socket.setblocking(False)
        for _ in range(3 + len(data) // 10_000):
            self._rig.run()

    def read(self) -> bytes:
        data = b""
        while True:
            self._rig.run()
            try:
                data += self._socket.recv(1 << 20)
            except BlockingIOError:
                return data

    def vanish(self) -> None:
        self._socket.close()


class Cluster:
    """A rig with the account $G, a route to another server, and clients."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.account = Account("$G", rig.reactor)
        rig.sublist, rig.counters = self.account.sublist, self.account.counters
        self.accounts = {b"$G": self.account}

    def peer(self, *, begun: bool = True) -> RoutePeer:
        peer = RoutePeer(self.rig, self.accounts)
        if begun:
            peer.route.begin()
            peer.route.carry(self.account)
        return peer

    def client(self) -> SocketPeer:
        return self.rig.socket_peer(buffer_bytes=1 << 20)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Rig() as rig:
        yield Cluster(rig)
        assert rig.failures == []


def test_the_peer_is_told_of_the_first_and_the_last_subscription_to_a_subject(
    cluster: Cluster,
) -> None:
    client, peer = cluster.client(), cluster.peer()
    client.send(b"SUB foo 1\r\nSUB foo 2\r\nSUB bar.* 3\r\n")
    assert peer.read() == b"RS+ $G foo\r\nRS+ $G bar.*\r\n"
    client.send(b"UNSUB 1\r\n")
    assert peer.read() == b""
    client.send(b"UNSUB 2\r\n")
    assert peer.read() == b"RS- $G foo\r\n"


def test_the_peer_is_told_of_each_weight_of_a_queue_group(cluster: Cluster) -> None:
    client, peer = cluster.client(), cluster.peer()
    client.send(b"SUB foo q 1\r\nSUB foo q 2\r\nUNSUB 1\r\nUNSUB 2\r\n")
    assert peer.read() == b"RS+ $G foo q 1\r\nRS+ $G foo q 2\r\nRS+ $G foo q 1\r\nRS- $G foo q\r\n"


def test_a_new_peer_is_told_of_all_interest_that_is_there(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(
        b"".join(b"SUB foo.%d %d\r\n" % (i, i) for i in range(1000)) + b"SUB foo q 1000\r\n"
    )
    lines = cluster.peer().read().split(b"\r\n")
    assert sorted(lines) == sorted(
        [b"", b"RS+ $G foo q 1", *(b"RS+ $G foo.%d" % i for i in range(1000))]
    )


def test_the_interest_of_one_server_is_not_passed_on_to_another(cluster: Cluster) -> None:
    first, second = cluster.peer(), cluster.peer()
    first.send(b"RS+ $G foo\r\nRS+ $G foo q 2\r\n")
    assert second.read() == b""


def test_a_message_goes_to_each_server_with_interest_once(cluster: Cluster) -> None:
    first, second, third = cluster.peer(), cluster.peer(), cluster.peer()
    first.send(b"RS+ $G foo\r\nRS+ $G *\r\nRS+ $G >\r\n")
    second.send(b"RS+ $G foo\r\n")
    cluster.client().send(
        b"PUB foo 5\r\nhello\r\nPUB foo reply 2\r\nhi\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )
    expected = (
        b"RMSG $G foo 5\r\nhello\r\nRMSG $G foo reply 2\r\nhi\r\n"
        b"HMSG $G foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )
    assert first.read() == expected
    assert second.read() == expected
    assert third.read() == b""


def test_one_frame_names_all_queue_groups_that_a_server_shall_serve(cluster: Cluster) -> None:
    peer = cluster.peer()
    peer.send(b"RS+ $G foo a 1\r\nRS+ $G foo b 3\r\n")
    client = cluster.client()
    client.send(b"PUB foo 2\r\nhi\r\n")
    assert peer.read() in (b"RMSG $G foo | a b 2\r\nhi\r\n", b"RMSG $G foo | b a 2\r\nhi\r\n")
    peer.send(b"RS- $G foo b\r\nRS+ $G foo\r\n")
    client.send(b"PUB foo re 2\r\nhi\r\nHPUB foo re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert peer.read() == (
        b"RMSG $G foo + re a 2\r\nhi\r\nHMSG $G foo + re a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )


def test_a_member_of_this_server_serves_its_queue_group(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.send(b"RS+ $G foo q 100\r\n")
    client.send(b"SUB foo q 1\r\nPUB foo 2\r\nhi\r\n")
    assert client.read(100) == b"MSG foo 1 2\r\nhi\r\n"
    assert peer.read() == b"RS+ $G foo q 1\r\n"


def test_servers_serve_a_queue_group_as_often_as_their_weights_say(cluster: Cluster) -> None:
    heavy, light, client = cluster.peer(), cluster.peer(), cluster.client()
    heavy.send(b"RS+ $G foo q 9\r\n")
    light.send(b"RS+ $G foo q 1\r\n")
    client.send(b"PUB foo 2\r\nhi\r\n" * 2000)
    frames = heavy.read().count(b"RMSG"), light.read().count(b"RMSG")
    assert sum(frames) == 2000
    assert 100 < frames[1] < 320


def test_a_message_of_a_peer_goes_to_plain_subscriptions_here_and_to_no_other_server(
    cluster: Cluster,
) -> None:
    peer, other, client = cluster.peer(), cluster.peer(), cluster.client()
    other.send(b"RS+ $G foo\r\n")
    client.send(b"SUB foo 1\r\nSUB * 2\r\nSUB foo q 3\r\n")
    other.read()
    peer.send(b"RMSG $G foo 5\r\nhello\r\n")
    frames = client.read(200)
    assert sorted(frames.split(b"MSG ")) == [b"", b"foo 1 5\r\nhello\r\n", b"foo 2 5\r\nhello\r\n"]
    assert other.read() == b""


def test_a_peer_names_the_queue_groups_that_get_its_message(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    client.send(b"SUB foo a 1\r\nSUB foo a 2\r\nSUB foo b 3\r\nSUB foo c 4\r\n")
    peer.send(b"RMSG $G foo + re a c 2\r\nhi\r\nHMSG $G foo | b 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    frames = client.read(300)
    assert frames.count(b"foo 1 re 2\r\n") + frames.count(b"foo 2 re 2\r\n") == 1
    assert b"MSG foo 4 re 2\r\nhi\r\n" in frames
    assert b"HMSG foo 3 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" in frames
    assert frames.count(b"MSG") == 3


def test_a_queue_group_that_left_meanwhile_is_served_by_another_server(cluster: Cluster) -> None:
    peer, other = cluster.peer(), cluster.peer()
    peer.send(b"RS+ $G foo q 1\r\n")
    other.send(b"RS+ $G foo q 1\r\n")
    peer.send(b"RMSG $G foo | q 2\r\nhi\r\n")
    assert peer.read() == b""
    assert other.read() == b"RMSG $G foo | _rerouted_ q 2\r\nhi\r\n"


def test_a_rerouted_message_is_for_queue_groups_alone_and_is_not_passed_on(
    cluster: Cluster,
) -> None:
    peer, other, client = cluster.peer(), cluster.peer(), cluster.client()
    other.send(b"RS+ $G foo r 1\r\n")
    client.send(b"SUB foo 1\r\nSUB foo q 2\r\n")
    other.read()
    peer.send(b"RMSG $G foo | _rerouted_ q r 2\r\nhi\r\n")
    assert client.read(100) == b"MSG foo 2 2\r\nhi\r\n"
    assert other.read() == b""


def test_large_payloads_pass_in_both_directions(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    data = bytes(i & 0xFF for i in range(LARGE))
    peer.send(b"RS+ $G out\r\n")
    client.send(b"SUB foo q 1\r\nPUB out %d\r\n%b\r\n" % (LARGE, data))
    received = b""
    while len(received) < LARGE:
        received += peer.read()
    assert received == b"RS+ $G foo q 1\r\nRMSG $G out %d\r\n%b\r\n" % (LARGE, data)
    peer.send(b"RMSG $G foo + re q %d\r\n%b\r\n" % (LARGE, data))
    received = b""
    while len(received) < LARGE:
        received += client.read(1 << 20)
    assert received == b"MSG foo 1 re %d\r\n%b\r\n" % (LARGE, data)


def test_a_dedicated_route_leaves_the_account_out(cluster: Cluster) -> None:
    peer, client = cluster.peer(begun=False), cluster.client()
    peer.route.begin(cluster.account)
    peer.route.carry(cluster.account)
    client.send(b"SUB foo 1\r\nSUB foo q 2\r\n")
    assert peer.read() == b"RS+ foo\r\nRS+ foo q 1\r\n"
    peer.send(b"RS+ bar\r\nRMSG foo 2\r\nhi\r\nRMSG foo + re q 2\r\nho\r\n")
    frames = client.read(200)
    assert frames.count(b"MSG foo 1") == 2
    assert frames.count(b"MSG foo 2 re 2\r\nho\r\n") == 1
    client.send(b"PUB bar 2\r\nhi\r\n")
    assert peer.read() == b"RMSG bar 2\r\nhi\r\n"


def test_interest_of_leaf_clusters_is_kept_apart(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.send(b"RS+ $G foo\r\nLS+ leaf $G foo\r\nLS+ leaf $G foo q 2\r\nRS- $G foo\r\n")
    client.send(b"PUB foo 2\r\nhi\r\n")
    assert peer.read() == b"RMSG $G foo | q 2\r\nhi\r\n"
    peer.send(b"LS- leaf $G foo\r\nLS- leaf $G foo q\r\n")
    client.send(b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
    assert peer.read() == b"RS+ $G foo\r\n"
    client.read(100)
    peer.send(b"LMSG leaf $G foo 0 2\r\nhi\r\nLMSG leaf $G foo re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert client.read(200) == (
        b"MSG foo 1 2\r\nhi\r\nHMSG foo 1 re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )


def test_a_streams_message_travels_under_the_subject_that_was_matched(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.send(b"RS+ $G inbox\r\n")
    client.send(b"SUB inbox 1\r\n")
    peer.read()
    peer.send(b"RMSG $G inbox $JS.ACK.S.C.1.1.1.1.0@orders.new 2\r\nhi\r\n")
    assert client.read(100) == b"MSG orders.new 1 $JS.ACK.S.C.1.1.1.1.0 2\r\nhi\r\n"
    peer.send(b"RMSG $G inbox $JS.ACK.S@1.C.1.1.1.1.0@orders.new 2\r\nhi\r\n")
    assert client.read(100) == b"MSG orders.new 1 $JS.ACK.S@1.C.1.1.1.1.0 2\r\nhi\r\n"
    for reply in (b"$JS.ACK.S.C.1.1.1.1.0@", b"$JS.ACK.S@1.C", b"$JS.ACKS.C.1.1.1.1.0.1@a"):
        peer.send(b"RMSG $G inbox %b 2\r\nhi\r\n" % reply)
        assert client.read(100) == b"MSG inbox 1 %b 2\r\nhi\r\n" % reply


def test_permissions_hold_in_both_directions_and_may_change(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.route.set_permissions(PermissionRules(publish_allow=["in.>"], subscribe_allow=["out.>"]))
    client.send(b"SUB in.a 1\r\nSUB out.a 2\r\n")
    assert peer.read() == b"RS+ $G in.a\r\n"
    peer.send(b"RS+ $G out.b\r\nRS+ $G in.b\r\nRMSG $G in.a 2\r\nhi\r\nRMSG $G out.a 2\r\nhi\r\n")
    client.send(b"PUB out.b 2\r\nhi\r\nPUB in.b 2\r\nhi\r\n")
    assert client.read(100) == b"MSG in.a 1 2\r\nhi\r\n"
    assert peer.read() == b"RMSG $G out.b 2\r\nhi\r\n"
    peer.route.set_permissions(PermissionRules(publish_allow=["out.>"], subscribe_allow=["in.>"]))
    assert sorted(peer.read().split(b"\r\n")) == [b"", b"RS+ $G out.a", b"RS- $G in.a"]
    client.send(b"PUB out.b 2\r\nhi\r\n")
    assert peer.read() == b""


def test_interest_and_messages_of_unknown_accounts_are_dropped(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    client.send(b"SUB foo 1\r\n")
    peer.send(b"RS+ $X foo\r\nRMSG $X foo 2\r\nhi\r\nRMSG $G foo 2\r\nhi\r\n")
    assert client.read(100) == b"MSG foo 1 2\r\nhi\r\n"
    assert peer.route.num_subscriptions == 0


def test_a_lost_peer_takes_its_interest_with_it(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.send(b"".join(b"RS+ $G foo.%d\r\n" % i for i in range(5000)))
    assert cluster.account.sublist.count == 5000
    peer.route.close(ClosedReason.CLIENT_CLOSED)
    for _ in range(5):
        cluster.rig.run()
    assert cluster.account.sublist.count == 0
    client.send(b"SUB foo.1 1\r\nPUB foo.1 2\r\nhi\r\n")
    assert client.read(100) == b"MSG foo.1 1 2\r\nhi\r\n"


def test_a_dropped_account_is_told_nothing_more(cluster: Cluster) -> None:
    peer, client = cluster.peer(), cluster.client()
    peer.send(b"RS+ $G bar\r\n")
    peer.route.drop(cluster.account)
    client.send(b"SUB foo 1\r\nPUB bar 2\r\nhi\r\n")
    assert peer.read() == b""
    assert cluster.account.sublist.count == 1


def test_interest_that_moves_to_another_route_is_served_there_alone(cluster: Cluster) -> None:
    """The subscriptions of the old one are still listed: they are removed in slices."""
    before, after = cluster.peer(), cluster.peer()
    lines = b"RS+ $G foo\r\n" + b"".join(b"RS+ $G foo.%d\r\n" % each for each in range(10_000))
    for peer in (before, after):
        peer.send(lines)
    publisher = AccountPublisher(cluster.rig.reactor, cluster.account.sublist)
    before.route.drop(cluster.account)
    subjects = [b"foo", *(b"foo.%d" % number for number in range(0, 10_000, 10))]
    for subject in subjects:
        assert publisher.publish(subject) == 1
    assert before.read() == b""
    assert after.read().count(b"RMSG") == len(subjects)


@pytest.mark.parametrize(
    "frame",
    [b"RS+ $G foo\r\n", b"RMSG $G foo 2\r\nhi\r\n", b"PUB foo 2\r\nhi\r\n", b"SUB foo 1\r\n"],
)
def test_before_the_handshake_is_over_nothing_else_is_allowed(
    cluster: Cluster, frame: bytes
) -> None:
    peer = cluster.peer(begun=False)
    peer.send(b'INFO {"server_id":"X"}\r\nCONNECT {"a":1}\r\nPING\r\n-ERR \'no\'\r\n')
    assert peer.route.received == [
        ("INFO", b'{"server_id":"X"}'),
        ("CONNECT", b'{"a":1}'),
        ("-ERR", "no"),
    ]
    assert peer.read() == b"PONG\r\n"
    peer.send(frame)
    assert peer.route.reason is ClosedReason.PARSE_ERROR


@pytest.mark.parametrize(
    "frame",
    [
        b"PUB foo 2\r\nhi\r\n",
        b"SUB foo 1\r\n",
        b"RS+ $G\r\n",
        b"RS+\r\n",
        b"RS* $G foo\r\n",
        b"RS+ $G foo q\r\n",
        b"RS+ $G foo q x\r\n",
        b"RMSG $G foo\r\n",
        b"RMSG $G foo x\r\n",
        b"RMSG $G foo ! q q2 q3 5\r\n",
        b"RMSG $G foo | q q2 q3 x\r\n",
        b"HMSG $G foo 5 2\r\n",
        b"HMSG $G foo | q 5 2\r\n",
        b"RMSG $G foo 999999999\r\n",
        b"RMSG $G foo 2\r\nhixx",
        b"RS+ $G " + b"x" * 70_000,
    ],
)
def test_invalid_frames_close_the_route(cluster: Cluster, frame: bytes) -> None:
    peer = cluster.peer()
    peer.send(frame)
    assert peer.route.reason is ClosedReason.PARSE_ERROR
    assert peer.route.received[0][0] == "error"


FRAMES = (
    b"RS+ $G a.*\r\nRS+ $G foo q 7\r\nRS- $G nothing\r\nRMSG $G foo 5\r\nhello\r\n"
    b"RMSG $G foo reply 0\r\n\r\nHMSG $G foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    b"RMSG $G foo + re a c 2\r\nhi\r\nPING\r\nRMSG  $G\tfoo  2 \r\nho\r\nPONG\r\n"
    b"HMSG $G foo | a 0 2\r\nhi\r\n+OK\r\n"
)


def test_the_stream_may_be_cut_anywhere(cluster: Cluster) -> None:
    client = cluster.client()
    client.send(b"SUB foo 1\r\nSUB foo a 2\r\nSUB foo c 3\r\n")
    whole = cluster.peer()
    whole.send(FRAMES)
    expected = client.read(10_000)
    assert expected.count(b"MSG ") == 9
    for at in range(len(FRAMES)):
        peer = cluster.peer()
        peer.send(FRAMES[:at])
        peer.send(FRAMES[at:])
        assert client.read(10_000) == expected, at
        assert peer.route.num_subscriptions == 2
        peer.route.close(ClosedReason.CLIENT_CLOSED)
        cluster.rig.run()
