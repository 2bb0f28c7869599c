"""A client reconnects when the server is started again on the same port."""

from __future__ import annotations

import asyncio

import pytest

from tests.clients.barrier import processed
from tests.clients.conftest import Connect, StartServer
from tests.clients.target import stop_on_loop


async def test_a_client_reconnects_and_its_subscriptions_live_on(
    start_server: StartServer, connect: Connect
) -> None:
    first = await start_server()
    disconnected, reconnected = asyncio.Event(), asyncio.Event()

    async def on_disconnected() -> None:
        disconnected.set()

    async def on_reconnected() -> None:
        reconnected.set()

    client = await connect(
        first,
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
        disconnected_cb=on_disconnected,
        reconnected_cb=on_reconnected,
    )
    subscription = await client.subscribe("foo")
    await processed(client)

    await stop_on_loop(first)
    await asyncio.wait_for(disconnected.wait(), 5)
    await start_server(port=first.port)
    await asyncio.wait_for(reconnected.wait(), 5)

    await client.publish("foo", b"back again")
    assert (await subscription.next_msg(timeout=5)).data == b"back again"


async def test_stopping_closes_connections_without_an_error(
    start_server: StartServer, connect: Connect
) -> None:
    server = await start_server()
    closed = asyncio.Event()
    errors = []

    async def on_closed() -> None:
        closed.set()

    async def on_error(error: Exception) -> None:
        errors.append(error)

    await connect(server, allow_reconnect=False, closed_cb=on_closed, error_cb=on_error)
    await stop_on_loop(server)
    await asyncio.wait_for(closed.wait(), 5)
    assert [type(error).__name__ for error in errors] == ["UnexpectedEOF"]

    with pytest.raises(OSError):
        await asyncio.open_connection(server.host, server.port)
