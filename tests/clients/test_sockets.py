"""Sockets served by the poller or by the loop's transports: clients see no difference."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from tests.clients.conftest import StartThreadedServer
from tests.clients.target import NatsdTarget, Target
from tests.clients.wire import Wire

pytestmark = pytest.mark.served_every_way

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
MIB = 1024 * 1024
CONNECTIONS = 1000
OpenWire = Callable[..., Wire]


@pytest.fixture
def server(start_threaded_server: StartThreadedServer) -> Target:
    return start_threaded_server()


def test_a_thousand_connections(server: Target) -> None:
    wires = [Wire(server.address) for _ in range(CONNECTIONS)]
    for number, wire in enumerate(wires):
        wire.send(QUIET + b"SUB all 1\r\nSUB one.%d 2\r\n" % number)
        wire.sync()
    wires[0].send(b"PUB all 5\r\nhello\r\n")
    for number in range(CONNECTIONS):
        wires[0].send(b"PUB one.%d 2\r\nhi\r\n" % number)
    for number, wire in enumerate(wires):
        assert wire.read_message() == b"MSG all 1 5\r\nhello\r\n"
        assert wire.read_message() == b"MSG one.%d 2 2\r\nhi\r\n" % number
        wire.close()


@pytest.mark.parametrize("size", [1, 8190, 8192, 65_536, 300_000, MIB])
def test_payloads_arrive_whole(server: Target, open_wire: OpenWire, size: int) -> None:
    """Payloads arrive whole even if the receivers are slow and the payload comes in pieces."""
    payload = bytes(number % 251 for number in range(size))
    publisher, *subscribers = [open_wire(server) for _ in range(4)]
    for wire in subscribers:
        wire.send(QUIET + b"SUB foo 1\r\n")
        wire.sync()
    frame = b"PUB foo %d\r\n%b\r\n" % (size, payload)
    publisher.send(QUIET)
    for _ in range(3):
        publisher.send(frame[: size // 2])
        publisher.send(frame[size // 2 :])
    publisher.sync()
    for wire in subscribers:
        for _ in range(3):
            assert wire.read_frame() == b"MSG foo 1 %d\r\n%b\r\n" % (size, payload)


def test_a_client_that_has_said_all_still_gets_its_answers(
    server: Target, open_wire: OpenWire
) -> None:
    """Whole frames before the client's FIN are processed and answered; then the server closes."""
    wire = open_wire(server)
    wire.send(
        QUIET + b"SUB foo 1\r\n" + b"PUB foo 2\r\nhi\r\n" * 1000 + b"PING\r\nPUB foo 5\r\nhel"
    )
    wire.half_close()
    assert wire.read_until_closed() == b"MSG foo 1 2\r\nhi\r\n" * 1000 + b"PONG\r\n"


def test_the_reason_is_read_by_a_client_that_goes_on_sending(
    server: Target, open_wire: OpenWire
) -> None:
    """Input that the server does not read must not cost the client the -ERR."""
    for _ in range(20):
        wire = open_wire(server)
        wire.send(b"nonsense\r\n" + b"PUB foo 5\r\nhello\r\n" * 10_000)
        assert wire.read_until_closed() == b"-ERR 'Unknown Protocol Operation'\r\n"


def test_connections_that_end_before_they_are_served(
    server: Target, open_wire: OpenWire, caplog: pytest.LogCaptureFixture
) -> None:
    wire = open_wire(server)
    wire.send(QUIET)
    for _ in range(200):
        connection = socket.create_connection(server.address)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert wire.sync() == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_one_byte_per_packet(server: Target, open_wire: OpenWire) -> None:
    wire = open_wire(server)
    wire.send(QUIET)
    for (
        byte
    ) in b"SUB foo 1\r\nPUB foo 12\r\nhello, world\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n":
        wire.send(bytes([byte]))
    assert wire.sync() == [
        b"MSG foo 1 12\r\nhello, world\r\n",
        b"HMSG foo 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    ]


@pytest.mark.natsd_only
def test_what_is_pending_is_bounded_and_counted(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire
) -> None:
    """Bytes in a transport's buffer count as pending, too."""
    target = start_threaded_server(max_pending=4 * MIB, no_fast_producer_stall=True)
    assert isinstance(target, NatsdTarget)
    lazy, publisher = open_wire(target), open_wire(target)
    lazy.send(QUIET + b"SUB flood 1\r\n")
    lazy.sync()
    publisher.send(QUIET)
    pending = []
    for _ in range(60):
        publisher.send(b"PUB flood 262144\r\n%b\r\n" % bytes(262_144))
        publisher.sync()
        pending.append(target.server.clients[5].pending_bytes)
    assert 2 * MIB < max(pending) < 5 * MIB


@pytest.mark.natsd_only
def test_stopping_waits_for_no_client_that_never_reads(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire
) -> None:
    target = start_threaded_server()
    assert isinstance(target, NatsdTarget)
    lazy, publisher = open_wire(target), open_wire(target)
    lazy.send(QUIET + b"SUB flood 1\r\n")
    lazy.sync()
    publisher.send(QUIET + (b"PUB flood 262144\r\n%b\r\n" % bytes(262_144)) * 40)
    publisher.sync()
    assert target.server.clients[5].pending_bytes > MIB
    started = time.monotonic()
    target.server.__exit__(None, None, None)
    assert time.monotonic() - started < 2
    assert not target.server.clients


@pytest.mark.natsd_only
def test_a_slow_reader_that_reads_is_not_cut_off(
    start_threaded_server: StartThreadedServer, open_wire: OpenWire
) -> None:
    """The write deadline closes a socket that takes nothing, not one that takes data slowly."""
    target = start_threaded_server(write_deadline=1.0)
    slow, publisher = open_wire(target), open_wire(target)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    slow.send(QUIET + b"SUB flood 1\r\n")
    slow.sync()
    publisher.send(QUIET + (b"PUB flood 262144\r\n%b\r\n" % bytes(262_144)) * 40)
    publisher.sync()
    paced = threading.Event()
    frames = 0
    for _ in range(40):
        assert len(slow.read_frame()) > 262_144
        frames += 1
        paced.wait(0.05)
    assert frames == 40
