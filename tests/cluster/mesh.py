"""Servers of one cluster, on the loop of the test, and clients of them."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from natsd import Server
from natsd.cluster.cluster import Cluster
from natsd.cluster.route import Route
from tests.waiting import eventually_within

NAME = "C"


def member(
    name: str,
    routes: Sequence[Server | int] = (),
    cluster: dict[str, Any] | None = None,
    **settings: Any,
) -> Server:
    """Return a server that dials the routes of others."""
    block = {"name": NAME, "host": "127.0.0.1", "port": -1, **(cluster or {})}
    block.setdefault("routes", [route_url(each) for each in routes])
    return Server(host="127.0.0.1", port=-1, server_name=name, cluster=block, **settings)


def route_url(server: Server | int) -> str:
    """Return the URL at which a server accepts routes, or that of a port."""
    port = server if isinstance(server, int) else cluster_of(server).port
    return f"nats-route://127.0.0.1:{port}"


def cluster_of(server: Server) -> Cluster:
    assert server.cluster is not None
    return server.cluster


def routes_of(server: Server) -> list[Route]:
    """Return the registered routes of a server."""
    return list(cluster_of(server).table)


def is_meshed(servers: Sequence[Server]) -> bool:
    """Return whether each server has all routes to each other one, and no others."""
    return all(
        _sees(server, [each for each in servers if each is not server]) for server in servers
    )


def _sees(server: Server, others: Sequence[Server]) -> bool:
    cluster = cluster_of(server)
    table = cluster.table
    ids = {each.id for each in others}
    if table.pooled.keys() != ids or len(cluster.routes) != len(list(table)):
        return False
    for other in others:
        sizes = (table.pool_size, cluster_of(other).table.pool_size)
        if len(table.pooled[other.id]) != (1 if min(sizes) < 0 else max(sizes)):
            return False
        for account, routes in table.dedicated.items():
            if account in cluster_of(other).table.dedicated and other.id not in routes:
                return False
    return True


async def meshed(*servers: Server) -> None:
    """Wait until the servers form a full mesh."""
    try:
        await eventually_within(lambda: is_meshed(servers))
    except AssertionError:
        raise AssertionError("; ".join(map(_seen, servers))) from None


def _seen(server: Server) -> str:
    """Return what routes a server has, the ones that have no place yet among them."""
    cluster = cluster_of(server)
    routes = [
        f"{each.remote_id[:6] or '?'} {each.account_name or each.pool_index} {each.reason}"
        for each in cluster.routes.values()
    ]
    size, accounts = cluster.table.pool_size, list(cluster.table.dedicated)
    return f"{server.name} {server.id[:6]}: pool {size}, {accounts}, routes {routes}"


@contextlib.asynccontextmanager
async def mesh(
    size: int = 3, cluster: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[list[Server]]:
    """Run servers of which each one but the first is told the first one's routes."""
    async with contextlib.AsyncExitStack() as stack:
        servers: list[Server] = []
        for index in range(size):
            server = member(f"S{index}", servers[:1], cluster, **settings)
            servers.append(await stack.enter_async_context(server))
        await meshed(*servers)
        yield servers


@contextlib.asynccontextmanager
async def client(server: Server, **options: Any) -> AsyncIterator[NatsClient]:
    """Run a client of one server, which does not connect elsewhere."""
    connection = await nats.connect(server.client_url, allow_reconnect=False, **options)
    try:
        yield connection
    finally:
        await connection.close()


async def interested(server: Server, subject: str, count: int = 1, account: str = "$G") -> None:
    """Wait until a server knows so many subscriptions on a subject, its own included."""
    sublist = server.accounts[account].sublist
    await eventually_within(lambda: sum(sublist.num_interest(subject)) == count)


class Inbox(list[Msg]):
    """The messages of a subscription."""

    async def take(self, message: Msg) -> None:
        self.append(message)

    @property
    def texts(self) -> list[str]:
        return [each.data.decode() for each in self]

    async def filled(self, count: int) -> None:
        """Wait until there are so many messages."""
        await eventually_within(lambda: len(self) >= count)


async def inbox(connection: NatsClient, subject: str, queue: str = "") -> Inbox:
    """Subscribe; the server has handled it when this returns."""
    found = Inbox()
    await connection.subscribe(subject, queue, cb=found.take)
    await connection.flush()
    return found
