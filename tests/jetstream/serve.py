"""A server with JetStream in its own process, to be killed, and clients that live through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from nats.errors import Error

from tests.clients.target import ProcessTarget, start_process
from tests.jetstream.behaviour.api import Api

GONE: Final = (Error, OSError, asyncio.CancelledError)
"""What a client's call ends with when the server is killed."""


def serve_files(directory: Path, **settings: object) -> ProcessTarget:
    """A server on these files, ready; `kill` ends it as a power cut ends a process."""
    jetstream = {"store_dir": str(directory), **settings}
    return start_process({"jetstream": jetstream})


def kill(target: ProcessTarget) -> None:
    """SIGKILL, and the process is gone on return."""
    target.process.kill()
    target.process.wait()
    target.stop()


async def kill_soon(server: ProcessTarget, delay_s: float) -> None:
    """After a while that lies in the load."""
    await asyncio.sleep(delay_s)
    await asyncio.to_thread(kill, server)


async def connect(server: ProcessTarget) -> Client:
    """A client of the server. Raises `Error` or `OSError` at once if the server is gone."""

    async def ignore(_: Exception) -> None:
        """The server is killed under it."""

    client = Client()
    try:
        # With the default of 60 attempts it tries for two minutes, reconnecting allowed or not.
        await client.connect(
            server.url,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=ignore,
        )
    except BaseException:
        await client.close()
        raise
    return client


async def load_until_gone(
    server: ProcessTarget, work: Iterable[Callable[[Api], Awaitable[None]]]
) -> None:
    """Each with a client of its own, until the server is killed."""
    clients: list[Client] = []
    tasks = []
    with contextlib.suppress(Error, OSError):  # it may be killed before all have come
        for each in work:
            clients.append(await connect(server))
            tasks.append(asyncio.ensure_future(each(Api(clients[-1]))))
    await asyncio.to_thread(server.process.wait)
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.close()
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, GONE):
            raise outcome
