"""Messages between the servers of a cluster, rule by rule."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import patch

import pytest

from natsd import Server
from natsd.core.reasons import ClosedReason
from tests.cluster.interest import agreed
from tests.cluster.mesh import cluster_of, member, mesh, meshed, routes_of
from tests.cluster.proxy import proxy_to
from tests.cluster.raw_client import RawClient, joined
from tests.waiting import eventually_within

LARGE_BYTES = 1024 * 1024
STALL_S = 0.05
MANY = 100_000
OWN_MAX = 100
"""Subscriptions of a server itself, at most."""


async def clients_of(stack: AsyncExitStack, *servers: Server, **said: Any) -> list[RawClient]:
    """Return a client of each server."""
    return [await stack.enter_async_context(joined(server, **said)) for server in servers]


async def subscribed(servers: list[Server], subscriptions: dict[RawClient, list[str]]) -> None:
    """Subscribe; return when all servers know of it. A subscription is a pattern and a group."""
    for client, patterns in subscriptions.items():
        for sid, pattern in enumerate(patterns, 1):
            client.send(f"SUB {pattern} {sid}\r\n".encode())
        await client.sync()
    await agreed(servers)


# ---- queue groups


async def test_servers_serve_a_group_in_proportion_to_their_members() -> None:
    async with mesh(3) as servers, AsyncExitStack() as stack:
        near, three, one = await clients_of(stack, *servers)
        await subscribed(servers, {three: ["work q"] * 3, one: ["work q"]})
        for number in range(4000):
            near.publish("work", b"%d" % number)
        await eventually_within(lambda: len(three.messages) + len(one.messages) >= 4000)
        taken = [got.data for got in three.messages + one.messages]
        assert sorted(taken, key=int) == [b"%d" % number for number in range(4000)]
        assert 2800 < len(three.messages) < 3200
        by_member = [sum(got.sid == sid for got in three.messages) for sid in "123"]
        assert min(by_member) > 800


async def test_a_group_whose_last_member_leaves_is_served_by_another_server() -> None:
    """Messages that are under way to the server of the member are not lost."""
    async with mesh(3) as servers, AsyncExitStack() as stack:
        near, stays, leaves = await clients_of(stack, *servers)
        await subscribed(servers, {stays: ["work q"]})
        names = itertools.count()
        for sid in range(10, 30):
            leaves.send(b"SUB work q %d\r\n" % sid)
            await leaves.sync()
            await agreed(servers)
            for at in range(60):
                if at == 30:
                    leaves.send(b"UNSUB %d\r\n" % sid)
                near.publish("work", b"%d" % next(names))
                if at % 10 == 0:
                    await asyncio.sleep(0)
            await near.sync()
        count = next(names)
        await eventually_within(lambda: len(stays.messages) + len(leaves.messages) >= count)
        taken = sorted(int(got.data) for got in stays.messages + leaves.messages)
        assert taken == list(range(count))
        assert leaves.messages


DENIED = {
    "accounts": {
        "A": {
            "users": [
                {"user": "all", "password": "-"},
                {
                    "user": "few",
                    "password": "-",
                    "permissions": {"subscribe": {"deny": ["a.b"]}},
                },
            ]
        }
    }
}


async def test_a_message_that_goes_on_to_another_server_is_for_groups_alone() -> None:
    """Plain subscriptions there have it from the publisher's server."""
    async with mesh(3, **DENIED) as servers, AsyncExitStack() as stack:
        near = await stack.enter_async_context(joined(servers[0], user="all", **{"pass": "-"}))
        few = await stack.enter_async_context(joined(servers[1], user="few", **{"pass": "-"}))
        far = await stack.enter_async_context(joined(servers[2], user="all", **{"pass": "-"}))
        await subscribed(servers, {few: ["a.> q"], far: ["a.> q", "a.*"]})
        for _ in range(100):
            near.publish("a.b")
        await near.sync()
        await eventually_within(lambda: len(far.messages) >= 200)
        await subscribed(servers, {})
        assert [sum(got.sid == sid for got in far.messages) for sid in "12"] == [100, 100]
        assert few.messages == []


async def test_a_message_that_nobody_may_receive_does_not_circle() -> None:
    async with mesh(4, **DENIED) as servers, AsyncExitStack() as stack:
        few = await clients_of(stack, *servers, user="few", **{"pass": "-"})
        await subscribed(servers, {client: ["a.> q"] for client in few})
        few[0].publish("a.b")
        few[0].publish("a.c")
        await eventually_within(lambda: few[0].messages)
        for client in few:
            await client.sync()
        account = "A"
        carried = sum(
            link.in_msgs
            for server in servers
            for route in routes_of(server)
            for link in route.account_links
            if link.account.name == account
        )
        assert carried <= 2
        assert [len(client.messages) for client in few] == [1, 0, 0, 0]


# ---- what messages carry


async def test_headers_replies_and_large_payloads_pass_unchanged() -> None:
    async with mesh(2) as servers, AsyncExitStack() as stack:
        near, far = await clients_of(stack, *servers)
        await subscribed(servers, {near: ["to.near"], far: ["to.far", "to.far q"]})
        headers = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
        for size in (0, 1, 1000, 40_000, LARGE_BYTES - len(headers)):
            data = bytes(number & 0xFF for number in range(251)) * (size // 251 + 1)
            body = data[:size]
            total = len(headers) + size
            for client, subject in ((near, b"to.far"), (far, b"to.near")):
                client.send(b"HPUB %b re %d %d\r\n" % (subject, len(headers), total))
                client.send(headers + body + b"\r\n")
                client.send(b"PUB %b %d\r\n%b\r\n" % (subject, size, body))
            await eventually_within(lambda: len(near.messages) == 2 and len(far.messages) == 4)
            for got in near.take() + far.take():
                assert got.data == body
                assert (got.headers, got.reply) in ((headers.decode(), "re"), ("", ""))


async def test_messages_of_a_publisher_stay_in_order() -> None:
    async with mesh(3, {"pool_size": 3}) as servers, AsyncExitStack() as stack:
        near, middle, far = await clients_of(stack, *servers)
        await subscribed(servers, {far: ["seq.>"]})
        for number in range(3000):
            size = (0, 100, 33_000)[number % 97 == 0 if number % 2 else 2 * (number % 98 == 0)]
            for client, name in ((near, "seq.near"), (middle, "seq.middle")):
                client.publish(name, b"%d " % number + bytes(size))
            if number % 100 == 0:
                await asyncio.sleep(0)
        await eventually_within(lambda: len(far.messages) >= 6000)
        for name in ("seq.near", "seq.middle"):
            numbers = [int(got.data.split()[0]) for got in far.messages if got.subject == name]
            assert numbers == list(range(3000))


async def test_a_client_without_echo_gets_no_message_of_its_own() -> None:
    async with mesh(2) as servers, AsyncExitStack() as stack:
        (silent,) = await clients_of(stack, servers[0], echo=False)
        near, far = await clients_of(stack, *servers)
        await subscribed(servers, {silent: ["foo", "foo q"], near: ["foo"], far: ["foo", "foo q"]})
        silent.publish("foo")
        await eventually_within(lambda: len(far.messages) == 2)  # the group's message as well
        await near.sync()
        await silent.sync()
        assert (len(silent.messages), len(near.messages)) == (0, 1)
        far.publish("foo")
        await eventually_within(lambda: len(silent.messages) == 1)


# ---- requests


async def test_requests_are_answered_by_any_server_once() -> None:
    async with mesh(3) as servers, AsyncExitStack() as stack:
        asking, one, other = await clients_of(stack, *servers)
        await subscribed(servers, {asking: ["in.*"], one: ["ask q"], other: ["ask q"]})
        answered: set[str] = set()
        for number in range(200):
            asking.publish("ask", b"?", f"in.{number}")
        async with asyncio.timeout(20):
            while len(answered) < 200:
                for client in (one, other):
                    for got in client.take():
                        assert got.reply not in answered
                        answered.add(got.reply)
                        client.publish(got.reply, got.reply.encode())
                await asyncio.sleep(0)
        await eventually_within(lambda: len(asking.messages) >= 200)
        await asking.sync()
        assert sorted(got.subject for got in asking.messages) == sorted(answered)


async def test_there_are_no_responders_as_soon_as_the_last_one_has_left() -> None:
    async with mesh(2) as servers, AsyncExitStack() as stack:
        asking, far = await clients_of(stack, *servers)
        await subscribed(servers, {asking: ["in"], far: ["ask"]})
        asking.publish("ask", b"", "in")
        await eventually_within(lambda: far.messages)
        far.send(b"UNSUB 1\r\n")
        await far.sync()
        await agreed(servers)
        asking.publish("ask", b"", "in")
        await asking.sync()
        assert [got.headers for got in asking.messages] == [
            "NATS/1.0 503\r\nNats-Subject: ask\r\n\r\n"
        ]


async def test_a_subscription_with_a_limit_ends_on_all_servers() -> None:
    async with mesh(2) as servers, AsyncExitStack() as stack:
        near, far = await clients_of(stack, *servers)
        await subscribed(servers, {far: ["foo"]})
        far.send(b"UNSUB 1 5\r\n")
        await far.sync()
        for _ in range(10):
            near.publish("foo")
        sublist = servers[0].accounts["$G"].sublist
        await eventually_within(lambda: not sublist.has_interest("foo"))
        await agreed(servers)
        assert len(far.messages) == 5


# ---- accounts and permissions

SHARING: dict[str, Any] = {
    "accounts": {
        "A": {
            "users": [{"user": "a", "password": "-"}],
            "exports": [{"stream": "news.>"}, {"service": "help"}],
        },
        "B": {
            "users": [{"user": "b", "password": "-"}],
            "imports": [
                {"stream": {"account": "A", "subject": "news.>"}, "prefix": "from"},
                {"service": {"account": "A", "subject": "help"}},
            ],
        },
    }
}


@pytest.mark.parametrize("accounts", [[], ["A"], ["A", "B"]], ids=str)
async def test_streams_and_services_are_imported_from_any_server(accounts: list[str]) -> None:
    async with mesh(3, {"accounts": accounts}, **SHARING) as servers, AsyncExitStack() as stack:
        exporter, helper = await clients_of(stack, *servers[:2], user="a", **{"pass": "-"})
        importers = await clients_of(stack, *servers, user="b", **{"pass": "-"})
        await subscribed(
            servers, {helper: ["help q"], **{each: ["from.news.*", "in"] for each in importers}}
        )
        exporter.publish("news.x", b"1")
        await eventually_within(lambda: all(each.messages for each in importers))
        assert [each.take()[0].subject for each in importers] == ["from.news.x"] * 3
        importers[2].publish("help", b"?", "in")
        await eventually_within(lambda: helper.messages)
        (request,) = helper.take()
        assert request.headers.startswith('NATS/1.0\r\nNats-Request-Info: {"acc":"B"')
        helper.publish(request.reply, b"!")
        await eventually_within(lambda: all(each.messages for each in importers))
        for each in importers:
            await each.sync()
            assert [(got.subject, got.data) for got in each.take()] == [("in", b"!")]


async def test_what_may_not_be_imported_is_not_delivered_under_a_wildcard() -> None:
    permissions = {"permissions": {"import": {"deny": ["secret.>"]}}}
    async with member("A") as first, member("B", [first], permissions) as second:
        await meshed(first, second)
        async with joined(first) as near, joined(second) as far:
            await subscribed([first, second], {far: [">", "secret.*"]})
            near.publish("secret.a")
            near.publish("open.a")
            await eventually_within(lambda: far.messages)
            await far.sync()
            assert [(got.subject, got.sid) for got in far.messages] == [("open.a", "1")]


# ---- slow and lost routes


async def test_a_slow_route_is_closed_and_its_interest_comes_again() -> None:
    """Publishers are not held up, memory is bounded, and all is well after that."""
    with patch("natsd.cluster.dialer.PAUSE_S", 0.02):
        async with member("A", cluster={"pool_size": 1}, max_pending=1 << 20) as first:
            async with proxy_to(cluster_of(first).port) as proxy:
                async with member("B", [proxy.port], {"pool_size": 1}) as second:
                    await check_slow_route(first, second, proxy)


async def check_slow_route(first: Server, second: Server, proxy: Any) -> None:
    await meshed(first, second)
    async with joined(first) as near, joined(second) as far:
        await subscribed([first, second], {far: ["foo", "bar.*"]})
        route = next(route for route in routes_of(first) if not route.account_name)
        proxy.pause()
        largest = 0
        async with asyncio.timeout(20):
            while route.reason is None:
                near.publish("foo", bytes(100_000))
                await near.sync()
                largest = max(largest, route.pending_bytes)
        assert route.reason is ClosedReason.SLOW_CONSUMER_PENDING_BYTES
        assert 0 < largest < (1 << 20) + 200_000
        assert first.counters.slow_routes == 1
        near.publish("foo", b"nobody knows")
        await near.sync()
        proxy.cut()
        proxy.resume()
        await agreed([first, second])
        far.take()
        near.publish("foo", b"again")
        await eventually_within(lambda: [got.data for got in far.messages] == [b"again"])


async def test_a_cut_route_is_made_again_and_nothing_comes_twice() -> None:
    with patch("natsd.cluster.dialer.PAUSE_S", 0.02):
        async with member("A") as first, proxy_to(cluster_of(first).port) as proxy:
            async with member("B", [proxy.port]) as second:
                await meshed(first, second)
                async with joined(first) as near, joined(second) as far:
                    await subscribed([first, second], {near: ["to.near"], far: ["to.far"]})
                    numbers = itertools.count()
                    for _ in range(5):
                        routes = routes_of(first) + routes_of(second)
                        proxy.cut()
                        while not all(route.reason for route in routes):
                            near.publish("to.far", b"%d" % next(numbers))
                            far.publish("to.near", b"%d" % next(numbers))
                            await near.sync()
                        await agreed([first, second])
                    near.publish("to.far", b"last")
                    far.publish("to.near", b"last")
                    for client in (near, far):
                        await client.found(b"last")
                        got = [int(each.data) for each in client.messages[:-1]]
                        assert got == sorted(set(got))


async def test_many_subscriptions_come_and_go_with_their_server_in_slices() -> None:
    """No turn of the loop takes longer than 50 ms, though both servers share it."""
    one = {"pool_size": 1}
    async with member("A", cluster=one) as first, joined(first) as near:
        for start in range(0, MANY, 1000):
            numbers = range(start, start + 1000)
            near.send(b"".join(b"SUB many.%d.* %d\r\n" % (each, each + 1) for each in numbers))
            await near.sync()
        async with member("B", [first], one) as second, joined(second) as far:
            sublist = second.accounts["$G"].sublist
            longest_s = await longest_turn(lambda: sublist.count >= MANY)
            await agreed([first, second])
            far.publish("many.99999.x", b"found")
            await eventually_within(lambda: near.messages)
            await first.stop()
            longest_s = max(longest_s, await longest_turn(lambda: sublist.count < OWN_MAX))
    assert longest_s < STALL_S


async def longest_turn(condition: Any) -> float:
    """Return the most CPU time of a turn of the loop until the condition holds."""
    longest_s, before_s = 0.0, time.thread_time()
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s = max(longest_s, now_s - before_s)
            before_s = now_s
    return longest_s
