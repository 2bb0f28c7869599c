"""A sync fails, the process ends, the next one finds in the page cache what is not on disk; then
the power fails. What the next one served must be there still ("Durability" of the design)."""

import asyncio
import errno

import pytest

from natsd.store.errors import StoreReadOnly
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_crashes import OPTIONS, Machine
from tests.store.test_file_store_model import end_other_tasks, everything


@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.parametrize("seed", range(12))
def test_what_was_served_after_a_failed_sync_outlives_a_power_cut(kind: str, seed: int) -> None:
    async def scenario() -> None:
        machine = Machine(FaultyDisk(seed), Limits(), OPTIONS[kind])
        store = await machine.open()
        for number in range(1, 4):
            store.append("a", None, b"kept" * 20, number)
            await store.synced()
        machine.disk.fail("fdatasync", errno.EIO, path=".blk")
        for number in range(4, 9):
            store.append("a", None, b"lost" * 30, number)
        with pytest.raises(StoreReadOnly):
            await store.synced()
        machine.disk = machine.disk.kill()
        await end_other_tasks()
        served = [m.sequence for m in await everything(await machine.open())]
        machine.disk = machine.disk.crash(seed)
        await end_other_tasks()
        found = await machine.open()
        assert [m.sequence for m in await everything(found)][: len(served)] == served
        assert found.damage == []
        await end_other_tasks()

    asyncio.run(scenario())
