"""The reason why a connection was closed, as monitoring shows it."""

from __future__ import annotations

import json
import socket
import struct
import time
import urllib.request
from collections.abc import Callable

import pytest

from tests.clients.target import ProcessTarget, Target
from tests.clients.wire import Wire

pytestmark = pytest.mark.served_every_way

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'

REASONS = {
    "Protocol Violation": [
        b"nonsense\r\n",
        QUIET + b"PUB foo -1\r\n",
        QUIET + b"PUB foo 1\r\nxyz\r\n",
        QUIET + b"HPUB foo 12 12\r\n",
        b"CONNECT {\r\n",
    ],
    "Parse Error": [QUIET + b"-ERR 'nonsense'\r\n"],
    "Maximum Control Line Exceeded": [QUIET + b"SUB " + b"x" * 5000 + b" 1\r\n"],
    "Maximum Message Payload Exceeded": [QUIET + b"PUB foo 9999999\r\n"],
    "Bad Client Protocol Version": [b'CONNECT {"protocol":2}\r\n'],
    "No Responders Requires Headers": [b'CONNECT {"no_responders":true}\r\n'],
    "Authentication Failure": [b'CONNECT {"account":"x"}\r\n'],
}


@pytest.mark.parametrize(
    ("sent", "reason"), [(sent, reason) for reason in REASONS for sent in REASONS[reason]]
)
def test_the_client_is_at_fault(
    shared_server: Callable[..., Target], sent: bytes, reason: str
) -> None:
    server = shared_server(http_port=-1)
    with Wire(server.address) as wire:
        wire.send(sent)
        wire.read_until_closed()
        assert closed_reason(server, wire) == reason


def test_the_client_leaves(shared_server: Callable[..., Target]) -> None:
    server = shared_server(http_port=-1)
    with Wire(server.address) as wire:
        wire.send(QUIET + b"PUB foo 5\r\nhel")
        wire.half_close()
        wire.read_until_closed()
        assert closed_reason(server, wire) == "Client Closed"


def test_the_client_breaks_off(shared_server: Callable[..., Target]) -> None:
    server = shared_server(http_port=-1)
    wire = Wire(server.address)
    wire.sync()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()
    assert closed_reason(server, wire) == "Read Error"


def test_authentication(shared_server: Callable[..., Target]) -> None:
    server = shared_server(http_port=-1, token="s3cr3t", auth_timeout=0.2)
    with Wire(server.address) as wrong, Wire(server.address) as silent:
        wrong.send(b'CONNECT {"auth_token":"x"}\r\n')
        wrong.read_until_closed()
        silent.read_until_closed()
        assert closed_reason(server, wrong) == "Authentication Failure"
        assert closed_reason(server, silent) == "Authentication Timeout"


def test_stale(shared_server: Callable[..., Target]) -> None:
    server = shared_server(http_port=-1, ping_interval=0.1, ping_max=1)
    with Wire(server.address) as wire:
        wire.answer_pings = False
        wire.read_until_closed()
        assert closed_reason(server, wire) == "Stale Connection"


def test_too_many_connections(shared_server: Callable[..., Target]) -> None:
    server = shared_server(http_port=-1, max_connections=1)
    with Wire(server.address) as first:
        first.sync()
        second = Wire(server.address)
        second.read_until_closed()
        second.close()
        assert closed_reason(server, second) == "Maximum Connections Exceeded"


def test_slow_consumers(shared_server: Callable[..., Target]) -> None:
    message = b"PUB flood 65536\r\n" + b"x" * 65536 + b"\r\n"
    for option, value, reason in [
        ("max_pending", 1024 * 1024, "Slow Consumer (Pending Bytes)"),
        ("write_deadline", 0.2, "Slow Consumer (Write Deadline)"),
    ]:
        server = shared_server(**{"http_port": -1, option: value})
        with Wire(server.address) as lazy, Wire(server.address) as publisher:
            lazy.send(QUIET + b"SUB flood 1\r\n")
            lazy.sync()
            publisher.send(QUIET)
            for _ in range(300):
                publisher.send(message)
                publisher.sync()
            assert closed_reason(server, lazy) == reason


def closed_reason(server: Target, wire: Wire, deadline_s: float = 5.0) -> str:
    """Return why the server closed this connection; wait until monitoring shows it."""
    client_id = wire.info["client_id"]
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        for cid, reason in reversed(closed_connections(server)):
            if cid == client_id:
                return reason
        time.sleep(0.005)
    raise AssertionError(f"client {client_id} is not among the closed connections")


def closed_connections(server: Target) -> list[tuple[int, str]]:
    if isinstance(server, ProcessTarget):
        url = f"http://{server.host}:{server.http_port}/connz?state=closed&limit=10000"
        with urllib.request.urlopen(url) as answer:
            connections = json.load(answer)["connections"]
        return [(connection["cid"], connection["reason"]) for connection in connections]
    return [(client.cid, client.reason) for client in list(server.server.closed_clients)]
