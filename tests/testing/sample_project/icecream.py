"""An ice cream parlour: orders go through a stream, the stock is a key-value bucket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import nats
from nats.aio.client import Client
from nats.js.client import JetStreamContext
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue


class SoldOut(Exception):
    """There is no scoop of the flavour left."""


class Parlour:
    """Takes orders, and makes them in the order in which they came."""

    def __init__(self, stream: JetStreamContext, stock: KeyValue) -> None:
        self._stream = stream
        self._stock = stock

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, **login: Any) -> AsyncIterator[Self]:
        """Connect to the server, and create what is missing there."""
        client: Client = await nats.connect(url, name="parlour", **login)
        try:
            stream = client.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders.*"])
            yield cls(stream, await stream.create_key_value(bucket="stock"))
        finally:
            await client.close()

    async def fill(self, flavour: str, scoops: int) -> None:
        """Put that many scoops of a flavour into the stock."""
        await self._stock.put(flavour, str(scoops).encode())

    async def scoops(self, flavour: str) -> int:
        """Return how many scoops are left."""
        try:
            entry = await self._stock.get(flavour)
        except KeyNotFoundError:
            return 0
        return int(entry.value or b"0")

    async def order(self, flavour: str, customer: str) -> int:
        """Take an order; return its number. Raises SoldOut."""
        left = await self.scoops(flavour)
        if not left:
            raise SoldOut(flavour)
        await self.fill(flavour, left - 1)
        text = json.dumps({"customer": customer}).encode()
        return (await self._stream.publish(f"orders.{flavour}", text)).seq

    async def make_next(self) -> tuple[str, str]:
        """Make the oldest order; return flavour and customer."""
        orders = await self._stream.pull_subscribe("orders.*", durable="kitchen")
        (message,) = await orders.fetch(1, timeout=20)
        await message.ack_sync(timeout=20)
        await orders.unsubscribe()
        return message.subject.removeprefix("orders."), json.loads(message.data)["customer"]
