"""A server on its own thread, used from synchronous and asynchronous programs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import nats
import pytest

from natsd import Server
from natsd.clients.listener import ListenError
from tests.clients.wire import Wire
from tests.server.leftovers import leftovers
from tests.server.streams import Stream
from tests.waiting import eventually_within

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def threaded(**settings: Any) -> Server:
    return Server(thread=True, **{"host": "127.0.0.1", "port": -1, **settings})


@contextlib.contextmanager
def nothing_stays() -> Iterator[None]:
    with threaded():  # opens what is opened once in a process
        pass
    before = leftovers()
    yield
    assert not leftovers().new_since(before)


def address(server: Server) -> tuple[str, int]:
    return ("127.0.0.1", server.client_port)


def test_in_a_synchronous_program() -> None:
    with nothing_stays():
        with threaded() as server, Wire(address(server)) as wire:
            wire.send(QUIET + b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
            assert wire.sync() == [b"MSG foo 1 2\r\nhi\r\n"]
        del server


def test_several_threads_at_once() -> None:
    with nothing_stays():
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(threaded()) for _ in range(5)]
            assert sum(thread.name == "natsd" for thread in threading.enumerate()) >= 5
            wires = [stack.enter_context(Wire(address(server))) for server in servers]
            for number, wire in enumerate(wires):
                wire.send(QUIET + b"SUB foo 1\r\nPUB foo 1\r\n%d\r\n" % number)
            for number, wire in enumerate(wires):
                assert wire.sync() == [b"MSG foo 1 1\r\n%d\r\n" % number]
        del servers, stack


def test_servers_come_and_go_in_many_threads_at_once() -> None:
    failures: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(10):
                with threaded() as server, Wire(address(server)) as wire:
                    wire.sync()
        except BaseException as error:
            failures.append(error)

    with nothing_stays():
        threads = [threading.Thread(target=come_and_go) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        del threads, thread


def test_a_failed_start_raises_here_and_leaves_nothing() -> None:
    with threaded() as first:
        before = leftovers()
        with pytest.raises(ListenError, match="address already in use"):
            threaded(port=first.client_port).__enter__()
        gc.collect()
        assert not leftovers().new_since(before)


def test_a_loop_that_cannot_be_made_raises_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised, for instance without descriptors; nothing waits endlessly."""

    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError("Too many open files")

    monkeypatch.setattr("natsd.server.threaded.loop_factory", lambda: no_loop)
    with pytest.raises(OSError, match="Too many open files"):
        threaded().__enter__()


def test_it_may_be_started_again() -> None:
    server = threaded()
    for _ in range(3):
        with server, Wire(address(server)) as wire:
            assert wire.info["client_id"] == 5


def test_starting_a_running_server_is_an_error() -> None:
    with threaded() as server:
        with pytest.raises(RuntimeError, match="the server is running"):
            server.__enter__()
        with Wire(address(server)) as wire:
            wire.sync()


def test_it_may_be_stopped_before_the_with_ends() -> None:
    with threaded() as server:
        asyncio.run(server.stop())
        asyncio.run(server.stop())
        asyncio.run(server.wait_closed())


def test_what_the_program_raises_comes_through() -> None:
    with pytest.raises(ZeroDivisionError), threaded():
        raise ZeroDivisionError


def test_failing_handlers_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with threaded() as server, Wire(address(server)) as wire:

        def fail(*_: object) -> None:
            raise ZeroDivisionError("in a handler")

        async def subscribe() -> None:
            server.accounts["$G"].internal_client.subscribe("foo", fail)

        asyncio.run_coroutine_threadsafe(subscribe(), server.reactor.loop).result()
        wire.send(QUIET + b"PUB foo 0\r\n\r\nPUB foo 0\r\n\r\n")
        told = "ZeroDivisionError: in a handler"
        asyncio.run(eventually_within(lambda: caplog.text.count(told) == 2))
        assert wire.sync() == []
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


# ---- from an asynchronous program


async def warm_loop() -> None:
    """Open what a loop opens at its first use, so that it is not counted as the server's."""
    async with threaded() as server:
        await (await Stream.open(server.client_port)).close()


@pytest.mark.both_loops
async def test_in_an_asynchronous_program() -> None:
    await warm_loop()
    with nothing_stays():
        async with threaded() as server:
            stream = await Stream.open(server.client_port)
            stream.send(b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
            assert await stream.sync() == [b"MSG foo 1 2\r\n", b"hi\r\n"]
            await stream.close()
        del server, stream


@pytest.mark.both_loops
async def test_it_serves_while_the_programs_loop_is_busy() -> None:
    async with threaded() as server:
        with Wire(address(server)) as wire:  # blocks this loop, not the server's
            wire.sync()
        client = await nats.connect(server.client_url)
        await client.flush()
        await client.close()


@pytest.mark.both_loops
async def test_a_failed_start_raises_in_the_caller() -> None:
    async with threaded() as first:
        with pytest.raises(ListenError, match="address already in use"):
            await threaded(port=first.client_port).start()


@pytest.mark.both_loops
async def test_a_cancelled_start_leaves_nothing() -> None:
    await warm_loop()
    with nothing_stays():
        for delay_s in (None, 0, 0.0005, 0.002, 0.004):
            server = threaded()
            starting = asyncio.create_task(server.start())
            if delay_s is not None:
                await asyncio.sleep(delay_s)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            if not starting.cancelled():  # the start was faster than the cancellation
                await server.stop()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address(server))
        del starting, server


@pytest.mark.both_loops
async def test_stopping_twice_and_waiting() -> None:
    server = threaded()
    await server.wait_closed()
    await server.stop()
    await server.start()
    await asyncio.gather(server.wait_closed(), server.stop(), server.stop())
    await server.stop()


@pytest.mark.both_loops
async def test_its_own_thread_may_stop_it() -> None:
    """A handler of the server's own subscriptions runs on that thread."""
    async with threaded() as server:
        loop = server.reactor.loop
        ended = asyncio.run_coroutine_threadsafe(server.stop(), loop)
        await server.wait_closed()
        assert ended.done()
