"""What clients are told of the other servers: `connect_urls` and the name of the cluster."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from natsd import Server
from natsd.cluster.client_urls import ClientUrls
from tests.cluster.mesh import client, member, mesh, meshed
from tests.waiting import Eventually


def address(server: Server) -> str:
    return f"127.0.0.1:{server.client_port}"


async def infos(server: Server) -> AsyncIterator[dict[str, Any]]:
    """Yield the INFOs that a client gets: the first one, that after its PING, and later ones."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    try:
        writer.write(b'CONNECT {"protocol":1,"verbose":false}\r\nPING\r\n')
        while line := await reader.readline():
            if line.startswith(b"INFO"):
                yield json.loads(line[5:])
    finally:
        writer.close()


async def test_urls_are_counted() -> None:
    urls = ClientUrls()
    assert urls.add(["a", "b"])
    assert not urls.add(["b"])
    assert not urls.remove(["b"])
    assert urls.remove(["b"])
    assert not urls.remove(["b"])
    assert list(urls) == ["a"]


async def test_clients_learn_of_servers_that_come_and_leave() -> None:
    first = member("A")
    async with first, asyncio.timeout(20):
        told = infos(first)
        info = await anext(told)
        assert info["cluster"] == "C"
        assert "connect_urls" not in info
        await anext(told)  # with the account, after PING
        async with member("B", [first]) as second:
            assert (await anext(told))["connect_urls"] == [address(first), address(second)]
        assert (await anext(told))["connect_urls"] == [address(first)]


async def test_clients_of_a_lame_duck_are_sent_to_the_others(eventually: Eventually) -> None:
    times: dict[str, Any] = {"lame_duck_duration": "30s", "lame_duck_grace_period": "200ms"}
    async with mesh(2, **times) as (first, second), client(first) as _, asyncio.timeout(20):
        own, others = infos(first), infos(second)
        for told in (own, others):
            await anext(told)
            await anext(told)
        first.enter_lame_duck()
        info = await anext(own)
        assert (info["ldm"], info["connect_urls"]) == (True, [address(second)])
        assert (await anext(others))["connect_urls"] == [address(second)]


async def test_an_advertised_address_replaces_that_of_the_socket() -> None:
    async with member("A", client_advertise="a.example:1") as first:
        async with member("B", [first]) as second, asyncio.timeout(20):
            await meshed(first, second)
            assert (await anext(infos(second)))["connect_urls"] == [address(second), "a.example:1"]
            assert (await anext(infos(first)))["connect_urls"] == ["a.example:1", address(second)]


async def test_nothing_is_told_without_advertising() -> None:
    async with mesh(2, {"no_advertise": True}) as servers:
        for server in servers:
            assert "connect_urls" not in await anext(infos(server))
