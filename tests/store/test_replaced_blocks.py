"""A step fails while a block's file is replaced, and the store goes on.

After the rename nothing may be appended to the old file, which has no name any more, and nothing
may be read from the new file at the old file's offsets.

Blocks have their usual size, so that the active block is the one that is replaced: an erasure in an
encrypted store replaces it. Each call of the disk fails in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from natsd.store.errors import StoreError, StoreReadOnly
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import ANY_CALL, FaultyDisk
from tests.store.machine import Machine
from tests.store.test_file_store_model import KEYS, end_other_tasks, everything

pytestmark = pytest.mark.torture

KINDS = {
    "plain": FileOptions(),
    "compressed": FileOptions(compress=True),
    "encrypted": FileOptions(keys=KEYS, context="S"),
    "both": FileOptions(keys=KEYS, context="S", compress=True),
}
SMALL_BLOCK_BYTES = 2000
"""Block size in bytes for operations on full blocks."""
CALLS_MAX = 200


@dataclass
class Kept:
    """The durable messages that the store was not asked to remove."""

    messages: dict[int, bytes] = field(default_factory=dict)
    number: int = 0

    async def append(self, store: FileStore, count: int) -> None:
        """Append messages in a commit each, and note those that the store took."""
        for _ in range(count):
            self.number += 1
            data = b"%d " % self.number * 30
            with contextlib.suppress(StoreError):
                sequence = store.append("a", None, data, self.number)
                await store.synced()
                self.messages[sequence] = data

    async def check(self, store: FileStore, when: str) -> None:
        found = {message.sequence: message.data for message in await everything(store)}
        for sequence, data in self.messages.items():
            assert sequence in found, f"{when}: {sequence} is lost"
            assert found[sequence] == data, f"{when}: {sequence} is another message"


async def nothing() -> None:
    """Do nothing: a job that only waits for its turn."""


async def erase(store: FileStore, kept: Kept) -> None:
    """Erase a message from the active block."""
    sequence = max(kept.messages) - 1
    kept.messages.pop(sequence)
    await store.erase(sequence)
    await store.synced()


async def compact(store: FileStore, kept: Kept) -> None:
    """Delete most messages of full blocks, which are rewritten without them."""
    for sequence in sorted(kept.messages)[1:-10]:
        if sequence % 5:
            kept.messages.pop(sequence)
            await store.delete(sequence)
    await store.synced()


async def truncate(store: FileStore, kept: Kept) -> None:
    """Truncate the stream; the block with the new end is rewritten without the rest."""
    last = max(kept.messages) - 3
    kept.messages = {s: data for s, data in kept.messages.items() if s <= last}
    await store.truncate(last)


async def write_index(store: FileStore, kept: Kept) -> None:
    """Replace index.db."""
    await store.write_index()


OPERATIONS = {
    "erase": (erase, 0),
    "compact": (compact, SMALL_BLOCK_BYTES),
    "truncate": (truncate, SMALL_BLOCK_BYTES),
    "index": (write_index, 0),
}


async def run(kind: str, operation: str, place: int, number: int) -> bool:
    """Run an operation in which call number `place` fails; return whether that call was made."""
    operate, block_bytes_max = OPERATIONS[operation]
    options = FileOptions(
        block_bytes_max=block_bytes_max,
        compress=KINDS[kind].compress,
        keys=KINDS[kind].keys,
        context=KINDS[kind].context,
    )
    machine, kept = Machine(FaultyDisk(place), Limits(), options), Kept()
    store = await machine.open()
    await kept.append(store, 30)
    machine.disk.fail(ANY_CALL, number, after=place - 1)
    with contextlib.suppress(StoreError, OSError):
        await operate(store, kept)
    await store._jobs.in_turn(nothing)
    was_reached = machine.disk.has_failed_one
    await kept.append(store, 10)
    drop_from_memory(store)
    await kept.check(store, f"{kind}, {operation}, call {place}, before the restart")
    killed = machine.disk.kill()
    await end_other_tasks()
    power = killed.crash(place)
    for end, disk in (("killed", killed), ("power", power)):
        disk.is_off = False
        after = Machine(disk, Limits(), options)
        store = await after.open()
        when = f"{kind}, {operation}, call {place}, {errno.errorcode[number]}, {end}"
        await kept.check(store, when)
        assert store.damage == [], when
        disk.is_off = True
        await end_other_tasks()
    return was_reached


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_call_fails(kind: str, operation: str, caplog: pytest.LogCaptureFixture) -> None:
    step = 2 if TORTURE == 1 else 1
    with caplog.at_level(logging.CRITICAL):  # the injected faults are logged as errors
        for place in range(1, CALLS_MAX, step):
            reached = [
                asyncio.run(run(kind, operation, place, number))
                for number in (errno.EIO, errno.ENOSPC)
            ]
            if not any(reached):
                return
    raise AssertionError("the operation makes more calls than that")


@pytest.mark.parametrize("fault", ["sync_dir", "pwrite", "fdatasync"])
async def test_the_steps_after_the_rename(fault: str) -> None:
    """After the rename a failed directory sync makes the store read-only.

    A failure to overwrite the old file does not: the store goes on with the new file.
    """
    machine, kept = Machine(FaultyDisk(), Limits(), KINDS["encrypted"]), Kept()
    store = await machine.open()
    await kept.append(store, 5)
    arm_after_rename(machine.disk, fault)
    await erase(store, kept)
    await store._jobs.in_turn(nothing)
    await kept.append(store, 200)
    if fault == "sync_dir":
        assert isinstance(store.write_error, StoreReadOnly)
        assert kept.number == 205
        assert len(kept.messages) == 4
    else:
        assert store.write_error is None
        assert len(kept.messages) == 204
    await kept.check(await Machine(machine.disk.kill(), Limits(), KINDS["encrypted"]).open(), "")


def drop_from_memory(store: FileStore) -> None:
    """Drop all blocks but the active one from memory, so that reads come from the files."""
    for block in store.log.all_blocks:
        if block is not store._log.active:  # type: ignore[attr-defined]  # a file store's log has one
            block.clear_cache()
            block.drop_arrays()


def arm_after_rename(disk: FaultyDisk, call: str) -> None:
    """Let the first call of that name after the next rename fail with EIO."""
    rename = disk.rename

    def armed(*paths: Any) -> None:
        rename(*paths)
        disk.fail(call, errno.EIO)

    disk.rename = armed  # type: ignore[method-assign]  # a test double
