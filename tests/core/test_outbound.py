"""A slow reader finally reads what was published: in order, whole, nothing twice.

Small frames are packed into chunks; payloads over 8 KiB are kept in a chunk by reference, and those
over 32 KiB may be objects of their own. Sockets accept any number of bytes at a time.
"""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.recipients import Peer, Rig

DRAIN_ROUNDS_MAX = 20_000
KINDS = ["socket_peer", "transport_peer"]
SIZES = [0, 1, 100, 4000, 8189, 8190, 8191, 8192, 20_000, 32_740, 33_000, 70_000, 262_144]

Step = tuple[str, int, int]


def payload(number: int, size: int) -> bytes:
    """Return a payload that differs for each number and does not repeat itself."""
    return b"".join(b"%d.%d " % (number, at) for at in range(size // 4 + 1))[:size]


def drain(peer: Peer, at_a_time: int = 65_536) -> bytes:
    """Read everything that is pending."""
    received = bytearray()
    for _ in range(DRAIN_ROUNDS_MAX):
        data = peer.read(at_a_time)
        received += data
        if not data and (peer.connection.reason or not peer.connection.pending_bytes):
            return bytes(received)
    raise AssertionError("it never ends")


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        line, _, _ = data.partition(b"\r\n")
        size = len(line) + 2
        if line.startswith((b"MSG", b"HMSG")):
            size += int(line.rpartition(b" ")[2]) + 2
        assert len(data) >= size
        yield data[:size]
        data = data[size:]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Draw a list of steps.

    A step publishes some messages of one size in one write, reads some bytes of one reader, or
    sends a PING from one reader.
    """
    publish = st.tuples(st.just("publish"), st.sampled_from(SIZES), st.integers(1, 4))
    read = st.tuples(
        st.just("read"), st.integers(0, 2), st.sampled_from([1, 7, 1000, 9000, 80_000])
    )
    ping = st.tuples(st.just("ping"), st.integers(0, 2), st.just(0))
    return draw(st.lists(st.one_of(publish, publish, read, ping), max_size=16))


buffers = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([700, 4096, 8192, 50_000])),
    min_size=3,
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(steps=steps(), buffers=buffers, from_transport=st.booleans())
def test_every_reader_gets_all(
    steps: list[Step], buffers: list[tuple[str, int]], from_transport: bool
) -> None:
    with Rig() as rig:
        publisher = rig.transport_peer() if from_transport else rig.socket_peer()
        readers = [getattr(rig, kind)(buffer_bytes=size) for kind, size in buffers]
        received = [bytearray() for _ in readers]
        pings = [0 for _ in readers]
        published: list[tuple[int, bytes]] = []
        for reader in readers:
            reader.send(b"SUB foo %d\r\n" % reader.connection.cid)
        for action, one, other in steps:
            if action == "publish":
                fresh = [(one, payload(len(published) + n, one)) for n in range(other)]
                publisher.send(b"".join(b"PUB foo %d\r\n%b\r\n" % message for message in fresh))
                published += fresh
            elif action == "read":
                received[one] += readers[one].read(other)
            else:
                readers[one].send(b"PING\r\n")
                pings[one] += 1
        for reader, data, pinged in zip(readers, received, pings, strict=True):
            data += drain(reader)
            got = list(frames(bytes(data)))
            head = b"MSG foo %d " % reader.connection.cid
            assert [frame for frame in got if frame != b"PONG\r\n"] == [
                head + b"%d\r\n%b\r\n" % message for message in published
            ]
            assert got.count(b"PONG\r\n") == pinged
            assert reader.connection.out_msgs == len(published)
            assert reader.connection.reason is None
        assert rig.failures == []


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.sampled_from(SIZES[:-1]), min_size=1, max_size=30),
    kind=st.sampled_from(KINDS),
    max_pending=st.sampled_from([10_000, 40_000, 100_000]),
    reads=st.lists(st.sampled_from([1, 1000, 20_000]), max_size=10),
)
def test_a_slow_consumer_got_a_beginning(
    sizes: list[int], kind: str, max_pending: int, reads: list[int]
) -> None:
    """A client that is closed as a slow consumer has read an undamaged prefix of the messages."""
    with Rig(max_pending=max_pending) as rig:
        publisher = rig.socket_peer()
        slow, bystander = getattr(rig, kind)(), rig.socket_peer()
        slow.send(b"SUB foo 1\r\n")
        received = b""
        expected = b""
        for number, size in enumerate(sizes):
            message = (size, payload(number, size))
            publisher.send(b"PUB foo %d\r\n%b\r\n" % message)
            expected += b"MSG foo 1 %d\r\n%b\r\n" % message
            received += slow.read(reads[number]) if number < len(reads) else b""
        received += drain(slow)
        if slow.connection.reason is None:
            assert received == expected
        else:
            assert expected.startswith(received)
            assert rig.counters.slow_consumers == 1
        bystander.send(b"PING\r\n")
        assert drain(bystander) == b"PONG\r\n"
        assert rig.failures == []


@pytest.mark.parametrize("kind", KINDS)
def test_one_payload_for_many_who_are_blocked(kind: str) -> None:
    """The payload that blocked readers share outlives the read, and readers that leave."""
    with Rig() as rig:
        publisher = rig.socket_peer()
        readers = [getattr(rig, kind)() for _ in range(20)]
        for reader in readers:
            reader.send(b"SUB foo 1\r\n")
        sizes = (20_000, 9000, 100_000, 30)
        for number, size in enumerate(sizes):
            publisher.send(b"PUB foo %d\r\n%b\r\n" % (size, payload(number, size)))
            readers[3 * number].vanish()
        expected = b"".join(
            b"MSG foo 1 %d\r\n%b\r\n" % (size, payload(number, size))
            for number, size in enumerate(sizes)
        )
        for number, reader in enumerate(readers):
            if number not in (0, 3, 6, 9):
                assert drain(reader, 1000) == expected
        assert rig.failures == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [100, 9000, 40_000])
def test_without_headers(kind: str, size: int) -> None:
    """A client without headers gets no header block; other clients get it."""
    with Rig() as rig:
        publisher = rig.socket_peer()
        new, old = getattr(rig, kind)(), getattr(rig, kind)(headers=False)
        new.send(b"SUB foo 1\r\n")
        old.send(b"SUB foo 2\r\n")
        block, data = b"NATS/1.0\r\n\r\n", payload(0, size)
        publisher.send(b"HPUB foo re 12 %d\r\n%b%b\r\n" % (12 + size, block, data))
        assert drain(new) == b"HMSG foo 1 re 12 %d\r\n%b%b\r\n" % (12 + size, block, data)
        assert drain(old) == b"MSG foo 2 re %d\r\n%b\r\n" % (size, data)


@pytest.mark.parametrize("kind", KINDS)
def test_read_one_byte_at_a_time(kind: str) -> None:
    with Rig() as rig:
        publisher = rig.socket_peer()
        reader = getattr(rig, kind)(buffer_bytes=1)
        reader.send(b"SUB foo 1\r\n")
        stream = b"".join(b"PUB foo %d\r\n%b\r\n" % (n * 9, payload(n, n * 9)) for n in range(40))
        publisher.send(stream)
        expected = re.sub(rb"PUB foo (\d+)\r", rb"MSG foo 1 \1\r", stream)
        assert drain(reader, 1) == expected
