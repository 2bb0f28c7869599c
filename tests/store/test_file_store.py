"""FileStore's files: their content, and when they are written, replaced or removed.

See docs/store.md.
"""

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.errors import KeyMissing, KeyWrong, MessageDamaged, StoreClosed, StoreReadOnly
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import everything
from tests.waiting import eventually_within

SMALL = FileOptions(block_bytes_max=4000)
OLD_KEY, NEW_KEY = b"o" * 32, b"n" * 32


async def open_store(
    volume: Volume, options: FileOptions = SMALL, limits: Limits | None = None
) -> FileStore:
    directory = volume.directory / "S"
    return await FileStore.open(volume, directory, limits or Limits(), os.urandom, options)


def blocks(volume: Volume) -> dict[str, int]:
    """Return the size in bytes of each block file."""
    sizes = {}
    for path in sorted((volume.directory / "S").glob("*.blk")):
        with contextlib.suppress(FileNotFoundError):  # the file may be unlinked in a thread
            sizes[path.name] = path.stat().st_size
    return sizes


async def fill(store: FileStore, count: int, size: int = 100) -> None:
    for _ in range(count):
        store.append("orders", None, os.urandom(size), 1)
    await store.synced()


async def test_a_removal_at_the_front_unlinks_blocks_once_it_is_durable(volume: Volume) -> None:
    store = await open_store(volume)
    await fill(store, 100)
    assert len(blocks(volume)) > 3
    await store.compact(90)
    await store.synced()
    await eventually_within(lambda: len(blocks(volume)) <= 2)
    assert [message.sequence for message in await everything(store)] == list(range(90, 101))
    await store.close()


@pytest.mark.parametrize("has_index", [True, False])
async def test_what_is_not_committed_is_counted_after_a_start(
    volume: Volume, has_index: bool
) -> None:
    store = await open_store(volume)
    await fill(store, 100)
    await store.close()
    if not has_index:
        (volume.directory / "S" / INDEX_NAME).unlink()
    store = await open_store(volume)
    assert store._commits.buffered_bytes == 0
    for _ in range(3):
        store.append("orders", None, bytes(100), 1)
    assert store._commits.buffered_bytes > 300
    await store.close()


async def test_what_is_not_committed_is_bounded(volume: Volume) -> None:
    """Publishers wait for room above `max_buffered_msgs` or `max_buffered_size`."""
    by_messages, by_bytes = FileOptions(buffered_msgs_max=10), FileOptions(buffered_bytes_max=2000)
    for options, count in ((by_messages, 11), (by_bytes, 12)):
        store = await open_store(volume, options)
        while not store.is_over_limit:
            store.append("orders", None, bytes(130), 1)
        assert store.log.last_sequence - store.durable_sequence == count
        await store.room()
        assert not store.is_over_limit
        await store.room()
        await store.close()


async def test_nobody_waits_for_room_in_a_store_that_cannot_be_written() -> None:
    disk = FaultyDisk()
    volume = Volume.open(disk, Path("/"), os.urandom, loop=asyncio.get_running_loop())
    store = await open_store(volume, FileOptions(buffered_msgs_max=1))
    disk.fail("pwrite", errno.EIO, path="000001.blk")
    store.append("orders", None, b"", 1)
    store.append("orders", None, b"", 1)
    await store.room()
    assert isinstance(store.write_error, StoreReadOnly)
    await store.room()
    await store.close()
    await volume.close()


async def test_very_many_subjects_that_end_at_once_are_forgotten_in_steps(volume: Volume) -> None:
    store = await open_store(volume)
    for number in range(3000):
        store.append(f"orders.{number}", None, b"", 1)
    await store.synced()
    assert await store.purge(pattern="orders.*") == 3000
    await store.synced()
    assert store.log.subjects.empty_subjects > 0
    store.append("orders.7", None, b"", 1)  # before the subject's name is forgotten
    await eventually_within(lambda: store.log.subjects.num_remembered == 0)
    assert (store.log.subjects.empty_subjects, store.log.subjects.count) == (0, 1)
    await store.close()


async def test_a_full_block_takes_no_more_room_than_it_needs(volume: Volume) -> None:
    store = await open_store(volume)
    await fill(store, 100)
    await eventually_within(lambda: max(list(blocks(volume).values())[:-1]) < 4400)
    await store.close()


async def test_a_block_that_is_mostly_dead_is_rewritten(volume: Volume) -> None:
    store = await open_store(volume)
    await fill(store, 100)
    await eventually_within(lambda: blocks(volume)["000001.blk"] > 3000)
    before = blocks(volume)["000001.blk"]
    for sequence in range(2, 20):
        await store.delete(sequence)
    await store.synced()
    await eventually_within(lambda: blocks(volume)["000001.blk"] < before // 2)
    kept = [1, *range(20, 101)]
    assert [message.sequence for message in await everything(store)] == kept
    await store.close()
    store = await open_store(volume)
    assert [message.sequence for message in await everything(store)] == kept
    assert store.damage == []
    await store.close()


@pytest.mark.parametrize("compress", [False, True])
async def test_erased_bytes_are_in_no_file(volume: Volume, compress: bool) -> None:
    store = await open_store(volume, FileOptions(block_bytes_max=4000, compress=compress))
    store.append("orders", None, b"a secret of the house", 1)
    await fill(store, 3 if compress else 60)
    assert await store.erase(1)
    await store.close()
    for path in (volume.directory / "S").iterdir():
        assert b"secret" not in path.read_bytes()
    store = await open_store(volume)
    assert store.damage == []
    assert store.state().first_sequence == 2
    await store.close()


async def test_an_encrypted_store_says_nothing_in_clear(volume: Volume) -> None:
    options = FileOptions(4000, keys=OperatorKeys(key=OLD_KEY), context="S")
    store = await open_store(volume, options)
    for _ in range(60):
        store.append("orders.secret", None, b"the payload of an order", 1)
    await store.close()
    for path in (volume.directory / "S").iterdir():
        assert b"secret" not in path.read_bytes()
        assert b"payload" not in path.read_bytes()


async def test_a_key_is_rotated_when_the_store_is_opened(volume: Volume) -> None:
    def options(keys: OperatorKeys) -> FileOptions:
        return FileOptions(4000, keys=keys, context="S")

    store = await open_store(volume, options(OperatorKeys(key=OLD_KEY)))
    await fill(store, 3)
    await store.close()
    with pytest.raises(KeyMissing):
        await open_store(volume)
    store = await open_store(volume, options(OperatorKeys(key=NEW_KEY, previous=OLD_KEY)))
    assert store.state().msgs == 3
    await store.close()
    with pytest.raises(KeyWrong):
        await open_store(volume, options(OperatorKeys(key=OLD_KEY)))
    store = await open_store(volume, options(OperatorKeys(key=NEW_KEY)))
    assert len(await everything(store)) == 3
    await store.close()


@pytest.mark.parametrize("ends", [(50_000, 40_000), (50_000, 1), (99_999,), (1,)])
async def test_sequences_are_used_again_behind_a_cut(volume: Volume, ends: tuple[int, ...]) -> None:
    """A truncated stream reuses sequences, although marks of its last block name higher ones."""
    store = await open_store(volume)
    for sequence in (1, 100_000):  # too far apart for one block
        store.append("orders", None, b"", 1, sequence=sequence)
    await store.synced()
    for end in ends:
        await store.truncate(end)
    await store.close()
    (volume.directory / "S" / INDEX_NAME).unlink()  # so that the open scans the blocks
    store = await open_store(volume)
    assert store.append("orders", None, b"", 2) == ends[-1] + 1
    assert [message.sequence for message in await everything(store)] == [1, ends[-1] + 1]
    assert store.damage == []
    await store.close()


async def test_a_store_with_nothing_to_do_has_no_task(volume: Volume) -> None:
    store = await open_store(volume)
    await fill(store, 100)
    await eventually_within(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    await store.close()


async def test_memory_does_not_grow_with_what_is_on_disk(volume: Volume) -> None:
    volume.cache.resize(30_000)
    store = await open_store(volume)
    for _ in range(20):
        await fill(store, 100)
    await eventually_within(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert len(await everything_in_turn(store)) == 2000
    assert volume.cache.held_bytes <= 30_000
    held = sum(stored.block.cached_bytes for stored in store._blocks.all)
    assert held <= 30_000 + 2 * 4400  # the active block, and the block that was read last
    await store.close()


async def everything_in_turn(store: FileStore) -> list[int]:
    found = []
    for sequence in range(1, store.state().last_sequence + 1):
        found.append((await store.load(sequence)).sequence)
    return found


async def test_a_destroyed_store_is_gone(volume: Volume) -> None:
    store = await open_store(volume)
    await fill(store, 10)
    await store.destroy()
    assert not (volume.directory / "S").exists()
    with pytest.raises(StoreClosed):
        store.append("orders", None, b"", 1)


async def test_what_is_damaged_while_the_store_is_open_costs_nothing_else(volume: Volume) -> None:
    limits = Limits(max_msgs_per_subject=1)
    store = await open_store(volume, limits=limits)
    for number in range(100):
        store.append(f"key.{number}", None, b"." * 100, number + 1)
    await store.close()
    store = await open_store(volume, limits=limits)
    path = volume.directory / "S" / "000001.blk"
    data = bytearray(path.read_bytes())
    at = data.index(b"key.3")
    data[at + 50] ^= 1
    path.write_bytes(data)

    with pytest.raises(MessageDamaged):
        await store.load(4)
    assert [damage.first_sequence for damage in store.damage] == [4]
    assert (await store.load(5)).subject == "key.4"
    store.append("key.3", None, b"anew", 101)
    await store.settle()
    assert (await store.load_last("key.3")).data == b"anew"
    assert await store.subject_totals("key.3") == {"key.3": 1}
    assert store.state().msgs == 100
    assert not await store.delete(4)
    await store.close()
