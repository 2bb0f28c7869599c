"""Peers that speak another protocol, or stop in the middle: bounded, told once, others served."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import StartServerProcess, StartThreadedServer
from tests.clients.measure import resident_bytes
from tests.clients.secure import QUIET, Trust, client_hello, open_secure
from tests.clients.target import NatsdTarget
from tests.clients.wire import Wire

pytestmark = pytest.mark.natsd_only

OpenWire = Callable[..., Wire]
CONNECTIONS = 1000
TLS_REQUIRED = b"-ERR 'Secure Connection - TLS Required'\r\n"
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


def last_reason(target: object) -> str:
    assert isinstance(target, NatsdTarget)
    deadline = time.monotonic() + 20
    while not target.server.closed_clients:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reason: str = target.server.closed_clients[-1].reason
    return reason


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage().partition(" - ")[2].partition(" - ")[2]
        for record in caplog.records
        if "handshake error" in record.getMessage() or record.levelno >= logging.ERROR
    ]


@pytest.mark.served_every_way
@pytest.mark.parametrize(
    "said",
    [QUIET + b"PING\r\n", HTTP, b"\0" * 100, b"SSH-2.0-x\r\n"],
    ids=["nats", "http", "zeros", "ssh"],
)
def test_another_protocol_on_a_tls_port(
    start_threaded_server: StartThreadedServer,
    trust: Trust,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
) -> None:
    target = start_threaded_server(tls=trust.settings)
    with caplog.at_level(logging.DEBUG):
        wire = open_wire(target)
        wire.send(said)
        assert wire.read_until_closed() == TLS_REQUIRED
        assert last_reason(target) == "TLS Handshake Failure"
    assert failures(caplog) == [
        "TLS handshake error: tls: first record does not look like a TLS handshake"
    ]


@pytest.mark.served_every_way
@pytest.mark.parametrize("said", [client_hello(), HTTP], ids=["tls", "http"])
def test_another_protocol_on_a_plain_port(
    start_threaded_server: StartThreadedServer,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
) -> None:
    target = start_threaded_server()
    with caplog.at_level(logging.DEBUG):
        wire = open_wire(target)
        wire.send(said)
        assert wire.read_until_closed() == b"-ERR 'Unknown Protocol Operation'\r\n"
        assert last_reason(target) == "Protocol Violation"
    assert len(failures(caplog)) == 1


@pytest.mark.served_every_way
@pytest.mark.parametrize(
    ("said", "answer"),
    [(b"", TLS_REQUIRED), (client_hello()[:40], b""), (b"\x16", b"")],
    ids=["silent", "half", "byte"],
)
def test_a_slow_handshake(
    start_threaded_server: StartThreadedServer,
    trust: Trust,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
    answer: bytes,
) -> None:
    target = start_threaded_server(tls={**trust.settings, "timeout": "200ms"})
    with caplog.at_level(logging.DEBUG):
        wire = open_wire(target)
        wire.send(said)
        assert wire.read_until_closed() == answer
        assert last_reason(target) == "TLS Handshake Failure"
    assert failures(caplog) == ["TLS handshake error: i/o timeout"]


@pytest.mark.served_every_way
@pytest.mark.parametrize(
    ("said", "text"),
    [(b"", "EOF"), (client_hello()[:40], "unexpected EOF")],
    ids=["silent", "half"],
)
def test_a_handshake_that_the_client_gives_up(
    start_threaded_server: StartThreadedServer,
    trust: Trust,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
    said: bytes,
    text: str,
) -> None:
    target = start_threaded_server(tls=trust.settings)
    wire = open_wire(target)
    wire.send(said)
    wire.leave()
    assert last_reason(target) == "TLS Handshake Failure"
    assert failures(caplog) == [f"TLS handshake error: {text}"]


def test_garbage_in_a_handshake(
    start_threaded_server: StartThreadedServer,
    trust: Trust,
    open_wire: OpenWire,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = start_threaded_server(tls=trust.settings)
    for said in (
        b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
        b"\x16\x03\x01\x00\x05" + b"hello",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        client_hello() + b"\x16\x03\x03\x00\x20" + b"x" * 32,
    ):
        caplog.clear()
        wire = open_wire(target)
        wire.send(said)
        wire.socket.settimeout(20)
        while wire.socket.recv(4096):
            pass
        assert last_reason(target) == "TLS Handshake Failure"
        assert len(failures(caplog)) == 1
    with open_secure(target, trust.client()) as healthy:
        assert healthy.sync() == []


def test_a_thousand_handshakes_that_stop_in_the_middle(
    start_server_process: StartServerProcess, trust: Trust
) -> None:
    """They cost bounded memory, until their time is over; other clients are served meanwhile."""
    target = start_server_process(tls={**trust.settings, "timeout": "20s"}, max_connections=2000)
    with open_secure(target, trust.client()) as healthy:
        healthy.send(QUIET)
        healthy.sync()
        healthy.sync()  # INFO with the account has come
        before = resident_bytes(target.pid)
        hello = client_hello()
        stopped = []
        for number in range(CONNECTIONS):
            stopped.append(socket.create_connection(target.address))
            stopped[-1].sendall(hello if number % 2 else hello[:-1])
        slowest = 0.0
        for _ in range(50):
            began = time.monotonic()
            assert healthy.sync() == []
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 5
        assert resident_bytes(target.pid) - before < CONNECTIONS * 120_000
        for each in stopped:
            each.close()
        assert healthy.sync() == []


def test_a_flood_of_handshakes_does_not_starve_others(
    start_server_process: StartServerProcess, trust: Trust
) -> None:
    target = start_server_process(tls=trust.settings)
    hello = client_hello()
    with open_secure(target, trust.client()) as healthy:
        healthy.send(QUIET)
        healthy.sync()
        for _ in range(5):
            flood = [socket.create_connection(target.address) for _ in range(100)]
            for each in flood:
                each.sendall(hello)
            began = time.monotonic()
            healthy.sync()
            assert time.monotonic() - began < 2
            for each in flood:
                each.close()


def test_records_that_carry_nothing(
    start_threaded_server: StartThreadedServer, trust: Trust
) -> None:
    """Bytes after the handshake that cannot be decrypted close the connection, and no other."""
    target = start_threaded_server(tls=trust.settings)
    with open_secure(target, trust.client()) as other:
        other.sync()
        with open_secure(target, trust.client()) as wire:
            wire.sync()
            assert isinstance(wire.socket, ssl.SSLSocket)
            with socket.socket(fileno=wire.socket.detach()) as raw:
                raw.settimeout(20)
                raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
                while raw.recv(4096):
                    pass
        assert last_reason(target) == "Read Error"
        assert other.sync() == []
