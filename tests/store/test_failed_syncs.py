"""A sync fails, the process ends, the next one reads the page cache, and then the power fails.

Every message that the second process served is still there after the power cut (docs/store.md,
"What an acknowledgement means").
"""

import asyncio
import errno
from pathlib import Path

import pytest

from natsd.store.disk.disk import make_directories, sync_names
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreReadOnly
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
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


@pytest.mark.parametrize("calls", range(40))
def test_names_that_a_killed_process_left_are_on_disk(calls: int) -> None:
    """A start syncs directories and their parents that a killed process had made but not synced."""

    async def scenario() -> None:
        machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
        machine.disk.power_fails_at = calls
        await machine.until_off(append_and_close(machine))
        machine.disk = machine.disk.kill()
        store = await machine.open()
        sequence = store.append("a", None, b"acknowledged", 7)
        await store.synced()
        disk = machine.disk.kill()
        await end_other_tasks()
        for seed in range(8):
            machine.disk = disk.crash(seed)
            found = await everything(await machine.open())
            assert found[-1].sequence == sequence
            await end_other_tasks()

    asyncio.run(scenario())


async def append_and_close(machine: Machine) -> None:
    store = await machine.open()
    store.append("a", None, b"first", 1)
    await store.synced()
    await store.close()


def test_what_another_user_keeps_in_the_volume_is_left_alone(tmp_path: Path) -> None:
    disk = FaultyDisk()
    make_directories(disk, Path("/store/lost+found"))
    disk.fail("listdir", errno.EACCES, path="lost+found")
    disk.fail("sync_dir", errno.EPERM, path="lost+found")
    disk.fail("sync_dir", errno.EIO, path="store")
    with pytest.raises(OSError, match="Input/output"):
        sync_names(disk, Path("/store"))
    sync_names(disk, Path("/store"))
    (tmp_path / "circle").symlink_to(tmp_path)
    sync_names(RealDisk(), tmp_path)
