"""The compiled load generator counts only correct frames, wherever the stream is cut."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.bench.jetstream.load import Callers, Deliveries, FrameReader, PubAcks
from natsd.bench.wire import LoadError, set_receive_timeout


@dataclass
class Pipe:
    """A socket to read from, and its other end."""

    ours: socket.socket
    theirs: socket.socket

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def pipe() -> Pipe:
    ours, theirs = socket.socketpair()
    set_receive_timeout(ours, 0.02)
    return Pipe(ours, theirs)


@pytest.fixture
def ends() -> Iterator[Pipe]:
    made = pipe()
    yield made
    made.close()


def ack(token: int, sequence: int, text: bytes = b'{"stream":"S", "seq":%d}') -> bytes:
    data = text % sequence if b"%d" in text else text
    return b"MSG _INBOX.bench.%05d 1 %d\r\n%s\r\n" % (token, len(data), data)


def delivery(sequence: int, consumers: int, *, deliveries: int = 1, headers: bytes = b"") -> bytes:
    reply = b"$JS.ACK.S.C.%d.%d.%d.1700000000000000000.%d" % (deliveries, sequence, consumers, 7)
    if headers:
        return b"HMSG data.0 1 %s %d %d\r\n%sxyz\r\n" % (
            reply,
            len(headers),
            len(headers) + 3,
            headers,
        )
    return b"MSG data.0 1 %s 3\r\nxyz\r\n" % reply


def status(text: bytes, reply: bytes = b"", more: bytes = b"") -> bytes:
    block = b"NATS/1.0 %s\r\n%s\r\n" % (text, more)
    reply = reply and b" " + reply
    return b"HMSG _INBOX.deliver 1%s %d %d\r\n%s\r\n" % (reply, len(block), len(block), block)


def read_all(reader: FrameReader) -> None:
    while reader.fill():
        pass


# ---- acknowledgements


def test_acks_are_counted_by_token(ends: Pipe) -> None:
    acks = PubAcks(ends.ours.fileno(), 3)
    ends.theirs.sendall(ack(0, 1) + b"PING\r\n" + ack(2, 2) + ack(0, 13)[:-5])
    acks.fill()
    assert acks.take() == 2
    ends.theirs.sendall(ack(0, 13)[-5:])
    acks.fill()
    assert acks.take() == 1
    assert acks.counts() == [2, 0, 1]
    assert acks.last_sequence == 13


WRONG_ACKS = {
    "an error": (ack(0, 1, b'{"error":{"code":503},"stream":"S","seq":0}'), "no acknowledgement"),
    "no sequence": (ack(0, 1, b'{"stream":"S"}'), "no acknowledgement"),
    "a duplicate": (ack(0, 1, b'{"stream":"S","seq":%d,"duplicate":true}'), "a duplicate"),
    "sequence 0": (ack(0, 0), "unexpected acknowledgement"),
    "an unknown token": (ack(3, 1), "unexpected acknowledgement"),
    "nobody listens": (status(b"503"), "no acknowledgement"),
    "an error of the protocol": (b"-ERR 'Slow Consumer'\r\n", "the server says"),
    "garbage": (b"MSG \r\n", "malformed"),
}


@pytest.mark.parametrize("wrong", WRONG_ACKS)
def test_a_wrong_ack_ends_the_run(ends: Pipe, wrong: str) -> None:
    frame, complaint = WRONG_ACKS[wrong]
    acks = PubAcks(ends.ours.fileno(), 3)
    ends.theirs.sendall(frame)
    acks.fill()
    with pytest.raises(LoadError, match=complaint):
        acks.take()


def test_silence_and_a_hang_up(ends: Pipe) -> None:
    acks = PubAcks(ends.ours.fileno(), 3)
    assert acks.fill() == 0
    ends.theirs.close()
    with pytest.raises(LoadError, match="closed the connection"):
        acks.fill()


@given(st.lists(st.integers(0, 4)), st.lists(st.integers(1, 40), min_size=1))
def test_however_the_stream_is_cut(tokens: list[int], pieces: list[int]) -> None:
    ends = pipe()
    try:
        acks = PubAcks(ends.ours.fileno(), 5)
        stream = b"".join(ack(token, number + 1) for number, token in enumerate(tokens))
        taken = position = turn = 0
        while position < len(stream):
            size = pieces[turn % len(pieces)]
            ends.theirs.sendall(stream[position : position + size])
            acks.fill()
            taken += acks.take()
            position, turn = position + size, turn + 1
        assert taken == len(tokens)
        assert acks.counts() == [tokens.count(token) for token in range(5)]
        assert acks.received_bytes == len(stream)
    finally:
        ends.close()


# ---- deliveries


def test_deliveries_are_counted_and_acknowledged(ends: Pipe) -> None:
    deliveries = Deliveries(ends.ours.fileno(), acknowledges=True)
    ends.theirs.sendall(
        delivery(5, 1) + delivery(9, 2, headers=b"NATS/1.0\r\nA: b\r\n\r\n") + delivery(10, 3)[:20]
    )
    deliveries.fill()
    assert deliveries.take() == 2
    assert (deliveries.last_sequence, deliveries.last_consumer_sequence) == (9, 2)
    assert deliveries.pending == 7
    assert deliveries.answers() == (
        b"PUB $JS.ACK.S.C.1.5.1.1700000000000000000.7 4\r\n+ACK\r\n"
        b"PUB $JS.ACK.S.C.1.9.2.1700000000000000000.7 4\r\n+ACK\r\n"
    )
    assert deliveries.answers() == b""


def test_flow_control_is_answered_and_heartbeats_are_not(ends: Pipe) -> None:
    """A flow control request has a reply subject; a stalled consumer's heartbeat names one."""
    deliveries = Deliveries(ends.ours.fileno(), acknowledges=False)
    ends.theirs.sendall(
        status(b"100 FlowControl Request", b"$JS.FC.S.C.1")
        + status(b"100 Idle Heartbeat", more=b"Nats-Last-Consumer: 3\r\n")
        + status(b"100 Idle Heartbeat", more=b"Nats-Consumer-Stalled: $JS.FC.S.C.2\r\n")
        + delivery(1, 1)
    )
    deliveries.fill()
    assert deliveries.take() == 1
    assert deliveries.answers() == b"PUB $JS.FC.S.C.1 0\r\n\r\nPUB $JS.FC.S.C.2 0\r\n\r\n"
    assert deliveries.status == b""


def test_any_other_status_is_kept(ends: Pipe) -> None:
    deliveries = Deliveries(ends.ours.fileno(), acknowledges=False)
    ends.theirs.sendall(status(b"409 Consumer Deleted"))
    deliveries.fill()
    assert deliveries.take() == 0
    assert deliveries.status == b"409 Consumer Deleted"


WRONG_DELIVERIES = {
    "a gap": (delivery(2, 2), "delivery 2 after 0"),
    "delivered again": (delivery(1, 1, deliveries=2), "delivered again"),
    "no reply": (b"MSG data.0 1 3\r\nxyz\r\n", "no delivery"),
    "another reply": (b"MSG data.0 1 inbox 3\r\nxyz\r\n", "no delivery"),
    "a short ack subject": (b"MSG data.0 1 $JS.ACK.S.C.1 3\r\nxyz\r\n", "unexpected ack subject"),
}


@pytest.mark.parametrize("wrong", WRONG_DELIVERIES)
def test_a_wrong_delivery_ends_the_run(ends: Pipe, wrong: str) -> None:
    frame, complaint = WRONG_DELIVERIES[wrong]
    deliveries = Deliveries(ends.ours.fileno(), acknowledges=False)
    ends.theirs.sendall(frame)
    deliveries.fill()
    with pytest.raises(LoadError, match=complaint):
        deliveries.take()


def test_a_frame_larger_than_the_buffer(ends: Pipe) -> None:
    """The buffer grows; a thread sends, because the socket cannot buffer the frame."""
    deliveries = Deliveries(ends.ours.fileno(), acknowledges=False)
    body = b"x" * (3 << 20)
    reply = b"$JS.ACK.S.C.1.1.1.1700000000000000000.0"
    frame = b"MSG data.0 1 %s %d\r\n%s\r\n" % (reply, len(body), body)
    sender = threading.Thread(target=ends.theirs.sendall, args=(frame,))
    sender.start()
    taken = 0
    while not taken:
        deliveries.fill()
        taken += deliveries.take()
    sender.join(10)
    assert deliveries.received_bytes == len(frame)


# ---- clients that wait for answers


def answers_of(sock: socket.socket, answer: bytes, calls: int, size: int) -> None:
    received = 0
    for _ in range(calls):
        while received < size:
            received += len(sock.recv(size))
        received -= size
        sock.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "data_bytes"),
    [(ack(0, 1), -1), (b"PING\r\nHMSG i 1 12 15\r\nNATS/1.0\r\n\r\nabc\r\n", 3)],
)
def test_every_call_is_answered(ends: Pipe, answer: bytes, data_bytes: int) -> None:
    request = b"PUB a i 1\r\nx\r\n"
    callers = Callers([ends.ours.fileno()], [request * 2], len(request), data_bytes)
    server = threading.Thread(target=answers_of, args=(ends.theirs, answer, 10, len(request)))
    server.start()
    latencies: list[int] = []
    assert callers.run(10, latencies) == 10
    server.join(10)
    assert len(latencies) == 10
    assert min(latencies) > 0


@pytest.mark.parametrize(
    ("answer", "data_bytes", "complaint"),
    [
        (ack(0, 1, b'{"error":{}}'), -1, "no acknowledgement"),
        (status(b"404 Message Not Found"), 3, "unexpected answer"),
    ],
)
def test_a_wrong_answer_ends_the_run(
    ends: Pipe, answer: bytes, data_bytes: int, complaint: str
) -> None:
    callers = Callers([ends.ours.fileno()], [b"PUB a i 1\r\nx\r\n"], 14, data_bytes)
    ends.theirs.sendall(answer)
    with pytest.raises(LoadError, match=complaint):
        callers.run(1, None)
