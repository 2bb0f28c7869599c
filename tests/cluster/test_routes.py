"""Servers that route to each other: core messages, interest, queue groups, accounts."""

from typing import Any
from unittest import mock

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.cluster.mesh import (
    client,
    cluster_of,
    inbox,
    interested,
    is_meshed,
    member,
    mesh,
    meshed,
    routes_of,
)
from tests.waiting import Eventually

pytestmark = pytest.mark.both_loops

POOLS: list[dict[str, Any]] = [{"pool_size": -1}, {"pool_size": 1}, {"pool_size": 3}]


@pytest.mark.parametrize("pool", POOLS)
async def test_a_message_reaches_every_server_once(pool: dict[str, Any]) -> None:
    async with mesh(3, pool) as servers:
        async with client(servers[0]) as a, client(servers[1]) as b, client(servers[2]) as c:
            inboxes = [await inbox(each, "news.*") for each in (b, c)]
            await interested(servers[0], "news.a", 2)
            await a.publish("news.a", b"1", headers={"k": "v"})
            await a.publish("other", b"2")
            await a.publish("news.b", b"3", reply="answer")
            await a.flush()
            for got in inboxes:
                await got.filled(2)
                assert got.texts == ["1", "3"]
                assert got[0].headers == {"k": "v"}
                assert got[1].reply == "answer"


@pytest.mark.parametrize("compression", ["off", "s2_fast"])
async def test_routes_without_a_poller_use_the_transports_of_the_loop(compression: str) -> None:
    with mock.patch("natsd.server.server.has_poller", return_value=False):
        async with mesh(2, {"compression": compression}) as servers:
            async with client(servers[0]) as a, client(servers[1]) as b:
                got = await inbox(b, "foo")
                await interested(servers[0], "foo")
                for size in (1, 300_000, 10):
                    await a.publish("foo", b"x" * size)
                await got.filled(3)
                assert [len(each.data) for each in got] == [1, 300_000, 10]


async def test_a_queue_group_gets_a_message_once_in_the_cluster() -> None:
    async with mesh(2) as servers, client(servers[0]) as a, client(servers[1]) as b:
        far = await inbox(b, "work", "workers")
        await interested(servers[0], "work")
        for _ in range(10):
            await a.publish("work", b"")
        await far.filled(10)
        near = await inbox(a, "work", "workers")  # a local member is preferred
        for _ in range(10):
            await a.publish("work", b"")
        await near.filled(10)
        await b.flush()
        assert (len(near), len(far)) == (10, 10)


async def test_requests_are_answered_across_a_route_or_have_no_responders() -> None:
    async with mesh(2) as servers, client(servers[0]) as a, client(servers[1]) as b:

        async def answer(message: Msg) -> None:
            await message.respond(b"pong")

        await b.subscribe("ping", cb=answer)
        await b.flush()
        await interested(servers[0], "ping")
        assert (await a.request("ping", b"", timeout=5)).data == b"pong"
        with pytest.raises(NoRespondersError):
            await a.request("nobody", b"", timeout=5)


async def test_interest_ends_with_its_subscription(eventually: Eventually) -> None:
    async with mesh(2) as servers, client(servers[1]) as b:
        subscription = await b.subscribe("foo")
        await b.flush()
        await interested(servers[0], "foo")
        await subscription.unsubscribe()
        await interested(servers[0], "foo", 0)


async def test_a_server_that_joins_learns_all_interest() -> None:
    first = member("A")
    async with first, client(first) as a:
        for number in range(1000):
            await a.subscribe(f"many.{number}")
        await a.flush()
        async with member("B", [first]) as second:
            await meshed(first, second)
            for number in (0, 500, 999):
                await interested(second, f"many.{number}")


async def test_interest_goes_with_its_server(eventually: Eventually) -> None:
    first = member("A")
    async with first:
        async with member("B", [first]) as second, client(second) as b:
            await b.subscribe("foo")
            await b.flush()
            await interested(first, "foo")
        await interested(first, "foo", 0)
        await eventually(lambda: not cluster_of(first).routes)


async def test_a_lost_server_is_dialed_again(eventually: Eventually) -> None:
    first = member("A")
    async with first:
        port = cluster_of(first).port
        second = member("B", [first])
        async with second:
            await meshed(first, second)
            await first.stop()
            await eventually(lambda: not routes_of(second))
            again = member("A", cluster={"port": port})
            async with again:
                await meshed(again, second)


async def test_servers_that_know_one_another_by_one_form_a_mesh() -> None:
    async with mesh(5) as servers:
        for server in servers:
            assert len(cluster_of(server).peers) == 4
        assert is_meshed(servers)


async def test_servers_that_dial_each_other_keep_one_pool() -> None:
    first = member("A")
    async with first:
        second = member("B", [first])
        async with second:
            third = member("D", [first, second])
            async with third:
                await meshed(first, second, third)


async def test_accounts_are_apart_and_have_connections_of_their_own() -> None:
    accounts = {
        "ONE": {"users": [{"user": "one", "password": "p"}]},
        "TWO": {"users": [{"user": "two", "password": "p"}]},
    }
    async with mesh(2, {"accounts": ["ONE"]}, accounts=accounts) as servers:
        dedicated = {route.account_name for route in routes_of(servers[0])} - {""}
        assert dedicated == {"ONE", "$SYS"}
        logins = [{"user": user, "password": "p"} for user in ("one", "two")]
        async with client(servers[1], **logins[0]) as one, client(servers[1], **logins[1]) as two:
            inboxes = [await inbox(each, "foo") for each in (one, two)]
            await interested(servers[0], "foo", account="ONE")
            await interested(servers[0], "foo", account="TWO")
            for login in logins:
                async with client(servers[0], **login) as sender:
                    await sender.publish("foo", login["user"].encode())
                    await sender.flush()
            for got, login in zip(inboxes, logins, strict=True):
                await got.filled(1)
                assert got.texts == [login["user"]]
