"""A server whose machine loses its power."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from natsd.accounts import Account
from natsd.jetstream.jetstream import JetStream
from tests.jetstream.serving import ACCOUNT, build
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks

ROOT: Final = Path("/data")


class Program(Protocol):
    """The work that runs until the power fails."""

    async def run(self, jetstream: JetStream) -> None: ...


async def run_until_off(
    disk: FaultyDisk,
    program: Program,
    clock: Callable[[], int] = time.time_ns,
    *,
    options: dict[str, Any] | None = None,
) -> None:
    """Run `program` until the disk is off, then stop and close nothing.

    An exception that the program raises before that is raised.
    """
    jetstream = build(ROOT, disk=disk, clock=clock, **(options or {}))

    async def run() -> None:
        await jetstream.start([Account(ACCOUNT, jetstream.reactor)])
        await program.run(jetstream)

    running = asyncio.ensure_future(run())
    while not running.done() and not disk.is_off:  # noqa: ASYNC110 - it sends no event
        await asyncio.sleep(0)
    if not disk.is_off:
        await running
    await end_other_tasks()
    jetstream.scheduler.close()
    jetstream.reactor.close()
