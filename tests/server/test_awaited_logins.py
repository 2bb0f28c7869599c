"""A verdict over a CONNECT that takes time: an auth callout, a JWT resolver.

The connection is not read meanwhile. The server and the authenticator are on the test's loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from natsd import Server
from natsd.auth import REFUSED, Verdict
from natsd.clients import Client
from natsd.clients.connect import ConnectOptions
from natsd.core.reasons import ClosedReason
from tests.clients.serving import Serving
from tests.server.leftovers import leftovers
from tests.server.streams import DEADLINE_S, QUIET, Stream
from tests.waiting import Eventually

ACCEPTED = Verdict("$G")
TWICE_THE_SYSTEMS_BUFFERS = 32 << 20


class Callout:
    """Answers each CONNECT with a future that the test decides."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def __init__(self) -> None:
        self.asked: list[tuple[Client, ConnectOptions, asyncio.Future[Verdict]]] = []
        self.more = asyncio.Event()

    def authenticate(self, client: Client, connect: ConnectOptions) -> Awaitable[Verdict]:
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.asked.append((client, connect, verdict))
        self.more.set()
        return verdict

    async def next(self, count: int = 1) -> tuple[Client, asyncio.Future[Verdict]]:
        """Wait until so many CONNECTs were asked about, and return the last one of them."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.asked) < count:
                await asyncio.wait_for(self.more.wait(), DEADLINE_S)
                self.more.clear()
        client, _, verdict = self.asked[count - 1]
        return client, verdict


@pytest.fixture(params=[Serving.DEFAULT, Serving.UVLOOP_TRANSPORTS], autouse=True)
def serving(request: pytest.FixtureRequest) -> Iterator[None]:
    with request.param.chosen():
        yield


@asynccontextmanager
async def asking(**settings: Any) -> AsyncIterator[tuple[Server, Callout]]:
    callout = Callout()
    server = Server(host="127.0.0.1", port=-1, authenticator=callout, **settings)
    async with server:
        yield server, callout


async def test_what_follows_connect_waits_and_keeps_its_order() -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        stream.send(b"SUB a 1\r\nPUB a 5\r\nfirst\r\nPUB a 6\r\nsecond\r\nUNSUB 1\r\nPING\r\n")
        client, verdict = await callout.next()
        await asyncio.sleep(0.05)
        assert client.num_subscriptions == 0
        assert server.counters.in_msgs == 0
        verdict.set_result(ACCEPTED)
        answers = [await stream.line() for _ in range(5)]
        assert answers == [
            b"MSG a 1 5\r\n",
            b"first\r\n",
            b"MSG a 1 6\r\n",
            b"second\r\n",
            b"PONG\r\n",
        ]
        assert client.rtt_ns > 0
        await stream.close()


async def test_a_refusal_is_that_of_a_wrong_password() -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        stream.send(b"PUB a 5\r\nnever\r\n")
        _, verdict = await callout.next()
        verdict.set_result(REFUSED)
        assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        assert server.counters.in_msgs == 0
        assert [gone.reason for gone in server.closed_clients] == ["Authentication Failure"]
        await stream.close()


async def test_an_authenticator_that_fails_refuses(caplog: pytest.LogCaptureFixture) -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        _, verdict = await callout.next()
        with caplog.at_level(logging.CRITICAL + 1, "natsd.client"):
            verdict.set_exception(ConnectionError("no answer"))
            assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        await stream.close()


async def test_the_authentication_timeout_runs_meanwhile(eventually: Eventually) -> None:
    async with asking(auth_timeout=0.1) as (server, callout):
        stream = await Stream.open(server.client_port)
        _, verdict = await callout.next()
        assert await stream.read_until_closed() == b"-ERR 'Authentication Timeout'\r\n"
        await eventually(verdict.cancelled)
        assert [gone.reason for gone in server.closed_clients] == ["Authentication Timeout"]
        await stream.close()


async def test_a_flood_behind_connect_stays_in_the_systems_buffers(eventually: Eventually) -> None:
    """The server takes a few kilobytes at most: the sender is slowed down by its own system."""
    async with asking() as (server, callout):
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.client_port)) as flood:
            flood.setblocking(False)
            await loop.sock_sendall(flood, QUIET)
            client, verdict = await callout.next()
            sending = asyncio.ensure_future(
                loop.sock_sendall(flood, b"PUB a 1\r\nx\r\n" * (TWICE_THE_SYSTEMS_BUFFERS // 12))
            )
            done, _ = await asyncio.wait([sending], timeout=0.3)
            assert not done
            assert server.counters.in_msgs == 0
            verdict.set_result(ACCEPTED)
            await asyncio.wait_for(sending, DEADLINE_S)
            await eventually(lambda: client.in_msgs == TWICE_THE_SYSTEMS_BUFFERS // 12)


@pytest.mark.parametrize("how", ["kicked", "reset", "stopped"])
async def test_closing_meanwhile_is_safe(how: str, eventually: Eventually) -> None:
    before = leftovers()
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        client, verdict = await callout.next()
        if how == "kicked":
            client.close(ClosedReason.KICKED)
        elif how == "reset":
            stream.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            stream.writer.transport.abort()
        if how == "kicked":
            await eventually(verdict.cancelled)
            assert server.clients == {}
        if how == "reset":
            await asyncio.sleep(0.02)
            if not verdict.done():
                verdict.set_result(ACCEPTED)
            await eventually(lambda: server.clients == {})
    assert verdict.done()
    await stream.close()
    await asyncio.sleep(0)
    assert not leftovers().new_since(before).tasks


async def test_a_second_connect_is_awaited_as_well() -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        stream.send(b'SUB a 1\r\nCONNECT {"verbose":false}\r\nSUB a 2\r\nPUB a 2\r\nhi\r\nPING\r\n')
        (await callout.next())[1].set_result(ACCEPTED)
        client, verdict = await callout.next(2)
        assert client.num_subscriptions == 0
        verdict.set_result(ACCEPTED)
        assert [await stream.line() for _ in range(3)] == [b"MSG a 2 2\r\n", b"hi\r\n", b"PONG\r\n"]
        await stream.close()


async def test_many_at_once_are_decided_in_any_order() -> None:
    async with asking() as (server, callout):
        streams = [await Stream.open(server.client_port) for _ in range(50)]
        for stream in streams:
            stream.send(b"SUB all 1\r\nPING\r\n")
        await callout.next(50)
        for number, (_, _, verdict) in enumerate(reversed(callout.asked)):
            verdict.set_result(ACCEPTED if number % 2 else REFUSED)
        answers = {await stream.line() for stream in streams}
        assert answers == {b"PONG\r\n", b"-ERR 'Authorization Violation'\r\n"}
        assert len(server.accounts["$G"].sublist.match("all")) == 25
        for stream in streams:
            await stream.close()


@pytest.mark.parametrize("last", [ACCEPTED, REFUSED])
async def test_a_login_that_is_checked_again_meanwhile_is_decided_by_the_later_verdict(
    last: Verdict,
) -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        stream.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        client, first = await callout.next()
        client.check_login()
        first.set_result(REFUSED if last is ACCEPTED else ACCEPTED)
        again, second = await callout.next(2)
        assert again is client
        assert client.num_subscriptions == 0
        second.set_result(last)
        if last is ACCEPTED:
            assert [await stream.line() for _ in range(3)] == [
                b"MSG a 1 2\r\n",
                b"hi\r\n",
                b"PONG\r\n",
            ]
        else:
            assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        await stream.close()


async def test_a_check_of_a_connected_client_meanwhile_is_not_the_last_one() -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        client, verdict = await callout.next()
        verdict.set_result(ACCEPTED)
        await stream.sync()
        client.check_login()
        _, first = await callout.next(2)
        client.check_login()
        client.check_login()
        first.set_result(ACCEPTED)
        _, second = await callout.next(3)
        assert await stream.sync() == []
        second.set_result(REFUSED)
        assert await stream.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        assert len(callout.asked) == 3
        await stream.close()


async def test_another_connect_ends_a_check(eventually: Eventually) -> None:
    async with asking() as (server, callout):
        stream = await Stream.open(server.client_port)
        client, verdict = await callout.next()
        verdict.set_result(ACCEPTED)
        await stream.sync()
        client.check_login()
        _, check = await callout.next(2)
        client.check_login()
        assert await stream.sync() == []
        stream.send(b'CONNECT {"user":"other","verbose":false}\r\n')
        _, verdict = await callout.next(3)
        await eventually(check.cancelled)
        verdict.set_result(ACCEPTED)
        assert await stream.sync() == []
        assert len(callout.asked) == 3
        await stream.close()
