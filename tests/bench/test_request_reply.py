"""A requester takes its whole reply, and nothing else."""

import socket
from collections.abc import Iterator

import pytest

from natsd.bench.frames import PING, msg
from natsd.bench.request_reply import Requester, inbox
from natsd.bench.wire import LoadError

REPLY = msg(inbox(7), b"body")


@pytest.fixture
def ends() -> Iterator[tuple[Requester, socket.socket]]:
    """Yield a requester, and the server's end of its connection."""
    client, server = socket.socketpair()
    requester = Requester("", 0, requests=1, body=b"body")
    requester._sock = client
    with client, server:
        yield requester, server


@pytest.mark.parametrize("answer", [REPLY, PING + REPLY, REPLY + PING])
def test_a_ping_may_come_with_the_reply(
    ends: tuple[Requester, socket.socket], answer: bytes
) -> None:
    requester, server = ends
    server.sendall(answer)
    requester._ask(b"request", REPLY)
    assert server.recv(100) == b"request"


@pytest.mark.parametrize("answer", [msg(inbox(8), b"body"), b"-ERR 'no'\r\n", REPLY + REPLY])
def test_anything_else_is_refused(ends: tuple[Requester, socket.socket], answer: bytes) -> None:
    requester, server = ends
    server.sendall(answer)
    with pytest.raises(LoadError, match="unexpected reply"):
        requester._ask(b"request", REPLY)


def test_a_closed_connection_is_noticed(ends: tuple[Requester, socket.socket]) -> None:
    requester, server = ends
    server.sendall(REPLY[:5])
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(LoadError, match="closed"):
        requester._ask(b"request", REPLY)
