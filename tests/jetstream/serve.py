"""A server with JetStream in its own process, to be killed, and clients that survive the kill."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error

from tests.clients.target import ProcessTarget, start_process
from tests.jetstream.behaviour.api import Api

GONE: Final = (Error, OSError, asyncio.CancelledError)
"""The exceptions with which a client's call ends when the server is killed."""


def serve_files(
    directory: Path, *, server: dict[str, Any] | None = None, **settings: object
) -> ProcessTarget:
    """Start a server on these files and wait until it is ready; `kill` kills it.

    `settings` are JetStream's, and `server` has the other ones.
    """
    jetstream = {"store_dir": str(directory), **settings}
    return start_process({"jetstream": jetstream, **(server or {})})


def kill(target: ProcessTarget) -> None:
    """Send SIGKILL and wait until the process is gone."""
    target.process.kill()
    target.process.wait()
    target.stop()


async def kill_soon(server: ProcessTarget, delay_s: float) -> None:
    """Kill the server after `delay_s` seconds, in the middle of the load."""
    await asyncio.sleep(delay_s)
    await asyncio.to_thread(kill, server)


async def connect(server: ProcessTarget, **login: Any) -> Client:
    """Connect a client to the server. Raises `Error` or `OSError` at once if the server is gone."""

    async def ignore(_: Exception) -> None:
        """Ignore errors: the server is killed while the client is connected."""

    client = Client()
    try:
        # With the default of 60 attempts nats-py tries for two minutes, even if reconnecting is
        # off.
        await client.connect(
            server.url,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=ignore,
            **login,
        )
    except BaseException:
        await client.close()
        raise
    return client


async def load_until_gone(
    server: ProcessTarget, work: Iterable[Callable[[Api], Awaitable[None]]], **login: Any
) -> None:
    """Run each program with its own client until the server is killed."""
    clients: list[Client] = []
    tasks = []
    with contextlib.suppress(Error, OSError):  # it may be killed before all connect
        for each in work:
            clients.append(await connect(server, **login))
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
