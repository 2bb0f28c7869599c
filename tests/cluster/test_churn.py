"""Meshes whose servers dial each other at once, and whose connections are cut again and again."""

import asyncio
import contextlib
import random
import socket
from dataclasses import replace

import pytest

from natsd import Server
from natsd.core.reasons import ClosedReason
from tests.cluster.mesh import client, cluster_of, interested, member, mesh, meshed, routes_of

pytestmark = pytest.mark.both_loops


def unused_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.mark.parametrize("pool_size", [-1, 1, 3])
async def test_servers_that_are_told_of_one_another_and_start_at_once(pool_size: int) -> None:
    ports = unused_ports(3)
    servers = [
        member(
            f"S{port}",
            [each for each in ports if each != port],
            {"port": port, "pool_size": pool_size},
        )
        for port in ports
    ]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        await meshed(*servers)
        # The mesh is stable: what was superfluous is not dialed again and again.
        before = [{route.rid for route in routes_of(server)} for server in servers]
        await asyncio.sleep(1.5)
        await meshed(*servers)
        assert [{route.rid for route in routes_of(server)} for server in servers] == before
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


async def test_cut_connections_come_back_with_all_interest() -> None:
    chance = random.Random(5)
    async with mesh(3) as servers, client(servers[1]) as b:
        subscriptions = [await b.subscribe(f"s.{number}") for number in range(50)]
        await b.subscribe("q", "workers")
        await b.flush()
        for _ in range(20):
            server = chance.choice(servers)
            routes = routes_of(server)
            if routes:
                chance.choice(routes).close(ClosedReason.READ_ERROR)
            await asyncio.sleep(chance.random() * 0.1)
        await meshed(*servers)
        for server in servers:
            for number in range(50):
                await interested(server, f"s.{number}")
            await interested(server, "q")
        for subscription in subscriptions:
            await subscription.unsubscribe()
        for server in servers:
            for number in range(50):
                await interested(server, f"s.{number}", 0)
            assert len(cluster_of(server).routes) == len(routes_of(server))


async def test_a_server_that_is_dialed_again_may_be_another_one_of_which_others_are_told() -> None:
    accounts = {name: {"users": [{"user": name, "password": "p"}]} for name in ("ONE", "TWO")}
    block = {"accounts": ["ONE", "TWO"], "pool_size": 2}
    async with contextlib.AsyncExitStack() as stack:
        servers: list[Server] = []
        for name in ("A", "B", "D", "E"):
            server = member(name, servers[:1], block, accounts=accounts)
            servers.append(await stack.enter_async_context(server))
        await meshed(*servers)
        block = {"accounts": ["ONE"], "pool_size": 3}
        for server in servers:
            options = server.options.cluster
            assert options is not None
            server.reload(cluster=replace(options, **block))
        await meshed(*servers)
        port = cluster_of(servers[1]).port
        await servers[1].stop()
        again = member("B", servers[:1], {**block, "port": port}, accounts=accounts)
        servers[1] = await stack.enter_async_context(again)
        await meshed(*servers)
