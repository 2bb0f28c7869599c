"""A frozen store is the store as of one commit, whatever happens to the store afterwards."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.backup.block_images import append_image, end_as
from natsd.store.backup.frozen_store import FrozenStore
from natsd.store.backup.snapshots import open_image
from natsd.store.codec.records import StoredMessage
from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreClosed
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.waiting import Eventually

BLOCK_BYTES = 600
KINDS = {
    "plain": FileOptions(block_bytes_max=BLOCK_BYTES),
    "compressed": FileOptions(block_bytes_max=BLOCK_BYTES, compress=True),
    "encrypted": FileOptions(
        block_bytes_max=BLOCK_BYTES, compress=True, keys=OperatorKeys(b"key"), context="s"
    ),
}


async def open_store(volume: Volume, directory: Path, options: FileOptions) -> FileStore:
    return await FileStore.open(volume, directory, Limits(), os.urandom, options)


def open_volume(directory: Path) -> Volume:
    return Volume.open(RealDisk(), directory, os.urandom, loop=asyncio.get_running_loop())


async def messages_of(store: FileStore | MemStore) -> list[StoredMessage]:
    state = store.state()
    found = []
    for sequence in range(state.first_sequence, state.last_sequence + 1):
        if store.log.has(sequence):
            found.append(await store.load(sequence))
    return found


def fields(messages: list[StoredMessage]) -> list[tuple[object, ...]]:
    return [(m.sequence, m.subject, m.headers, m.data, m.time_ns, m.expires_ns) for m in messages]


async def thaw(frozen: FrozenStore) -> MemStore:
    """Return a memory store with the content of the frozen store."""
    store, live_bytes = MemStore(block_bytes=BLOCK_BYTES), 0
    for index in range(frozen.num_blocks):
        image = await frozen.image(index)
        assert image.lost == 0
        if image.data:
            block = open_image(image.data)
            live_bytes += block.live_bytes
            for _ in append_image(store.log, block):
                pass
    end_as(store.log, frozen.state, live_bytes)
    return store


async def change(store: FileStore, seed: int) -> None:
    """Apply one change to the store, chosen by the seed, and sometimes wait for its commit."""
    last = store.state().last_sequence
    match seed % 8:
        case 0 | 1 | 2:
            for number in range(seed % 7):
                store.append(f"s.{number}", b"NATS/1.0\r\n\r\n", bytes(seed % 200), seed)
        case 3:
            await store.delete(1 + seed % (last + 1))
        case 4:
            await store.erase(1 + seed % (last + 1))
        case 5:
            await store.purge(pattern=f"s.{seed % 3}", keep=seed % 2)
        case 6:
            await store.compact(1 + seed % (last + 2))
        case 7:
            if seed % 3:
                store.skip(seed % 5)
            else:
                await store.truncate(last - seed % (last + 1) // 2)
    if seed % 5 == 0:
        await store.synced()


CHANGES = st.lists(st.integers(0, 10_000), max_size=25)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(before=CHANGES, after=CHANGES)
def test_it_is_the_store_of_that_moment(
    kind: str, before: list[int], after: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def run(directory: Path) -> None:
        volume = open_volume(directory)
        store = await open_store(volume, directory / "msgs", KINDS[kind])
        for seed in before:
            await change(store, seed)
        expected = fields(await messages_of(store))
        state = store.state()
        frozen = await store.freeze(directory / "frozen")
        for seed in after:
            await change(store, seed)
        thawed = await thaw(frozen)
        assert fields(await messages_of(thawed)) == expected
        assert thawed.state().last_sequence == state.last_sequence
        await frozen.release()
        await store.close()
        await volume.close()
        assert not (directory / "frozen").exists()

    asyncio.run(run(tmp_path_factory.mktemp("frozen")))


async def test_appends_go_on_while_it_is_taken_and_are_in_it_or_not(tmp_path: Path) -> None:
    """A freeze during appends has all messages up to one commit, and none of a later one."""
    volume = open_volume(tmp_path)
    store = await open_store(volume, tmp_path / "msgs", FileOptions())
    for _ in range(50):
        store.append("s", None, b"before", 1)
    noted: list[int] = []
    freezing = asyncio.create_task(
        store.freeze(tmp_path / "frozen", lambda: noted.append(store.state().last_sequence))
    )
    while not freezing.done():
        store.append("s", None, b"meanwhile", 1)
        await asyncio.sleep(0)
    frozen = await freezing
    thawed = await thaw(frozen)
    assert noted == [frozen.state.last_sequence] == [thawed.state().last_sequence]
    assert thawed.state().msgs == noted[0] >= 50
    assert frozen.state.last_sequence <= store.durable_sequence
    await frozen.release()
    await store.close()
    await volume.close()


async def test_what_it_ends_with_is_in_it(tmp_path: Path) -> None:
    """A freeze that begins during a commit has all messages up to its own commit."""
    volume = open_volume(tmp_path)
    store = await open_store(volume, tmp_path / "msgs", FileOptions())
    for number in range(15):
        store.append("s", None, b"before", 1)
        for _ in range(number):
            await asyncio.sleep(0)
        freezing = asyncio.create_task(store.freeze(tmp_path / f"frozen{number}"))
        for _ in range(50):
            store.append("s", None, b"meanwhile", 1)
            await asyncio.sleep(0)
        frozen = await freezing
        thawed = await thaw(frozen)
        assert thawed.state().msgs == frozen.state.msgs
        await frozen.release()
    await store.close()
    await volume.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_erasure_waits_until_it_is_released(
    kind: str, tmp_path: Path, eventually: Eventually
) -> None:
    volume = open_volume(tmp_path)
    store = await open_store(volume, tmp_path / "msgs", FileOptions(keys=KINDS[kind].keys))
    store.append("s", None, b"planted secret", 1)
    store.append("s", None, b"other", 1)
    frozen = await store.freeze(tmp_path / "frozen")
    await store.erase(1)
    await store.synced()
    assert [m.data for m in await messages_of(await thaw(frozen))] == [b"planted secret", b"other"]
    await frozen.release()
    await store.close()
    data = b"".join(path.read_bytes() for path in (tmp_path / "msgs").iterdir())
    assert b"planted secret" not in data
    await volume.close()


async def test_nothing_is_read_once_it_is_released(tmp_path: Path) -> None:
    volume = open_volume(tmp_path)
    store = await open_store(volume, tmp_path / "msgs", KINDS["plain"])
    store.append("s", None, b"", 1)
    frozen = await store.freeze(tmp_path / "frozen")
    await frozen.release()
    await frozen.release()
    with pytest.raises(StoreClosed):
        await frozen.image(0)
    await store.close()
    await volume.close()


async def test_damage_that_came_later_is_counted(tmp_path: Path) -> None:
    """A frozen store serves no message that was damaged meanwhile, and counts it as lost."""
    volume = open_volume(tmp_path)
    store = await open_store(volume, tmp_path / "msgs", KINDS["plain"])
    for number in range(30):
        store.append("s", None, b"%030d" % number, 1)
    await store.synced()
    (first, *_) = sorted((tmp_path / "msgs").glob("*.blk"))
    data = bytearray(first.read_bytes())
    at = data.index(b"%030d" % 2)
    data[at] ^= 1
    first.write_bytes(data)
    store._log.all_blocks[0].clear_cache()
    frozen = await store.freeze(tmp_path / "frozen")
    images = [await frozen.image(index) for index in range(frozen.num_blocks)]
    assert sum(image.msgs for image in images) == 29
    assert sum(image.lost for image in images) == 1
    await frozen.release()
    await store.close()
    await volume.close()
