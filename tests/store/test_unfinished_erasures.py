"""Bytes of an erased message are gone from the disk after a start, also if an erasure failed.

That holds after a failed overwriting, and after a kill during it, whatever the page cache shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest

from natsd.store.disk.doubled_file import read_file
from natsd.store.errors import StoreError
from natsd.store.file_store import FileStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.test_file_store_model import DIRECTORY, end_other_tasks

SECRET = b"a secret of the house"
FIRST = DIRECTORY / "000001.blk"
SEEDS = range(12 * TORTURE)


async def filled(kind: str, *, has_index: bool) -> tuple[Machine, FileStore]:
    """Return a machine and a store whose first message is the secret."""
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    store = await machine.open()
    for number in range(8):
        store.append("s", None, SECRET * 5 if number == 0 else b"other" * 40, 1)
        await store.synced()
    await until_at_rest(store)
    if has_index:
        await store.write_index()
    return machine, store


async def until_at_rest(store: FileStore) -> None:
    """Wait until the store has no background work, or the disk is off."""
    disk: Any = store._blocks.disk
    while store._jobs._task is not None and not disk.is_off:  # noqa: ASYNC110 - a disk has no event
        await asyncio.sleep(0)


async def erase(store: FileStore) -> None:
    await store.erase(1)
    await store.synced()
    await until_at_rest(store)


async def started_again(machine: Machine, *, has_index: bool) -> bool:
    """Start the next process, let it write index.db, and return whether the message is gone."""
    machine.disk = machine.disk.kill()
    if not has_index and machine.disk.exists(DIRECTORY / INDEX_NAME):
        machine.disk.unlink(DIRECTORY / INDEX_NAME)
    store = await machine.open()
    await until_at_rest(store)
    await store.write_index()
    assert store.damage == []
    await end_other_tasks()
    return store.state().first_sequence == 2


def check(machine: Machine) -> None:
    """Assert that the secret is in no file after a power cut now."""
    for seed in SEEDS:
        disk = machine.disk.crash(seed)
        for name in disk.listdir(DIRECTORY):
            assert SECRET not in read_file(disk, DIRECTORY / name), (name, seed)


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("kind", ["plain", "compressed"])
async def test_after_a_sync_that_failed(kind: str, has_index: bool) -> None:
    machine, store = await filled(kind, has_index=has_index)
    for call, path in (("fdatasync", FIRST.name), ("fsync", f"{FIRST.name}.new")):
        machine.disk.fail(call, errno.EIO, path=path)
    with contextlib.suppress(StoreError):
        await erase(store)
    assert machine.disk.has_failed_one
    await end_other_tasks()
    assert await started_again(machine, has_index=has_index)
    check(machine)


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("kind", ["plain", "compressed"])
async def test_killed_at_any_call(kind: str, has_index: bool) -> None:
    for calls in range(1000):
        machine, store = await filled(kind, has_index=has_index)
        machine.disk.power_fails_at = calls
        await machine.until_off(erase(store))
        if not machine.disk.is_off:
            assert calls > 3
            return
        machine.disk.power_fails_at = None
        if await started_again(machine, has_index=has_index):
            check(machine)
