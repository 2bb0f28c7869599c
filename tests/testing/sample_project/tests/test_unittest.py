"""The same servers in tests of unittest."""

import unittest

from icecream import Parlour

import natsd.testing


class TestParlour(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.server = self.enterContext(natsd.testing.server(jetstream=True))

    async def test_a_stock(self) -> None:
        async with Parlour.open(self.server.client_url) as parlour:
            await parlour.fill("lemon", 2)
            assert await parlour.scoops("lemon") == 2
