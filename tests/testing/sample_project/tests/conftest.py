"""What the tests share."""

from collections.abc import AsyncIterator

import pytest_asyncio
from icecream import Parlour

import natsd.testing

town = natsd.testing.fixture(scope="session", server_name="town")
"""One server for all tests of a worker."""


@pytest_asyncio.fixture
async def parlour(natsd_jetstream: natsd.testing.NatsServer) -> AsyncIterator[Parlour]:
    """A parlour on a server of its own."""
    async with Parlour.open(natsd_jetstream.client_url) as parlour:
        yield parlour
