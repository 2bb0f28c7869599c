"""A block is read from the disk while its file is replaced.

Nothing counts as damage, and each message is found, whichever of the two threads is first.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.test_file_store_model import everything
from tests.waiting import eventually_within

KINDS = {
    "plain": FileOptions(block_bytes_max=4000),
    "compressed": FileOptions(block_bytes_max=4000, compress=True),
    "encrypted": FileOptions(block_bytes_max=4000, keys=OperatorKeys(key=b"k" * 32), context="S"),
}
OVERLAP_S = 0.3  # how long one thread waits for the other, which may be waiting itself


class Meeting:
    """A meeting of two threads: one waits behind its step until the other has done its own."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.may_go_on = threading.Event()

    def behind(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return the step with a wait behind it, of at most OVERLAP_S seconds."""

        def met(*arguments: Any) -> Any:
            result = step(*arguments)
            self.has_come.set()
            self.may_go_on.wait(OVERLAP_S)
            return result

        return met

    async def begun(self) -> None:
        """Wait until the other thread has done its step."""
        assert await asyncio.to_thread(self.has_come.wait, 20)


async def opened(volume: Volume, kind: str) -> FileStore:
    """Return a store of several blocks with no work left; the first block is not in memory."""
    store = await FileStore.open(volume, volume.directory / "S", Limits(), os.urandom, KINDS[kind])
    for _ in range(100):
        store.append("orders", None, os.urandom(100), 1)
    await store.synced()
    await eventually_within(lambda: store._jobs._task is None)
    let_go(store)
    return store


def let_go(store: FileStore) -> None:
    """Drop the first block from memory, as if another block needed the room."""
    block = store._log.all_blocks[0]
    block.clear_cache()
    block.drop_arrays()


async def change(store: FileStore, name: str) -> set[int]:
    """Have the first block's file replaced in the background; return the removed sequences."""
    if name == "erased":
        await store.erase(2)
        return {2}
    for sequence in range(2, 20):
        await store.delete(sequence)
    await store.synced()
    return set(range(2, 20))


async def check(store: FileStore, gone: set[int]) -> None:
    await eventually_within(lambda: store._jobs._task is None)
    let_go(store)
    kept = [sequence for sequence in range(1, 101) if sequence not in gone]
    assert [message.sequence for message in await everything(store)] == kept
    assert store.damage == []
    await store.close()


@pytest.mark.parametrize("name", ["compacted", "erased"])
@pytest.mark.parametrize("kind", KINDS)
async def test_read_behind_the_replacement(volume: Volume, kind: str, name: str) -> None:
    """A message is found if its file was replaced and the store does not know it yet."""
    store, meeting = await opened(volume, kind), Meeting()
    care: Any = store._care
    care._write_file = meeting.behind(care._write_file)
    care._overwrite = meeting.behind(care._overwrite)
    gone = await change(store, name)
    await meeting.begun()
    let_go(store)
    assert (await store.load(25)).sequence == 25
    meeting.may_go_on.set()
    await check(store, gone)


@pytest.mark.parametrize("name", ["compacted", "erased"])
@pytest.mark.parametrize("kind", KINDS)
async def test_replaced_behind_the_read(volume: Volume, kind: str, name: str) -> None:
    """A block is read again if its file was replaced after it was read."""
    store, meeting = await opened(volume, kind), Meeting()
    gone = await change(store, name)
    blocks: Any = store._blocks
    original = blocks.read
    blocks.read = meeting.behind(original)
    let_go(store)
    reading = asyncio.create_task(store.load(25))
    await meeting.begun()
    blocks.read = original
    await asyncio.sleep(OVERLAP_S / 3)
    meeting.may_go_on.set()
    assert (await reading).sequence == 25
    await check(store, gone)
