"""Orders are made in their order, by a parlour with a server of its own."""

import asyncio

import pytest
from icecream import Parlour, SoldOut

from natsd.testing import NatsServer, Operator, ServerFactory

FLAVOURS = ["vanilla", "lemon", "hazelnut", "pistachio"]


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_each_test_has_an_empty_stock(parlour: Parlour, flavour: str) -> None:
    assert await parlour.scoops(flavour) == 0
    await parlour.fill(flavour, 3)
    assert await parlour.order(flavour, "ann") == 1
    assert await parlour.scoops(flavour) == 2


async def test_orders_are_made_in_their_order(parlour: Parlour) -> None:
    await parlour.fill("lemon", 2)
    for customer in ("ann", "bob"):
        await parlour.order("lemon", customer)
    assert await parlour.make_next() == ("lemon", "ann")
    assert await parlour.make_next() == ("lemon", "bob")
    with pytest.raises(SoldOut):
        await parlour.order("lemon", "cid")


@pytest.mark.natsd(process=True)
async def test_orders_survive_a_crash_of_the_server(natsd_jetstream: NatsServer) -> None:
    async with Parlour.open(natsd_jetstream.client_url) as parlour:
        await parlour.fill("lemon", 1)
        await parlour.order("lemon", "ann")
    natsd_jetstream.kill()
    natsd_jetstream.restart()
    async with Parlour.open(natsd_jetstream.client_url) as parlour:
        assert await parlour.make_next() == ("lemon", "ann")


@pytest.mark.natsd(tls="verify")
async def test_a_parlour_with_a_certificate(natsd_jetstream: NatsServer) -> None:
    tls = natsd_jetstream.ssl_context()
    async with Parlour.open(natsd_jetstream.client_url, tls=tls) as parlour:
        assert await parlour.scoops("lemon") == 0


async def test_two_accounts_do_not_share_a_stock(natsd_factory: ServerFactory) -> None:
    users = {
        name: {"jetstream": True, "users": [{"user": name, "password": "secret"}]}
        for name in ("north", "south")
    }
    url = natsd_factory(jetstream=True, accounts=users).client_url
    async with Parlour.open(url, user="north", password="secret") as north:
        await north.fill("lemon", 1)
        async with Parlour.open(url, user="south", password="secret") as south:
            assert await north.scoops("lemon") == 1
            assert await south.scoops("lemon") == 0


async def test_a_server_in_operator_mode(natsd_factory: ServerFactory) -> None:
    operator = Operator()
    account = operator.account("parlour")
    server = natsd_factory(**operator.settings(account))
    async with server.connect(**account.user("ann").login) as client:
        await client.flush()


async def test_a_server_for_all_tests(town: NatsServer) -> None:
    async with town.connect() as client:
        heard = await client.subscribe("news")
        await asyncio.to_thread(town.wait_for_subscription, "news", timeout=20)
        await client.publish("news", b"free ice cream")
        assert (await heard.next_msg(timeout=20)).data == b"free ice cream"


def test_a_synchronous_test(town: NatsServer) -> None:
    assert "Server is ready" in town.log
