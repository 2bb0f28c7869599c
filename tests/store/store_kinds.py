"""The kinds of store that pass the shared tests, and how a test opens a new store of each.

Blocks are small, so that a few messages fill several blocks.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits

OpenStore = Callable[[Path, Limits], Awaitable[LogStore]]
BLOCK_BYTES = 600


async def open_memory(_directory: Path, limits: Limits) -> LogStore:
    """Open a store in memory."""
    return MemStore(limits, block_bytes=BLOCK_BYTES)


class LoneStore(FileStore):
    """A store in a volume of its own, which is closed with the store."""

    async def close(self) -> None:
        """Close the store and its volume."""
        if not self._closed:
            await super().close()
            await self._volume.close()


async def open_files(options: FileOptions, directory: Path, limits: Limits) -> LogStore:
    """Open a file store in a volume of its own."""
    loop = asyncio.get_running_loop()
    volume = Volume.open(RealDisk(), directory, os.urandom, loop=loop)
    return await LoneStore.open(volume, directory / "S", limits, os.urandom, options)


KEYS = OperatorKeys(key=b"a key of thirty-two bytes, or so")
PLAIN = FileOptions(BLOCK_BYTES)
ENCRYPTED = FileOptions(BLOCK_BYTES, compress=True, keys=KEYS, context="S")
STORE_KINDS: dict[str, OpenStore] = {
    "memory": open_memory,
    "files": partial(open_files, PLAIN),
    "encrypted files": partial(open_files, ENCRYPTED),
}
