"""Settings of a cluster that change while it runs."""

from dataclasses import replace
from typing import Any

import pytest

from natsd import Server
from natsd.config import make_options
from natsd.config.changes import diff_options
from natsd.core.reasons import ClosedReason
from natsd.server.reload import ReloadError
from tests.cluster.mesh import (
    client,
    cluster_of,
    inbox,
    interested,
    is_meshed,
    member,
    mesh,
    meshed,
    route_url,
    routes_of,
)
from tests.waiting import Eventually

pytestmark = pytest.mark.both_loops


def change(server: Server, **settings: Any) -> None:
    """Reload a server with other settings of its cluster."""
    block = server.options.cluster
    assert block is not None
    server.reload(cluster=replace(block, **settings))


async def test_routes_are_added_and_removed(eventually: Eventually) -> None:
    async with member("A") as first, member("B") as second:
        change(second, routes=[route_url(first)])
        await meshed(first, second)
        removed = routes_of(second)
        change(second, routes=[])
        await eventually(lambda: not routes_of(first) and not routes_of(second))
        assert {route.reason for route in removed} == {ClosedReason.ROUTE_REMOVED}


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (3, -1), (-1, 3)])
async def test_a_pool_changes_its_size(sizes: tuple[int, int]) -> None:
    async with mesh(2, {"pool_size": sizes[0]}) as servers, client(servers[1]) as b:
        got = await inbox(b, "foo")
        await interested(servers[0], "foo")
        for server in servers:
            change(server, pool_size=sizes[1])
        await meshed(*servers)
        await interested(servers[0], "foo")
        async with client(servers[0]) as a:
            await a.publish("foo", b"1")
            await a.flush()
            await got.filled(1)


async def test_an_account_gets_routes_of_its_own_and_loses_them(eventually: Eventually) -> None:
    accounts = {"ONE": {"users": [{"user": "u", "password": "p"}]}}
    login = {"user": "u", "password": "p"}
    async with mesh(3, accounts=accounts) as servers, client(servers[1], **login) as b:
        got = await inbox(b, "foo")
        for names in (["ONE"], []):
            for server in servers:
                change(server, accounts=names)
            for server in servers:
                assert ("ONE" in cluster_of(server).table.dedicated) == bool(names)
            await meshed(*servers)
            await interested(servers[0], "foo", account="ONE")
            async with client(servers[0], **login) as a:
                await a.publish("foo", b"1")
                await a.flush()
            await got.filled(1)
            got.clear()


async def test_permissions_change_and_back(eventually: Eventually) -> None:
    async with mesh(2) as (first, second), client(second) as b:
        await inbox(b, "foo")
        await inbox(b, "bar")
        await interested(first, "foo")
        await interested(first, "bar")
        change(first, permissions={"export": "bar"})
        await interested(first, "foo", 0)
        await interested(first, "bar", 1)
        change(first, permissions=None)
        await interested(first, "foo", 1)
        change(second, permissions={"import": {"deny": "bar"}})
        await interested(first, "bar", 0)
        await interested(first, "foo", 1)
        change(second, permissions=None)
        await interested(first, "bar", 1)


@pytest.mark.parametrize("modes", [("off", "s2_fast"), ("s2_fast", "off"), ("s2_fast", "s2_best")])
async def test_compression_changes(modes: tuple[str, str], eventually: Eventually) -> None:
    async with mesh(2, {"compression": modes[0]}) as servers:
        for server in servers:
            change(server, compression=modes[1])
        await eventually(
            lambda: (
                is_meshed(servers)
                and {route.compression for each in servers for route in routes_of(each)}
                == {modes[1]}
            )
        )


async def test_credentials_change(eventually: Eventually) -> None:
    login = {"user": "u", "password": "p"}
    async with member("A", cluster={"authorization": login}) as first:
        url = route_url(first).replace("//", "//u:p@")
        async with member("B", cluster={"routes": [url]}) as second:
            await meshed(first, second)
            change(first, authorization={"user": "u", "password": "other"})
            await eventually(lambda: not routes_of(first))
            change(first, authorization=login)
            await meshed(first, second)


async def test_a_name_is_changed(eventually: Eventually) -> None:
    async with mesh(2) as servers:
        for server in servers:
            change(server, name="D")
        await eventually(lambda: {cluster_of(each).name for each in servers} == {"D"})
        await meshed(*servers)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "localhost"}, "cluster host: old=127.0.0.1, new=localhost"),
        ({"port": 4}, "cluster port: old=-1, new=4"),
    ],
)
async def test_the_port_cannot_change(settings: dict[str, Any], words: str) -> None:
    async with member("A") as server:
        with pytest.raises(ReloadError, match=f"config reload not supported for {words}"):
            change(server, **settings)


async def test_an_account_that_does_not_exist_gets_no_routes() -> None:
    async with member("A") as server:
        with pytest.raises(ReloadError, match='unable to add account "X" to the list'):
            change(server, accounts=["X"])


@pytest.mark.parametrize("pool_size", [-1, 2, 3, 7])
async def test_an_account_that_is_added_later_knows_what_peers_told_of_it(pool_size: int) -> None:
    accounts = {"ONE": {"users": [{"user": "u", "password": "p"}]}}
    login = {"user": "u", "password": "p"}
    async with member("A", accounts=accounts) as first, client(first, **login) as a:
        got = await inbox(a, "foo")
        async with member("B", [first], {"pool_size": pool_size}) as second:
            await meshed(first, second)
            second.reload(accounts=accounts)
            await interested(second, "foo", account="ONE")
            async with client(second, **login) as b:
                await b.publish("foo", b"1")
                await b.flush()
                await got.filled(1)


def test_all_but_the_port_can_change() -> None:
    before = make_options(cluster={"port": 1, "name": "a"})
    after = make_options(cluster={"port": 1, "name": "b", "pool_size": 1, "write_deadline": "1s"})
    assert not any(each.needs_restart for each in diff_options(before, after))
    (found,) = diff_options(before, make_options())
    assert found.needs_restart
