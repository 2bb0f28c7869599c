"""A server inside another program: it starts, serves, stops, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import nats
import pytest

from natsd.clients.listener import ListenError
from natsd.config import Options, OptionsError
from natsd.server import Server
from tests.clients.wire import Wire
from tests.waiting import Eventually

LOCAL: dict[str, Any] = {"host": "127.0.0.1", "port": -1}


def quiet_wire(server: Server) -> Wire:
    """Return a raw connection to a server that runs in a thread."""
    wire = Wire((server.client_host, server.client_port))
    wire.send(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
    return wire


@pytest.mark.both_loops
async def test_a_server_in_ten_lines() -> None:
    async with Server(port=-1) as server:
        client = await nats.connect(server.client_url)
        subscription = await client.subscribe("greet.*")
        await client.publish("greet.world", b"hello")
        message = await subscription.next_msg()
        assert (message.subject, message.data) == ("greet.world", b"hello")
        await client.close()


def test_a_server_for_a_synchronous_program() -> None:
    with Server(thread=True, **LOCAL) as server, quiet_wire(server) as wire:
        wire.send(b"SUB foo 1\r\nPUB foo 5\r\nhello\r\n")
        assert wire.read_message() == b"MSG foo 1 5\r\nhello\r\n"


async def test_a_thread_may_serve_an_asynchronous_program() -> None:
    async with Server(thread=True, **LOCAL) as server:
        client = await nats.connect(server.client_url)
        await client.rtt()
        await client.close()


async def test_options_may_be_given_whole() -> None:
    options = Options(host="127.0.0.1", port=-1, max_payload=1234, server_name="alpha")
    async with Server(options) as server:
        client = await nats.connect(server.client_url)
        assert client.max_payload == 1234
        assert server.name == "alpha"
        await client.close()


async def test_servers_know_nothing_of_each_other() -> None:
    async with Server(**LOCAL) as red, Server(**LOCAL) as blue:
        assert red.id != blue.id
        assert red.client_port != blue.client_port
        in_red, in_blue = await nats.connect(red.client_url), await nats.connect(blue.client_url)
        heard_in_blue = await in_blue.subscribe("foo")
        for client in (in_blue, in_red, in_blue):
            await client.publish("foo", b"from red" if client is in_red else b"from blue")
            await client.flush()
            await client.flush()
        assert [(await heard_in_blue.next_msg()).data for _ in range(2)] == [b"from blue"] * 2
        assert heard_in_blue.pending_msgs == 0
        await in_red.close()
        await in_blue.close()


async def test_stop_closes_the_connections() -> None:
    server = Server(**LOCAL)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    await reader.readline()
    await server.stop()
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.client_port)


async def test_stop_may_be_called_twice_and_before_start() -> None:
    server = Server(**LOCAL)
    await server.stop()
    await server.start()
    await server.stop()
    await server.stop()


async def test_wait_closed_returns_when_the_server_has_stopped() -> None:
    server = Server(**LOCAL)
    await server.start()
    waiting = asyncio.create_task(server.wait_closed())
    await asyncio.sleep(0)
    assert not waiting.done()
    await server.stop()
    await asyncio.wait_for(waiting, 5)


async def test_an_exception_in_the_body_stops_the_server() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Server(**LOCAL) as server:
            raise ZeroDivisionError
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.client_port)


async def test_a_port_in_use_is_said_and_nothing_started() -> None:
    async with Server(**LOCAL) as first:
        second = Server(host="127.0.0.1", port=first.client_port)
        with pytest.raises(ListenError, match="address already in use"):
            await second.start()
        await second.stop()
        in_a_thread = Server(host="127.0.0.1", port=first.client_port, thread=True)
        with pytest.raises(ListenError, match="address already in use"):
            in_a_thread.__enter__()


async def test_a_port_can_be_taken_again_at_once() -> None:
    """The port is free even while the system keeps closed connections to it."""
    async with Server(**LOCAL) as first:
        port = first.client_port
        client = await nats.connect(first.client_url, allow_reconnect=False)
        await client.flush()
    async with Server(host="127.0.0.1", port=port) as second:
        again = await nats.connect(second.client_url)
        await again.flush()
        await again.close()
    await client.close()


def test_wrong_options_are_refused_at_once() -> None:
    with pytest.raises(OptionsError):
        Server(port=70_000)
    with pytest.raises(OptionsError):
        Server(max_paylod=1)


def test_a_synchronous_program_needs_a_thread() -> None:
    with pytest.raises(TypeError), Server(port=-1):
        pass


@pytest.mark.both_loops
async def test_nothing_is_left_behind(eventually: Eventually) -> None:
    await one_life()
    files, threads, tasks = open_files(), threading.active_count(), len(asyncio.all_tasks())
    for _ in range(10):
        await one_life()
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
    await eventually(lambda: threading.active_count() <= threads)
    await eventually(lambda: open_files() <= files)


async def one_life() -> None:
    """Run a server on the loop and then in a thread, with some clients.

    One client is still connected when the server stops.
    """
    for thread in (False, True):
        async with Server(thread=thread, **LOCAL) as server:
            stays = await nats.connect(server.client_url, allow_reconnect=False)
            leaves = await nats.connect(server.client_url)
            await stays.subscribe("foo")
            await leaves.publish("foo")
            await leaves.close()
        await stays.close()
    gc.collect()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))
