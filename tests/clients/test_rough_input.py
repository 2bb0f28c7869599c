"""Input that no well-behaved client sends: the server answers or closes, and others go on."""

from __future__ import annotations

import random
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clients.conftest import StartServerProcess, StartThreadedServer
from tests.clients.measure import resident_bytes
from tests.clients.target import Target
from tests.clients.transcript import byte_by_byte
from tests.clients.wire import Closed, Wire

pytestmark = pytest.mark.served_every_way

MIB = 1024 * 1024
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
SESSION = (
    CONNECT
    + b"SUB rough.* 1\r\nSUB rough.> roughs 2\r\nPING\r\n"
    + b"PUB rough.a 5\r\nhello\r\nPUB rough.a reply 0\r\n\r\n"
    + b"HPUB rough.a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    + b"UNSUB 2\r\nUNSUB 1 9\r\nPONG\r\nINFO {}\r\n+OK\r\n"
)
ANSWERS = re.compile(rb"(PONG|\+OK|INFO \{.*\} |-ERR '[^\n]*'|H?MSG [^\n]*\r\n.*)\r\n", re.DOTALL)

fuzzed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def server(shared_server: Callable[..., Target]) -> Target:
    return shared_server()


@pytest.fixture
def bystander(server: Target) -> Iterator[Wire]:
    """Yield a connection that must not notice anything."""
    with Wire(server.address) as wire:
        wire.send(CONNECT)
        wire.sync()
        yield wire
        assert wire.sync() == []


@fuzzed
@given(garbage=st.binary(max_size=300))
def test_garbage(server: Target, bystander: Wire, garbage: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(garbage)
        wire.half_close()
        assert_answered_or_closed(wire)
    assert bystander.sync() == []


@st.composite
def mangled_sessions(draw: st.DrawFn) -> bytes:
    """Draw a session in which a few bytes were lost, doubled, swapped or replaced."""
    session = bytearray(SESSION)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(len(CONNECT), max(len(CONNECT), len(session) - 1)))
        length = draw(st.integers(0, 6))
        filling = draw(st.one_of(st.binary(max_size=4), st.sampled_from(PIECES)))
        session[at : at + length] = filling
    return bytes(session)


PIECES = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b"-1",
    b"999999999",
    b"0",
    b"*",
    b">",
    b".",
    b"PUB ",
]


@fuzzed
@given(session=mangled_sessions())
def test_mangled_session(server: Target, bystander: Wire, session: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(session)
        wire.half_close()
        assert_answered_or_closed(wire)
    assert bystander.sync() == []


@pytest.mark.natsd_only
@fuzzed
@given(session=mangled_sessions(), seed=st.integers(0, 2**32))
def test_mangled_session_in_pieces(
    server: Target, bystander: Wire, session: bytes, seed: int
) -> None:
    """The answer does not depend on how a session is cut."""
    pieces = byte_by_byte(session) if seed % 5 == 0 else pieces_of(session, random.Random(seed))
    answers = []
    for sent in ([session], pieces):
        with Wire(server.address) as wire:
            for piece in sent:
                wire.send(piece)
                bystander.sync()
            wire.half_close()
            answers.append(wire.read_until_closed())
    assert without_choice(answers[0]) == without_choice(answers[1])


def test_cut_off_at_every_byte(server: Target, bystander: Wire) -> None:
    """A client may vanish at any byte, with or without closing its connection properly."""
    for end in range(0, len(SESSION), 3):
        for polite in (True, False):
            with Wire(server.address) as wire:
                wire.send(SESSION[:end])
                if not polite:
                    close_by_reset(wire)
        assert bystander.sync() == []


def test_half_open_connections(server: Target, bystander: Wire) -> None:
    """Connections that stopped in the middle of a frame do not keep others from working."""
    stuck = []
    for end in range(0, len(SESSION), 2):
        stuck.append(Wire(server.address))
        stuck[-1].send(SESSION[:end])
    with Wire(server.address) as wire:
        wire.send(SESSION.replace(b"rough", b"other"))
        frames = wire.sync() + wire.sync()
        assert sum(frame.startswith((b"MSG", b"HMSG")) for frame in frames) == 6
    for connection in stuck:
        connection.close()


def test_subscribers_vanish_while_messages_are_on_their_way(server: Target) -> None:
    with Wire(server.address) as publisher, Wire(server.address) as stays:
        publisher.send(CONNECT)
        stays.send(CONNECT + b"SUB storm 1\r\n")
        stays.sync()
        for _ in range(30):
            leaves = [Wire(server.address) for _ in range(5)]
            for wire in leaves:
                wire.send(CONNECT + b"SUB storm 1\r\nSUB storm workers 2\r\n")
                wire.sync()
            publisher.send(b"PUB storm 10000\r\n" + b"x" * 10000 + b"\r\n")
            for wire in leaves:
                close_by_reset(wire)
            publisher.sync()
        assert len(stays.sync()) == 30


@pytest.mark.parametrize(
    "line",
    [b"PUB foo", b"SUB foo", b"HPUB foo", b"UNSUB 1", b'CONNECT {"name":"', b"INFO ", b"-ERR "],
)
def test_a_line_that_never_ends(server: Target, line: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(b'CONNECT {"verbose":false,"headers":true}\r\n' + line)
        for _ in range(64):
            wire.send(b" " + b"x" * 1023)
        assert wire.read_until_closed() == b"-ERR 'maximum control line exceeded'\r\n"


def test_payloads_that_are_announced_and_never_sent(
    start_server_process: StartServerProcess,
) -> None:
    """300 connections announce 1 MiB each and send a kilobyte: no 300 MiB are allocated."""
    server = start_server_process()
    before_bytes = resident_bytes(server.pid)
    wires = [Wire(server.address) for _ in range(300)]
    for wire in wires:
        wire.send(CONNECT + b"PING\r\nPUB foo 1048576\r\n" + b"x" * 1024)
    for wire in wires:
        assert wire.read_frame() == b"PONG\r\n"
    with Wire(server.address) as bystander:
        bystander.sync()
    grown_mib = (resident_bytes(server.pid) - before_bytes) / MIB
    for wire in wires:
        wire.close()
    assert grown_mib < 60


@pytest.mark.parametrize(
    ("connect", "line"),
    [
        (b'CONNECT {"verbose":false}\r\n', b"PING\r\n"),
        (b'CONNECT {"verbose":true}\r\n', b"PUB foo 0\r\n\r\n"),
        (b'CONNECT {"verbose":false,"pedantic":true}\r\n', b"PUB foo. 0\r\n\r\n"),
        (b'CONNECT {"verbose":false}\r\nSUB foo 1\r\n', b"PUB foo 0\r\n\r\n"),
    ],
    ids=["PONG", "+OK", "-ERR", "own messages"],
)
def test_answers_that_nobody_reads(
    start_threaded_server: StartThreadedServer, connect: bytes, line: bytes
) -> None:
    """A client that sends requests and never reads is a slow consumer, too."""
    server = start_threaded_server(max_pending=MIB, write_deadline=0.3)
    with Wire(server.address) as wire:
        wire.send(connect)
        chunk = line * (65536 // len(line))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                wire.socket.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                return
        pytest.fail("the server went on taking questions")


def test_a_thousand_bad_clients(server: Target, bystander: Wire) -> None:
    for number in range(1000):
        with Wire(server.address) as wire:
            wire.send(b"PUB foo -1\r\n" if number % 2 else b"nonsense\r\n")
            answer = wire.read_until_closed()
            assert answer == (b"" if number % 2 else b"-ERR 'Unknown Protocol Operation'\r\n")


def assert_answered_or_closed(wire: Wire) -> None:
    """Assert that the server sends whole frames, then closes."""
    while True:
        try:
            frame = wire.read_frame()
        except Closed as closed:
            unfinished = closed.rest
            break
        assert ANSWERS.fullmatch(frame), frame
    assert unfinished == b""


def without_choice(answer: bytes) -> tuple[bytes, list[bytes]]:
    """Return the answer without those parts that the server may choose.

    The first value has the messages without subscription ids and subjects; the second has the
    subjects and ids, sorted, where the two members of a queue group have the same id. So it does
    not matter which member got a message, or which of several subscriptions got it first.
    """
    by_any = re.sub(rb"(?m)^(H?MSG \S+) [12] ", rb"\1 sid ", answer)
    header = rb"(?m)^(H?MSG [^ \n]+) ([^ \n]+) "
    return re.sub(header, rb"\1 ", by_any), sorted(b" ".join(m) for m in re.findall(header, by_any))


def pieces_of(data: bytes, choose: random.Random) -> list[bytes]:
    ends = [*sorted(choose.sample(range(len(data)), k=min(6, len(data)))), len(data)]
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def close_by_reset(wire: Wire) -> None:
    """Close so that the peer sees a reset, as after a crash."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
