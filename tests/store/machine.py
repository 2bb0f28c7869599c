"""A simulated disk, and the file store on it, opened as often as a test ends its process."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from natsd.store.volume import Volume
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import DIRECTORY, KEYS, end_other_tasks

OPTIONS = {
    "plain": FileOptions(block_bytes_max=700),
    "compressed": FileOptions(block_bytes_max=700, compress=True),
    "encrypted": FileOptions(block_bytes_max=700, keys=KEYS, context="S"),
}


class AtOnce(Executor):
    """Calls what is submitted: threads would make each run another."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Machine:
    """A disk, and the store on it."""

    def __init__(self, disk: FaultyDisk, limits: Limits, options: FileOptions) -> None:
        self.disk = disk
        self.limits = limits
        self.options = options
        self.chance = random.Random(3)

    async def open(self) -> FileStore:
        loop = asyncio.get_running_loop()
        volume = Volume.open(self.disk, Path("/store"), self.chance.randbytes, loop=loop)
        volume._readers = AtOnce()  # type: ignore[assignment]  # a double
        random_bytes = self.chance.randbytes
        store = await FileStore.open(volume, DIRECTORY, self.limits, random_bytes, self.options)
        await store.settle()
        return store

    async def until_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it go on until it is done or the power is gone."""
        task = asyncio.ensure_future(work)
        while not task.done() and not self.disk.is_off:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        if not self.disk.is_off:
            await task
        await end_other_tasks()
