"""Pages of files that cannot be read (EIO) cost the messages in them and nothing else.

That holds at an open and while the stream is served, and each loss is reported once (docs/store.md,
"Damaged files").
"""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.disk.holes import HOLES_MAX, PAGE_BYTES, read_all
from natsd.store.errors import MessageDamaged, MessageNotFound, StoreUnavailable
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import Machine
from tests.store.plain_store import Plain
from tests.store.test_file_store_model import DIRECTORY, KEYS, end_other_tasks
from tests.store.test_store_model import plain

BLOCK_BYTES = 20_000
OPTIONS = {
    "plain": FileOptions(block_bytes_max=BLOCK_BYTES),
    "compressed": FileOptions(block_bytes_max=BLOCK_BYTES, compress=True),
    "encrypted": FileOptions(block_bytes_max=BLOCK_BYTES, keys=KEYS, context="S"),
}
MESSAGE_BYTES = 900
COUNT = 60


def message(sequence: int) -> Plain:
    # Random bytes do not compress, so that a compressed block has several pages, too.
    data = Machine(FaultyDisk(sequence), Limits(), FileOptions()).disk.chance.randbytes
    return Plain(sequence, "abc"[sequence % 3], None, data(MESSAGE_BYTES), sequence, 0)


MESSAGES = {sequence: message(sequence) for sequence in range(1, COUNT + 1)}


async def stored(machine: Machine, *, is_closed: bool) -> FaultyDisk:
    """Return a disk with a stream of more than three blocks, which was closed or killed."""
    store = await machine.open()
    for each in MESSAGES.values():
        store.append(each.subject, None, each.data, each.time_ns)
        await store.synced()
    if is_closed:
        await store.close()
    await end_other_tasks()
    return machine.disk


def again(disk: FaultyDisk) -> FaultyDisk:
    """Return a copy of the disk, as the next process finds it."""
    copy = disk.kill()
    disk.is_off = False
    return copy


def spoil_pages(disk: FaultyDisk, path: Path, *pages: int) -> None:
    for page in pages:
        disk.spoil(path, offset=page * PAGE_BYTES, length=PAGE_BYTES)


def pages_of(disk: FaultyDisk, path: Path) -> range:
    return range(-(-disk.open(path).size() // PAGE_BYTES))


async def load_all(store: FileStore) -> tuple[dict[int, Plain], set[int]]:
    """Return the readable messages and the sequences of the damaged ones."""
    found, damaged = {}, set()
    for sequence in range(1, store.state().last_sequence + 1):
        try:
            found[sequence] = plain(await store.load(sequence))
        except MessageDamaged:
            damaged.add(sequence)
        except MessageNotFound:  # reported by an earlier open; the block's header is gone since
            continue
    return found, damaged


def bytes_in_a_page(kind: str) -> int:
    """Return the number of messages that one page may cost.

    An envelope of a compressed block holds 64 KiB.
    """
    whole_block = BLOCK_BYTES // MESSAGE_BYTES + 2
    return whole_block if kind == "compressed" else PAGE_BYTES // MESSAGE_BYTES + 2


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_any_page_of_any_file_costs_its_messages_only(kind: str, is_closed: bool) -> None:
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    disk = await stored(machine, is_closed=is_closed)
    for name in disk.listdir(DIRECTORY):
        for page in pages_of(disk, DIRECTORY / name):
            machine.disk = again(disk)
            spoil_pages(machine.disk, DIRECTORY / name, page)
            where = (name, page)

            store = await machine.open()
            found, damaged = await load_all(store)

            assert found == {sequence: MESSAGES[sequence] for sequence in found}, where
            lost = set(MESSAGES) - set(found)
            assert len(lost) <= bytes_in_a_page(kind), where
            told = {s for s in lost if any(each.covers(s) for each in store.damage)}
            assert lost == told, (where, store.damage)
            assert damaged <= lost, where
            assert {each.path.name for each in store.damage} <= {name}, where
            if not name.endswith(".blk"):
                assert not lost, where
            await goes_on(machine, store, found, where)


async def goes_on(machine: Machine, store: FileStore, before: dict[int, Plain], where: Any) -> None:
    """Assert that a message appended behind a hole is kept, as are all messages before it."""
    store.append("new", None, b"behind it", 99)
    await store.synced()
    last = store.state().last_sequence
    await store.close()
    await end_other_tasks()
    machine.disk = again(machine.disk)
    store = await machine.open()
    found, _ = await load_all(store)
    assert found.pop(last).data == b"behind it", where
    assert found == before, where
    await store.close()
    await end_other_tasks()


async def test_a_page_lost_while_the_stream_is_served(caplog: pytest.LogCaptureFixture) -> None:
    """A loss while blocks are read again and again is reported once, and the rest is served."""
    machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
    await stored(machine, is_closed=True)
    machine.disk = again(machine.disk)
    store = await machine.open()
    spoil_pages(machine.disk, DIRECTORY / "000002.blk", 1)

    for _ in range(3):
        found, damaged = await load_all(store)
        assert set(found) | damaged == set(MESSAGES)
        assert 0 < len(damaged) <= bytes_in_a_page("plain")
        store._volume.cache.resize(0)  # drop all caches
        store._volume.arrays.resize(0)
        store._volume.cache.resize(1 << 20)
        store._volume.arrays.resize(1 << 20)

    told = [record.message for record in caplog.records if "damaged" in record.message]
    assert told == [str(damage) for damage in store.damage]
    # One line for the record that the page cuts in two, and one for the other records.
    assert len(told) == len(set(told)) == 2
    await store.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
async def test_a_read_that_lacks_something_is_tried_again(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A read without descriptors or memory is tried again, with pauses, and logged once.

    No message counts as damaged.
    """
    caplog.set_level(logging.INFO)
    machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
    await stored(machine, is_closed=True)
    machine.disk = again(machine.disk)
    store = await machine.open()
    machine.disk.fail("open" if number == errno.EMFILE else "pread", number, path=".blk", times=99)

    loop = asyncio.get_running_loop()
    end, failures = loop.time() + 0.3, 0
    while loop.time() < end:
        with pytest.raises(StoreUnavailable):
            await store.load(1)
        failures += 1

    assert failures < 10
    assert [r.levelname for r in caplog.records if "cannot be read" in r.message] == ["ERROR"]
    machine.disk.heal()
    found, damaged = await load_all(store)
    assert (found, damaged) == (MESSAGES, set())
    assert sum("can be read again" in record.message for record in caplog.records) == 1
    await store.close()


def test_a_disk_that_gives_nothing_back_is_not_asked_for_every_page() -> None:
    disk = FaultyDisk()
    file = disk.open(Path("/file"), create=True)
    file.pwrite(bytes(PAGE_BYTES * 4 * HOLES_MAX), 0)
    disk.spoil(Path("/file"), length=PAGE_BYTES * 4 * HOLES_MAX)
    before = len(disk.calls)

    with pytest.raises(OSError, match="Input/output error"):
        read_all(file)

    assert disk.calls[before:].count("pread") == HOLES_MAX + 2


def test_what_is_read_around_a_hole() -> None:
    disk = FaultyDisk()
    file = disk.open(Path("/file"), create=True)
    whole = bytes(range(1, 251)) * 50
    file.pwrite(whole, 0)
    disk.spoil(Path("/file"), offset=PAGE_BYTES + 5)

    found = read_all(file)

    hole = slice(PAGE_BYTES, 2 * PAGE_BYTES)
    assert found.data == whole[: hole.start] + bytes(PAGE_BYTES) + whole[hole.stop :]
    assert (found.holes, found.holes_end) == ((PAGE_BYTES,), 2 * PAGE_BYTES)


CONSUMER = Path("/store/consumer")
CONSUMER_OPTIONS = ConsumerOptions(ack_policy=AckPolicyCode.EXPLICIT)


async def open_consumer(disk: FaultyDisk, create: bool = False) -> tuple[Volume, ConsumerStore]:
    loop = asyncio.get_running_loop()
    volume = Volume.open(disk, Path("/store"), disk.chance.randbytes, loop=loop)
    open_it = ConsumerStore.create if create else ConsumerStore.open
    store = await open_it(volume, CONSUMER, CONSUMER_OPTIONS, disk.chance.randbytes)
    return volume, store


async def test_any_page_of_a_consumers_files() -> None:
    """A lost page of a consumer's files acknowledges nothing that was not acknowledged.

    A checkpoint has a second copy. The log's entries in other pages count, and the loss is
    reported.
    """
    disk = FaultyDisk()
    volume, store = await open_consumer(disk, create=True)
    for sequence in range(1, 301):
        store.update_delivered(sequence, sequence, 1, 1_000_000 * sequence)
        if sequence % 3:
            store.update_acks(sequence, sequence)
        if sequence % 20 == 0:
            await store.synced()
    await store.synced()
    whole = store.state()
    await volume.close()
    await end_other_tasks()

    for name in disk.listdir(CONSUMER):
        for page in pages_of(disk, CONSUMER / name):
            copy = again(disk)
            spoil_pages(copy, CONSUMER / name, page)
            volume, store = await open_consumer(copy)
            state = store.state()
            if state != whole:
                assert any(not damage.harmless for damage in store.recovery.damage), (name, page)
            assert name.endswith(".log") or state == whole
            assert set(whole.pending) - set(state.pending) <= {
                s for s in whole.pending if s > state.delivered.stream
            }, (name, page)
            store.update_delivered(500, 500, 1, 1)
            await store.synced()
            await store.close()
            await volume.close()
            await end_other_tasks()


async def test_a_journal_that_cannot_be_read_is_kept_and_told() -> None:
    disk = FaultyDisk()
    volume, store = await open_consumer(disk, create=True)
    stores = [
        await ConsumerStore.create(
            volume, Path(f"/store/c{number}"), CONSUMER_OPTIONS, disk.chance.randbytes
        )
        for number in range(9)
    ]
    for each in stores:
        each.update_delivered(1, 1, 1, 1)
    await asyncio.gather(*(each.synced() for each in stores))
    copy = again(disk)
    await end_other_tasks()
    journal = next(name for name in copy.listdir(Path("/store")) if name.startswith("journal"))
    spoil_pages(copy, Path("/store") / journal, 0)

    volume, store = await open_consumer(copy)

    assert next(damage.what for damage in volume.replayed.damage) == "cannot be read"
    assert any(name.startswith(f"{journal}.") for name in copy.listdir(Path("/store")))
    await store.close()
    await volume.close()
