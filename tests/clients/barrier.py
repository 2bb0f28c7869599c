"""A point in time for nats-py programs: what was sent before has been processed by the server."""

from __future__ import annotations

from nats.aio.client import Client


async def processed(client: Client) -> None:
    """All that `client` sent has been processed, and all the server sent it before has arrived.

    nats-py's `flush` may send its PING ahead of what it still buffers: the first flush empties the
    buffer, the second is the barrier.
    """
    await client.flush()
    await client.flush()
