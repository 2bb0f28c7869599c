"""The server pings quiet clients, and closes those that do not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.clients.target import Target
from tests.clients.wire import Wire

pytestmark = pytest.mark.served_every_way

PING_INTERVAL_S = 0.1
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


@pytest.fixture
def server(shared_server: Callable[..., Target]) -> Target:
    return shared_server(ping_interval=PING_INTERVAL_S, ping_max=2)


@pytest.mark.parametrize("sent", [QUIET, b""], ids=["connect", "no connect"])
def test_who_does_not_answer_is_stale(server: Target, sent: bytes) -> None:
    """After ping_max PINGs the connection is closed when the next one is due."""
    started = time.monotonic()
    with Wire(server.address) as wire:
        wire.answer_pings = False
        wire.send(sent)
        assert wire.read_until_closed() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
    assert 3 * PING_INTERVAL_S * 0.9 <= time.monotonic() - started < 3 * PING_INTERVAL_S + 2


def test_who_answers_stays(server: Target) -> None:
    """A connection that answers stays open, however long it is quiet otherwise."""
    with Wire(server.address) as answers:
        answers.answer_pings = False
        answers.send(QUIET)
        for _ in range(6):
            assert answers.read_frame() == b"PING\r\n"
            answers.send(b"PONG\r\n")
        assert answers.sync() == []


def test_pongs_are_not_counted_ahead(server: Target) -> None:
    """PONGs without a PING do not delay the next check."""
    with Wire(server.address) as wire:
        wire.answer_pings = False
        wire.send(QUIET + b"PONG\r\n" * 50)
        assert wire.read_until_closed() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"


def test_the_first_ping_comes_early(shared_server: Callable[..., Target]) -> None:
    """With the default interval of two minutes, the first PING comes after about 2 s."""
    with Wire(shared_server().address) as wire:
        wire.answer_pings = False
        wire.send(QUIET)
        started = time.monotonic()
        assert wire.read_frame() == b"PING\r\n"
        assert 1.9 < time.monotonic() - started < 4
