"""Clients that never log in, or guess passwords, do not keep others from being served."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from natsd import Server
from tests.clients.target import Target
from tests.clients.wire import Wire

pytestmark = pytest.mark.natsd_only

STRANGERS = 300
GUESSES = 100
HASH_OF_SECRET = "$2b$04$CK9nwGWAO3J7QHdpw5nv2.9VvQneF/43RyZxy8rJwNi6n8OZSYg5K"


@pytest.fixture
def server(start_threaded_server: Callable[..., Target]) -> Target:
    return start_threaded_server(
        authorization={"users": [{"user": "ivan", "password": HASH_OF_SECRET}], "timeout": 1}
    )


def connect(user: str, password: str) -> bytes:
    fields = {"user": user, "pass": password, "verbose": False}
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


def log_in(server: Target) -> None:
    with Wire(server.address) as wire:
        wire.send(connect("ivan", "s3cr3t") + b"SUB a 1\r\nPUB a 0\r\n\r\n")
        assert wire.sync() == [b"MSG a 1 0\r\n\r\n"]


@pytest.mark.parametrize("sent", [b"", b"CONNECT ", b'CONNECT {"user":"' + b"x" * 3000])
def test_clients_that_never_log_in(server: Target, sent: bytes) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(Wire(server.address)) for _ in range(STRANGERS)]
        for stranger in strangers:
            stranger.send(sent)
        log_in(server)
        for stranger in strangers:
            assert stranger.read_until_closed() == b"-ERR 'Authentication Timeout'\r\n"
        log_in(server)


def test_guesses(server: Target) -> None:
    """They wait for their turn to be hashed; who was right before does not."""
    log_in(server)
    with ExitStack() as stack:
        guessing = [stack.enter_context(Wire(server.address)) for _ in range(GUESSES)]
        for number, wire in enumerate(guessing):
            wire.send(connect("ivan" if number % 2 else "nobody", f"guess {number}"))
        log_in(server)
        for wire in guessing:
            assert wire.read_until_closed() in (
                b"-ERR 'Authorization Violation'\r\n",
                b"-ERR 'Authentication Timeout'\r\n",
            )


def test_guesses_from_one_address_do_not_delay_another(
    start_threaded_server: Callable[..., Target],
) -> None:
    """Addresses take turns: with one queue for all, this login would be the last to be answered."""
    dear = HASH_OF_SECRET.replace("$04$", "$10$")
    olga = {"user": "olga", "password": HASH_OF_SECRET}
    server = start_threaded_server(
        authorization={"users": [{"user": "ivan", "password": dear}, olga], "timeout": 60}
    )
    with ExitStack() as stack:
        guessing = [stack.enter_context(Wire(server.address)) for _ in range(2 * GUESSES)]
        other = stack.enter_context(Wire(server.address, source_ip="127.0.0.2"))
        for number, wire in enumerate(guessing):
            wire.send(connect("ivan" if number % 2 else "nobody", f"guess {number}"))
        readable = select.select([wire.socket for wire in guessing[:1]], [], [], 30)[0]
        assert readable, "the first guess is answered, so all have been queued"
        other.send(connect("olga", "s3cr3t"))
        other.sync()
        answered = select.select([wire.socket for wire in guessing], [], [], 0)[0]
        assert len(answered) < GUESSES


def test_an_oversized_connect(server: Target) -> None:
    with Wire(server.address) as wire:
        wire.send(b'CONNECT {"name":"' + b"x" * 10_000)
        assert wire.read_until_closed() == b"-ERR 'maximum control line exceeded'\r\n"


@pytest.mark.parametrize(
    "json", [b"", b"{", b"[]", b'"x"', b'{"user":5}', b'{"pass":{}}', b"[" * 2000, b"\xff\xfe"]
)
def test_what_is_no_connect_closes(server: Target, json: bytes) -> None:
    with Wire(server.address) as wire:
        wire.send(b"CONNECT " + json + b"\r\nPING\r\n")
        assert wire.read_until_closed() in (b"", b"-ERR 'Authorization Violation'\r\n")


def test_a_thousand_logins_leave_nothing(server: Target) -> None:
    started = time.monotonic()
    for number in range(1000):
        with Wire(server.address) as wire:
            wire.send(connect("ivan", "s3cr3t" if number % 2 else "") if number % 100 == 0 else b"")
        assert time.monotonic() - started < 60
    of_server = getattr(server, "server", None)
    assert isinstance(of_server, Server)
    log_in(server)
    deadline = time.monotonic() + 20
    while of_server.clients:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reset_ends_a_pending_login(server: Target) -> None:
    for _ in range(50):
        wire = Wire(server.address)
        wire.send(connect("nobody", "x"))
        wire.close()
    log_in(server)
