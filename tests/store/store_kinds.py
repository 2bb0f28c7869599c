"""The kinds of store that pass the shared tests, and how a test opens a new one of each.

Blocks are small, so that a few messages fill several.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits

OpenStore = Callable[[Path, Limits], Awaitable[LogStore]]
BLOCK_BYTES = 600


async def open_memory(_directory: Path, limits: Limits) -> LogStore:
    return MemStore(limits, block_bytes=BLOCK_BYTES)


STORE_KINDS: dict[str, OpenStore] = {"memory": open_memory}
