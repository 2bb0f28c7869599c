"""FileStore against the plain model: it is reopened, evicted and compacted at any moment.

Both kinds of store pass the shared model of test_store_model.py.
"""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.errors import StoreEOF
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.mem_store import MemStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Discard, Limits
from tests.store.audience import Audience
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.plain_store import PlainStore
from tests.store.store_kinds import BLOCK_BYTES
from tests.store.test_store_model import StoreModel, limits, plain

pytestmark = pytest.mark.torture

DIRECTORY = Path("/store/A/S")
KEYS = OperatorKeys(key=b"a key of thirty-two bytes, or so")


async def everything(store: FileStore | MemStore) -> list[Any]:
    found: list[Any] = []
    try:
        while True:
            start = found[-1].sequence + 1 if found else 0
            found += await store.read_batch(start, 1 << 20, 1 << 30)
    except StoreEOF:
        return found


async def end_other_tasks() -> None:
    """Cancel all other tasks until they have ended; used after the disk of a store is off.

    Some tasks wait once more after a cancel, for a disk that never answers.
    """
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.sleep(0)


class FileModel(StoreModel):
    """The model test of a file store; a subclass sets other file options."""

    options = FileOptions(block_bytes_max=BLOCK_BYTES)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.run(self.volume.close())
        self.runner.close()
        self.directory.cleanup()

    @initialize(limits=limits, first=st.sampled_from([0, 0, 7]), per_subject=st.booleans())
    def open(self, limits: Limits, first: int, per_subject: bool) -> None:
        is_new = limits.discard is Discard.NEW and limits.max_msgs_per_subject > 0
        self.limits = replace(
            limits, first_sequence=first, discard_new_per_subject=per_subject and is_new
        )
        self.disk = FaultyDisk()
        self.random = random.Random(7)
        self.run(self.open_files())
        self.model = PlainStore(self.limits)

    async def open_files(self) -> None:
        loop = asyncio.get_running_loop()
        self.volume = Volume.open(self.disk, Path("/store"), self.random.randbytes, loop=loop)
        self.store: FileStore = await FileStore.open(
            self.volume, DIRECTORY, self.limits, self.random.randbytes, self.options
        )
        await self.store.settle()
        self.audience = Audience(self.store.log)
        self.store.append = self.append_warm  # type: ignore[method-assign]  # see `append_warm`

    def append_warm(self, *arguments: Any, **options: Any) -> int:
        """Append with all blocks in memory.

        Limits remove messages from blocks that are not in memory later, perhaps in another order
        than the model does.
        """
        store = self.store

        async def warm() -> None:
            for block in store._log.all_blocks:
                if not (block.has_cache and block.has_arrays):
                    await store.fetch(block)

        self.run(warm())
        return FileStore.append(store, *arguments, **options)

    @rule(scanned=st.booleans())
    def open_again(self, scanned: bool) -> None:
        first = self.limits.first_sequence  # it never changes
        self.limits = replace(self.store.limits, first_sequence=first)

        async def again() -> None:
            await self.store.close()
            await self.volume.close()
            if scanned and self.disk.exists(DIRECTORY / INDEX_NAME):
                self.disk.unlink(DIRECTORY / INDEX_NAME)
            await self.open_files()

        self.run(again())
        assert self.store.damage == []

    @rule()
    def write_index(self) -> None:
        self.run(self.store.write_index())

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        """Lose power after a sync: everything is found, with the old, the new or no index.db."""
        first = self.limits.first_sequence
        self.limits = replace(self.store.limits, first_sequence=first)

        async def again() -> None:
            await self.store.synced()
            self.disk = self.disk.crash(seed)
            await end_other_tasks()
            await self.open_files()

        self.run(again())
        assert self.store.damage == []

    @rule()
    def evict(self) -> None:
        """Drop everything from memory, as if other stores needed it."""
        self.run(self.store.synced())
        for budget in (self.volume.cache, self.volume.arrays):
            limit = budget.limit_bytes
            budget.resize(0)
            budget.resize(limit)

    @rule()
    def become_durable(self) -> None:
        self.run(self.store.synced())
        assert self.store.durable_sequence == self.model.last

    @invariant()
    def state_is_exact(self) -> None:
        if hasattr(self, "store") and self.model.messages:
            self.run(self.store.load(self.model.first))  # its time is exact from then on
        super().state_is_exact()

    @invariant()
    def messages_are_there(self) -> None:
        if hasattr(self, "store"):
            found = self.run(everything(self.store))
            assert [plain(message) for message in found] == self.model.matching(">")


class CompressedModel(FileModel):
    options = FileOptions(block_bytes_max=BLOCK_BYTES, compress=True)


class EncryptedModel(FileModel):
    options = FileOptions(block_bytes_max=BLOCK_BYTES, compress=True, keys=KEYS, context="S")


TestPlain = FileModel.TestCase
TestCompressed = CompressedModel.TestCase
TestEncrypted = EncryptedModel.TestCase
TestPlain.settings = settings(max_examples=30 * TORTURE, stateful_step_count=25, deadline=None)
TestCompressed.settings = settings(max_examples=12 * TORTURE, stateful_step_count=25, deadline=None)
TestEncrypted.settings = settings(max_examples=12 * TORTURE, stateful_step_count=25, deadline=None)
