"""A message that an publisher sends arrives as one that a client publishes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import nats
import pytest
from nats.aio.client import Client as NatsClient

from natsd import Server
from natsd.core.network import AccountPublisher
from tests.clients.barrier import processed

HEADERS = b"NATS/1.0\r\nColor: red\r\n\r\n"
SIZES = [0, 1, 9, 10, 99, 511, 8189, 8190, 8191, 8192, 8193, 100_000, 900_000]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(host="127.0.0.1", port=-1) as server:
        yield server


@pytest.fixture
def publisher(server: Server) -> AccountPublisher:
    return server.accounts["$G"].publisher


@pytest.fixture
async def client(server: Server) -> AsyncIterator[NatsClient]:
    client = await nats.connect(server.client_url)
    yield client
    await client.close()


async def raw_connection(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(server.client_url)
    return await asyncio.open_connection(address.hostname, address.port, limit=1 << 22)


@pytest.mark.parametrize("reply", [None, b"_INBOX.1"])
@pytest.mark.parametrize("headers", [b"", HEADERS])
async def test_what_is_sent_arrives_whole(
    publisher: AccountPublisher, client: NatsClient, headers: bytes, reply: bytes | None
) -> None:
    subscription = await client.subscribe("there.*")
    await client.flush()
    for size in SIZES:
        data = bytes(i % 251 for i in range(size))
        assert publisher.publish(b"there.now", data, reply, headers) == 1
    for size in SIZES:
        message = await subscription.next_msg(2)
        assert message.subject == "there.now"
        assert message.data == bytes(i % 251 for i in range(size))
        assert message.reply == ("" if reply is None else reply.decode())
        assert message.headers == ({"Color": "red"} if headers else None)


async def test_all_who_are_interested_get_it_and_one_of_a_group(
    publisher: AccountPublisher, client: NatsClient
) -> None:
    plain = [await client.subscribe("all") for _ in range(3)]
    group = [await client.subscribe("all", queue="workers") for _ in range(3)]
    await client.flush()
    assert publisher.has_interest(b"all")
    assert not publisher.has_interest(b"none")
    assert publisher.publish(b"all", b"x") == 4
    assert publisher.publish(b"none", b"x") == 0
    await client.flush()
    assert [subscription.pending_msgs for subscription in plain] == [1, 1, 1]
    assert sum(subscription.pending_msgs for subscription in group) == 1


async def test_what_a_client_receives_leaves_the_account_and_the_server(
    server: Server, publisher: AccountPublisher, client: NatsClient
) -> None:
    subscription = await client.subscribe("counted")
    await client.flush()
    publisher.publish(b"counted", b"12345", headers=HEADERS)
    await subscription.next_msg(timeout=20)
    counters = server.accounts["$G"].counters
    size = len(HEADERS) + 5
    assert (counters.out_msgs, counters.out_bytes) == (1, size)
    assert (counters.in_msgs, counters.in_bytes) == (0, 0)
    assert (server.counters.in_msgs, server.counters.in_bytes) == (0, 0)
    assert (server.counters.out_msgs, server.counters.out_bytes) == (1, size)


async def test_messages_arrive_in_the_order_of_the_calls(
    server: Server, publisher: AccountPublisher, client: NatsClient
) -> None:
    subscription = await client.subscribe("n")
    await client.flush()
    for i in range(500):
        publisher.publish_later(b"n", b"%d" % i)
    await processed(client)
    got = [int((await subscription.next_msg(1)).data) for _ in range(500)]
    assert got == list(range(500))


async def test_a_client_without_headers_gets_the_payload(
    server: Server, publisher: AccountPublisher
) -> None:
    reader, writer = await raw_connection(server)
    writer.write(b'CONNECT {"verbose":false,"headers":false}\r\nSUB plain 7\r\nPING\r\n')
    await reader.readuntil(b"PONG\r\n")
    publisher.publish(b"plain", b"hello", b"back", HEADERS)
    expected = b"MSG plain 7 back 5\r\nhello\r\n"
    assert await reader.readexactly(len(expected)) == expected
    writer.close()


async def test_nothing_is_dropped_for_who_reads_slowly() -> None:
    """`no_fast_producer_stall` drops messages of clients, not the server's own."""
    async with Server(
        host="127.0.0.1", port=-1, no_fast_producer_stall=True, max_pending=1 << 20
    ) as hasty:
        reader, writer = await raw_connection(hasty)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB much 1\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
        publisher = hasty.accounts["$G"].publisher
        took = sum(publisher.publish(b"much", bytes(100_000)) for _ in range(9))
        assert took == 9
        for _ in range(took):
            await reader.readuntil(b"MSG much 1 100000\r\n")
            await reader.readexactly(100_002)
        writer.close()
