"""A simulated disk and the file store on it, which a test opens as often as it ends its process."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from natsd.store.commit.volume import Volume
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import DIRECTORY, KEYS, end_other_tasks

OPTIONS = {
    "plain": FileOptions(block_bytes_max=700),
    "compressed": FileOptions(block_bytes_max=700, compress=True),
    "encrypted": FileOptions(block_bytes_max=700, keys=KEYS, context="S"),
}


class AtOnce(Executor):
    """An executor that runs each call at once: with threads no two runs would be the same."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call and return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Machine:
    """A disk, the options of the store on it, and the randomness of its processes."""

    def __init__(self, disk: FaultyDisk, limits: Limits, options: FileOptions) -> None:
        self.disk = disk
        self.limits = limits
        self.options = options
        self.chance = random.Random(3)

    async def open(self) -> FileStore:
        """Open the store in a volume of its own, as a new process does."""
        loop = asyncio.get_running_loop()
        volume = Volume.open(self.disk, Path("/store"), self.chance.randbytes, loop=loop)
        volume._readers = AtOnce()  # type: ignore[assignment]  # a test double
        random_bytes = self.chance.randbytes
        store = await FileStore.open(volume, DIRECTORY, self.limits, random_bytes, self.options)
        await store.settle()
        return store

    async def until_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine until it is done or the power is off, then end all other tasks."""
        task = asyncio.ensure_future(work)
        while not task.done() and not self.disk.is_off:  # noqa: ASYNC110 - a disk has no event
            await asyncio.sleep(0)
        if not self.disk.is_off:
            await task
        await end_other_tasks()
