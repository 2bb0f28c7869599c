"""Accepting when descriptors run out: no spinning, and one log line with advice.

Clients do not get the last descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator

import pytest

from natsd.clients.acceptor import ADVICE, Acceptor, refuse
from natsd.clients.listener import bound_port, listen
from tests.waiting import eventually_within


class Taken:
    """A record of the connections that an acceptor hands over."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.refused: list[int] = []

    def accept(self, descriptor: int, _ip: str, _port: int) -> None:
        self.accepted.append(descriptor)

    def refuse(self, descriptor: int, _ip: str, _port: int) -> None:
        self.refused.append(descriptor)
        refuse(descriptor, b"-ERR 'no'\r\n")


class Exhausted:
    """A listener whose `accept` fails for lack of descriptors while `error` is set."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.error: int | None = errno.EMFILE
        self.tries = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)

    def _accept(self) -> tuple[int, tuple[str, int]]:
        self.tries += 1
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return self._listener._accept()  # type: ignore[attr-defined,no-any-return]  # of sockets


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", -1) as listener:
        yield listener


def connect(listener: socket.socket) -> socket.socket:
    return socket.create_connection(("127.0.0.1", bound_port(listener)))


async def test_the_last_descriptors_are_not_given_to_clients(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    taken = Taken()
    probe = os.dup(listener.fileno())
    os.close(probe)  # its number is the next free descriptor
    acceptor = Acceptor(
        asyncio.get_running_loop(), listener, taken.accept, taken.refuse, descriptors_max=probe + 4
    )
    clients = [connect(listener) for _ in range(9)]  # they take descriptors of this process too
    await eventually_within(lambda: len(taken.accepted) + len(taken.refused) == 9)

    assert taken.refused
    assert all(descriptor < probe + 4 for descriptor in taken.accepted)
    clients[-1].settimeout(20)
    assert clients[-1].recv(100) == b"-ERR 'no'\r\n"
    assert clients[-1].recv(100) == b""
    told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert told[0].endswith(ADVICE)
    for each in clients:
        each.close()
    for descriptor in taken.accepted:
        os.close(descriptor)
    acceptor.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPROTO])
async def test_without_descriptors_it_pauses_and_begins_again(
    number: int, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    taken, exhausted = Taken(), Exhausted(listener)
    exhausted.error = number
    acceptor = Acceptor(
        asyncio.get_running_loop(),
        exhausted,  # type: ignore[arg-type]  # a test double
        taken.accept,
        taken.refuse,
    )
    with connect(listener):
        await eventually_within(lambda: exhausted.tries >= 4)
        assert exhausted.tries < 8
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
        exhausted.error = None
        await eventually_within(lambda: taken.accepted)
    os.close(taken.accepted[0])
    acceptor.close()


async def test_a_socket_that_cannot_be_watched_ends_nothing_else(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    descriptors: list[int] = []

    def accept(descriptor: int, _ip: str, _port: int) -> None:
        descriptors.append(descriptor)
        os.close(descriptor)
        if len(descriptors) == 1:
            raise OSError(errno.ENOSPC, "the socket cannot be watched")

    acceptor = Acceptor(asyncio.get_running_loop(), listener, accept, Taken().refuse)
    with connect(listener), connect(listener):
        await eventually_within(lambda: len(descriptors) == 2)
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    acceptor.close()
