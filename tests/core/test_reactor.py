"""The reactor by itself, on an event loop, with the descriptors that it watches."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from natsd.core.network import Reactor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the poller is epoll")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


async def test_what_is_expected_is_served_when_it_comes(pipe: tuple[int, int]) -> None:
    reactor, came = Reactor(asyncio.get_running_loop(), print), asyncio.Event()

    def read() -> None:
        os.read(pipe[0], 1)
        came.set()

    reactor.add_reader(pipe[0], read)
    for _ in range(20):
        came.clear()
        reactor.expect()
        threading.Timer(0.00005, os.write, (pipe[1], b"x")).start()
        await asyncio.wait_for(came.wait(), 10)
    reactor.close()


async def test_other_tasks_run_while_something_is_expected() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    for _ in range(100):
        reactor.expect()
        await asyncio.wait_for(asyncio.sleep(0), 10)
    reactor.close()


async def test_what_comes_too_late_is_served_as_well(pipe: tuple[int, int]) -> None:
    reactor, came = Reactor(asyncio.get_running_loop(), print), asyncio.Event()
    reactor.add_reader(pipe[0], lambda: (os.read(pipe[0], 1), came.set()))
    reactor.expect()
    await asyncio.sleep(0.01)
    os.write(pipe[1], b"x")
    await asyncio.wait_for(came.wait(), 10)
    reactor.close()


async def test_a_reactor_that_closes_expects_nothing_more() -> None:
    reactor = Reactor(asyncio.get_running_loop(), print)
    reactor.expect()
    reactor.close()
    await asyncio.sleep(0.01)
