"""Blocks that are damaged while the store is open are repaired from another store with the same.

ours, theirs = the same messages ─▶ damage a block's file of ours ─▶ read ours: all is there
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natsd.store.block.blocks import MsgBlock
from natsd.store.commit.volume import Volume
from natsd.store.errors import MessageDamaged, MessageNotFound, StoreEOF
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import Limits, StoreState
from tests.store.damage import with_flipped_bit
from tests.store.test_file_store_model import everything
from tests.waiting import eventually_within

PLAIN = FileOptions(block_bytes_max=4000)
COMPRESSED = FileOptions(block_bytes_max=4000, compress=True)
MESSAGES = 100


async def open_store(volume: Volume, name: str, options: FileOptions = PLAIN) -> FileStore:
    return await FileStore.open(volume, volume.directory / name, Limits(), os.urandom, options)


async def settled(store: FileStore) -> None:
    await store.synced()
    await eventually_within(lambda: store._jobs._task is None)


async def filled(volume: Volume, name: str, options: FileOptions = PLAIN) -> FileStore:
    """Return a store of several blocks, with removals; each store gets the same messages."""
    chance = random.Random(7)
    store = await open_store(volume, name, options)
    for number in range(MESSAGES):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % number if number % 5 == 0 else None
        store.append(f"orders.{number % 7}", headers, chance.randbytes(150), 1000 + number)
    for sequence in (3, 4, 40):
        await store.delete(sequence)
    await settled(store)
    return store


@asynccontextmanager
async def two_stores(
    volume: Volume, options: FileOptions = PLAIN
) -> AsyncIterator[tuple[FileStore, FileStore]]:
    """Yield two stores with the same messages; damage of ours is repaired from theirs."""
    ours, theirs = await filled(volume, "ours", options), await filled(volume, "theirs", options)
    ours.repair_from(theirs.intact)
    yield ours, theirs
    await ours.close()
    await theirs.close()


def evict(store: FileStore, *, with_arrays: bool = True) -> None:
    """Drop all full blocks from memory."""
    for stored in store._blocks.all:
        if stored.block is not store._log.active:
            stored.block.clear_cache()
            if with_arrays:
                stored.block.drop_arrays()


def block_files(store: FileStore) -> list[Path]:
    """Return the files of the full blocks, oldest first."""
    full = [each for each in store._blocks.all if each.block is not store._log.active]
    return [each.path for each in full]


def flip(path: Path, at: int) -> None:
    path.write_bytes(with_flipped_bit(path.read_bytes(), at * 8 + at % 8))


def damage(store: FileStore, number: int, *sequences: int) -> None:
    """Flip a bit in the payload of these messages in that full block's file."""
    path = block_files(store)[number]
    for sequence in sequences:
        flip(path, of_block(store, path).offset_of(sequence) + 100)


def of_block(store: FileStore, path: Path) -> MsgBlock:
    return next(each.block for each in store._blocks.all if each.path == path)


async def reopened(volume: Volume, store: FileStore, name: str, options: FileOptions) -> FileStore:
    """Close the store, and open it from its blocks alone."""
    await store.close()
    (volume.directory / name / "index.db").unlink()
    return await open_store(volume, name, options)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a payload": lambda path: flip(path, 200),
    "its header": lambda path: flip(path, 20),
    "a mark": lambda path: flip(path, path.stat().st_size - 150),
    "many bytes": lambda path: [flip(path, at) for at in range(64, path.stat().st_size, 97)],
    "a page of zeros": lambda path: path.write_bytes(
        path.read_bytes()[:500] + bytes(1500) + path.read_bytes()[2000:]
    ),
    "cut short": lambda path: os.truncate(path, 1500),
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("with_arrays", [False, True])
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("options", [PLAIN, COMPRESSED], ids=["plain", "compressed"])
async def test_a_read_repairs_a_damaged_block(
    volume: Volume, options: FileOptions, what: str, *, with_arrays: bool
) -> None:
    async with two_stores(volume, options) as (ours, theirs):
        expected = await everything(theirs)
        evict(ours, with_arrays=with_arrays)
        for path in block_files(ours)[1:3]:
            DAMAGES[what](path)
        assert await everything(ours) == expected
        assert not ours.damage
        assert ours.state(with_deleted=True) == theirs.state(with_deleted=True)
        evict(ours)
        ours.repair_from(None)
        assert await everything(ours) == expected
        again = await reopened(volume, ours, "ours", options)
        assert not again.damage
        assert await everything(again) == expected
        assert again.state(with_deleted=True) == theirs.state(with_deleted=True)
        await again.close()


async def test_what_nobody_has_is_damaged_and_nothing_else(volume: Volume) -> None:
    async with two_stores(volume) as (ours, theirs):
        expected = {each.sequence: each.data for each in await everything(theirs)}
        lost = of_block(ours, block_files(ours)[1]).base_sequence
        damage(ours, 1, lost, lost + 2, lost + 5)
        damage(theirs, 1, lost)
        evict(ours)
        evict(theirs)

        async def check(store: FileStore) -> None:
            with pytest.raises(MessageDamaged):
                await store.load(lost)
            assert await all_but(store, lost) == {**expected, lost: b""}
            assert [each.first_sequence for each in store.damage] == [lost]

        await check(ours)
        evict(ours)
        await check(ours)
        again = await reopened(volume, ours, "ours", PLAIN)
        await check(again)
        await again.close()


async def all_but(store: FileStore, lost: int) -> dict[int, bytes]:
    """Return the data of all messages, empty for the lost one."""
    found = {lost: b""}
    for sequence in range(1, MESSAGES + 1):
        if sequence != lost and store._log.has(sequence):
            found[sequence] = (await store.load(sequence)).data
    return found


async def test_a_copy_of_another_message_is_not_taken(volume: Volume) -> None:
    """The record's header tells the time of the damaged message, and the log its subject."""
    async with two_stores(volume) as (ours, _):
        sequence = of_block(ours, block_files(ours)[1]).base_sequence
        damage(ours, 1, sequence)
        evict(ours)
        for subject, time_ns in (("orders.1", 5), ("elsewhere", 1000 + sequence - 1)):
            ours._repair.ask_again(2)
            evict(ours)
            ours.repair_from(one_message(sequence, subject, time_ns))
            with pytest.raises(MessageDamaged):
                await ours.load(sequence)


def one_message(
    sequence: int, subject: str, time_ns: int
) -> Callable[[SequenceSet], AsyncGenerator[bytes]]:
    async def source(_lacking: SequenceSet) -> AsyncGenerator[bytes]:
        block = MsgBlock(1, 0, sequence, 1 << 20)
        block.put(sequence, subject, None, b"?" * 150, time_ns)
        extent = block.take_extent(1, 1, force=True, closing=True)
        assert extent is not None
        yield bytes(memoryview(extent))
        yield b"no block"

    return source


async def test_a_message_that_is_removed_meanwhile_needs_no_repair(volume: Volume) -> None:
    async with two_stores(volume) as (ours, theirs):
        sequence = of_block(ours, block_files(ours)[1]).base_sequence
        damage(ours, 1, sequence)
        evict(ours, with_arrays=False)

        async def slow(lacking: SequenceSet) -> AsyncGenerator[bytes]:
            for store in (ours, theirs):
                deleting.append(asyncio.create_task(store.delete(sequence)))
            async for image in theirs.intact(lacking):
                yield image

        deleting: list[asyncio.Task[bool]] = []
        ours.repair_from(slow)
        assert (await ours.load(sequence + 1)).sequence == sequence + 1
        assert all(await asyncio.gather(*deleting))
        assert await everything(ours) == await everything(theirs)
        assert not ours.damage


async def test_two_stores_with_damage_in_different_places_repair_each_other(
    volume: Volume,
) -> None:
    async with two_stores(volume) as (ours, theirs):
        expected = await everything(theirs)
        theirs.repair_from(ours.intact)
        for number, store in enumerate((ours, theirs)):
            for path in block_files(store):
                block = of_block(store, path)
                at = block.offset_of(block.last_sequence - number)
                if at:
                    flip(path, at + 100)
            evict(store)
        found = await asyncio.gather(everything(ours), everything(theirs))
        assert found == [expected, expected]


async def test_a_backup_repairs_what_it_reads(volume: Volume, tmp_path: Path) -> None:
    async with two_stores(volume) as (ours, _):
        for path in block_files(ours):
            flip(path, 200)
        evict(ours)
        frozen = await ours.freeze(tmp_path / "frozen")
        images = [await frozen.image(index) for index in range(frozen.num_blocks)]
        assert sum(each.msgs for each in images) == MESSAGES - 3
        assert not any(each.lost for each in images)
        await frozen.release()


@pytest.mark.parametrize("ends_by", ["close", "destroy"])
async def test_a_store_ends_during_a_repair(volume: Volume, ends_by: str) -> None:
    """The file is written to its end; the next start finds all messages, or nothing at all."""
    async with two_stores(volume) as (ours, theirs):
        expected = await everything(theirs)
        damage(ours, 1, of_block(ours, block_files(ours)[1]).base_sequence)
        evict(ours)
        has_begun, may_end = threading.Event(), threading.Event()
        care: Any = ours._care
        write_file = care._write_file

        def slow(*arguments: Any) -> Any:
            has_begun.set()
            assert may_end.wait(20)
            return write_file(*arguments)

        care._write_file = slow
        reading = asyncio.create_task(everything(ours))
        assert await asyncio.to_thread(has_begun.wait, 20)
        ending = asyncio.create_task(getattr(ours, ends_by)())
        await asyncio.sleep(0)
        may_end.set()
        await ending
        await asyncio.gather(reading, return_exceptions=True)
        if ends_by == "destroy":
            assert not (volume.directory / "ours").exists()
            return
        again = await open_store(volume, "ours")
        assert await everything(again) == expected
        assert not again.damage
        await again.close()


async def test_a_store_alone_keeps_its_damage(volume: Volume) -> None:
    async with two_stores(volume) as (ours, _):
        ours.repair_from(None)
        sequence = of_block(ours, block_files(ours)[1]).base_sequence
        damage(ours, 1, sequence)
        path = block_files(ours)[1]
        before = path.read_bytes()
        evict(ours)
        with pytest.raises(MessageDamaged):
            await ours.load(sequence)
        assert path.read_bytes() == before


def state_of(store: FileStore) -> StoreState:
    """Return the state; the time of a last message that is not in memory is not known at once."""
    return replace(store.state(with_deleted=True), last_time_ns=0)


async def read_all(store: FileStore) -> None:
    """Read all messages that are there at the moment; none is damaged."""
    for sequence in range(1, MESSAGES + 1):
        try:
            await store.load(sequence)
        except MessageDamaged:
            raise
        except (MessageNotFound, StoreEOF):
            continue


async def test_a_backup_of_a_store_alone_repairs_what_is_in_memory(
    volume: Volume, tmp_path: Path
) -> None:
    async with two_stores(volume) as (ours, _):
        ours.repair_from(None)
        before = [path.read_bytes() for path in block_files(ours)]
        for path in block_files(ours):
            flip(path, 200)
        frozen = await ours.freeze(tmp_path / "frozen")
        images = [await frozen.image(index) for index in range(frozen.num_blocks)]
        assert sum(each.msgs for each in images) == MESSAGES - 3
        await frozen.release()
        assert [path.read_bytes() for path in block_files(ours)] == before


@pytest.mark.parametrize("seed", range(12))
async def test_purges_and_compactions_meet_repairs(volume: Volume, seed: int) -> None:
    """Whatever is removed, erased or compacted while blocks are repaired: both end alike."""
    chance = random.Random(seed)
    doomed, erased = chance.sample(range(5, 36), 20), chance.sample(range(41, 60), 5)
    first = chance.choice([0, 15, 30])

    async def change(store: FileStore) -> None:
        for sequence in doomed:
            await store.delete(sequence)
        for sequence in erased:
            await store.erase(sequence)
        await store.purge(pattern="orders.3")
        if first:
            await store.compact(first)

    async with two_stores(volume) as (ours, theirs):
        for path in block_files(ours):
            flip(path, chance.randrange(64, path.stat().st_size))
        evict(ours, with_arrays=chance.random() < 0.5)
        source = await filled(volume, "lags")
        ours.repair_from(source.intact)
        await asyncio.gather(change(ours), change(theirs), read_all(ours))
        await source.close()
        await settled(ours)
        evict(ours)
        assert await everything(ours) == await everything(theirs)
        assert state_of(ours) == state_of(theirs)
        again = await reopened(volume, ours, "ours", PLAIN)
        assert await everything(again) == await everything(theirs)
        assert state_of(again) == state_of(theirs)
        await again.close()
