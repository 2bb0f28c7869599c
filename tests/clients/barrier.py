"""A barrier for nats-py programs: behind it the server has processed everything that was sent."""

from __future__ import annotations

from nats.aio.client import Client


async def processed(client: Client) -> None:
    """Wait until the server has processed everything that `client` sent.

    Everything that the server sent before has then arrived. nats-py's `flush` may send its PING
    ahead of data in its buffer: the first flush empties the buffer, the second is the barrier.
    """
    await client.flush()
    await client.flush()
