"""An interrupted commit of several blocks, some of which the stream's limit emptied before.

The recovered stream is the stream before some message was published, without a hole. Blocks are
written one after the other, and the mark of the last block ends the commit. Blocks that the limit
has emptied meanwhile are never written.
"""

from __future__ import annotations

import asyncio

import pytest

from natsd.store.file_store import FileOptions, FileStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import Machine
from tests.store.test_file_store_model import DIRECTORY, KEYS, end_other_tasks, everything

pytestmark = pytest.mark.torture

MSGS_MAX = 12
DATA = b"x" * 40
CALLS_MAX = 200
KINDS = {
    "plain": FileOptions(block_bytes_max=700),
    "encrypted": FileOptions(block_bytes_max=700, keys=KEYS, context="S"),
}
"""A block has room for half the number of messages that the limit keeps."""


async def append(store: FileStore, upto: int) -> None:
    for number in range(store.log.last_sequence + 1, upto + 1):
        assert store.append("a", None, DATA, number) == number


async def nothing() -> None:
    """Do nothing: a job that only waits for its turn."""


async def sequences(store: FileStore) -> list[int]:
    return [message.sequence for message in await everything(store)]


def check(found: list[int], durable: int, when: str) -> None:
    """Assert that the sequences have no hole, and reach at least to the durable ones.

    More of the oldest messages may be there than the limit keeps.
    """
    last = found[-1] if found else 0
    assert last >= durable, when
    assert found == list(range(last - len(found) + 1, last + 1)), f"{when}: a hole in {found}"
    assert len(found) >= min(last, MSGS_MAX), f"{when}: {found} is not all that the limit keeps"


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("durable", [0, 3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_call(kind: str, durable: int, has_index: bool) -> None:
    for calls in range(0, CALLS_MAX, 1 if TORTURE > 1 else 2):
        if asyncio.run(kill(kind, durable, calls, has_index=has_index)):
            return
    raise AssertionError("the commit makes more calls than that")


async def kill(kind: str, durable: int, calls: int, *, has_index: bool) -> bool:
    """Kill the process after `calls` calls of the disk; return whether the commit was over."""
    limits = Limits(max_msgs=MSGS_MAX)
    machine = Machine(FaultyDisk(calls), limits, KINDS[kind])
    store = await machine.open()
    if durable:
        await append(store, durable)
        await store.synced()
        if has_index:
            await store.write_index()
    is_over = [False]

    async def commit() -> None:
        await append(store, durable + 60)
        await store.synced()
        is_over[0] = True

    machine.disk.power_fails_at = calls
    await machine.until_off(commit())
    await end_other_tasks()
    killed = machine.disk.kill()
    for end, disk in (("killed", killed), ("power", killed.crash(calls))):
        disk.is_off = False
        if not has_index and disk.exists(DIRECTORY / INDEX_NAME):
            disk.unlink(DIRECTORY / INDEX_NAME)
        after = Machine(disk, limits, KINDS[kind])
        opened = await after.open()
        when = f"{kind}, {durable} durable, call {calls}, {end}"
        check(await sequences(opened), durable + 60 if is_over[0] else durable, when)
        assert opened.damage == [], when
        assert opened.append("a", None, DATA, 1000) == opened.log.last_sequence
        await opened.synced()
        disk.is_off = True
        await end_other_tasks()
    return is_over[0]


@pytest.mark.parametrize("limits", [Limits(), Limits(max_msgs=MSGS_MAX)])
@pytest.mark.parametrize("durable", [0, 20])
async def test_blocks_stay_when_what_ended_their_commit_is_lost(
    limits: Limits, durable: int
) -> None:
    """The blocks of an acknowledged commit stay if its last block is lost.

    Either index.db shows that the commit was acknowledged, or nothing before them is missing.
    """
    machine = Machine(FaultyDisk(), limits, KINDS["plain"])
    store = await machine.open()
    await append(store, durable)
    await store.synced()
    await append(store, durable + 30)
    await store.synced()
    if limits.max_msgs > 0:
        await store._jobs.in_turn(nothing)  # until the first commit's index is written
        await store.write_index()
    disk = machine.disk.kill()
    names = [name for name in disk.listdir(DIRECTORY) if name.endswith(".blk")]
    assert len(names) > 1
    disk.unlink(DIRECTORY / names[-1])
    found = await sequences(await Machine(disk, limits, KINDS["plain"]).open())
    assert found == list(range(found[0], found[-1] + 1))
    assert found[-1] > durable
    await end_other_tasks()
