"""A server whose machine loses its power."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from natsd.accounts import Account
from natsd.jetstream.jetstream import JetStream
from tests.jetstream.serving import ACCOUNT, build
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks

ROOT: Final = Path("/data")


class Program(Protocol):
    """What is done until then."""

    async def run(self, jetstream: JetStream) -> None: ...


async def run_until_off(
    disk: FaultyDisk, program: Program, clock: Callable[[], int] = time.time_ns
) -> None:
    """Whoever sees that the power is gone is dead: nothing is stopped, or closed."""
    jetstream = build(ROOT, disk=disk, clock=clock)

    async def run() -> None:
        await jetstream.start([Account(ACCOUNT, jetstream.reactor)])
        await program.run(jetstream)

    running = asyncio.ensure_future(run())
    while not running.done() and not disk.is_off:  # noqa: ASYNC110 - a disk that is off tells nobody
        await asyncio.sleep(0)
    await end_other_tasks()
    jetstream.scheduler.close()
    jetstream.reactor.close()
