"""Block files that are whole but misplaced: they are not served, and each is reported.

A file may be missing, renamed, an older copy of itself, another block of the stream, or of another
stream.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from natsd.store.block.stored_blocks import block_name
from natsd.store.disk.doubled_file import read_file
from natsd.store.errors import MessageDamaged
from natsd.store.file_store import FileStore
from natsd.store.maintenance.check import check_unlocked
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.plain_store import Plain
from tests.store.test_file_store_model import DIRECTORY, end_other_tasks, everything
from tests.store.test_store_model import plain

ENDS = ["closed", "killed", "killed, without index.db"]


@dataclass
class Made:
    """A stream's files, older versions of them, and all of its messages."""

    machine: Machine
    files: dict[str, bytes]
    older: dict[str, bytes]
    messages: dict[int, Plain]

    def disk(self, change: Callable[[dict[str, bytes]], object]) -> FaultyDisk:
        """Return a disk with these files after `change` was applied to them."""
        files = dict(self.files)
        change(files)
        disk = self.machine.disk.kill()
        for name in disk.listdir(DIRECTORY):
            disk.unlink(DIRECTORY / name)
        for name, data in files.items():
            disk.open(DIRECTORY / name, create=True).pwrite(data, 0)
        return disk


def files_of(disk: FaultyDisk) -> dict[str, bytes]:
    return {name: read_file(disk, DIRECTORY / name) for name in disk.listdir(DIRECTORY)}


async def fill(store: FileStore, first: int, upto: int, word: bytes) -> None:
    for number in range(first, upto):
        store.append(f"s.{number % 3}", None, word * 10, number)
        await store.synced()


async def make(kind: str, end: str, word: bytes, seed: int) -> Made:
    """Make a stream that ended as `end` says, and keep an older copy of its files."""
    machine = Machine(FaultyDisk(seed), Limits(), OPTIONS[kind])
    machine.chance.seed(seed)
    store = await machine.open()
    await fill(store, 1, 6, word)
    await store._jobs.finished()
    older = files_of(machine.disk)
    store._jobs.is_closing = False
    await fill(store, 6, 25, word)
    messages = {m.sequence: plain(m) for m in await everything(store)}
    if end == "closed":
        await store.close()
    else:
        await store._jobs.finished()
    files = files_of(machine.disk)
    if end.endswith(INDEX_NAME):
        del files[INDEX_NAME]
    await end_other_tasks()
    return Made(machine, files, older, messages)


Files = dict[str, bytes]


def put(name: str, data: bytes, files: Files) -> None:
    files[name] = data


def rename(name: str, into: str, files: Files) -> None:
    files[into] = files.pop(name)


def remove(name: str, files: Files) -> None:
    del files[name]


def wounds(made: Made, other: Made) -> dict[str, Callable[[Files], object]]:
    """Return changes of a stream's files by name; each misplaces one block file."""
    names = sorted(name for name in made.files if name.endswith(".blk"))
    assert len(names) >= 4
    found: dict[str, Callable[[Files], object]] = {}
    for number, name in enumerate(names):
        neighbour = names[number - 1]
        found[f"{name} missing"] = partial(remove, name)
        found[f"{name} is {neighbour}"] = partial(put, name, made.files[neighbour])
        found[f"{name} renamed"] = partial(rename, name, block_name(90))
        if name in other.files:
            found[f"{name} of another stream"] = partial(put, name, other.files[name])
        if name in made.older and made.older[name] != made.files[name]:
            found[f"{name} older"] = partial(put, name, made.older[name])
    return found


def is_hidden(name: str, end: str, newest: str) -> bool:
    """Return whether no file shows that the newest block has grown since the last index.db."""
    return end != "closed" and name == f"{newest} older"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", list(OPTIONS))
def test_misplaced_blocks_are_reported_and_not_served(kind: str, end: str) -> None:
    async def scenario() -> int:
        made = await make(kind, end, b"right", 1)
        other = await make(kind, "closed", b"wrong", 2)
        newest = max(name for name in made.files if name.endswith(".blk"))
        count = 0
        for name, change in wounds(made, other).items():
            count += 1
            may_hide = is_hidden(name, end, newest)
            look(made, made.disk(change), name, may_hide=may_hide)
            await check(made, made.disk(change), name, may_hide=may_hide)
        return count

    assert asyncio.run(scenario()) > 12


def look(made: Made, disk: FaultyDisk, name: str, *, may_hide: bool) -> None:
    """Assert that `natsd store check` reports a finding."""
    if made.machine.options.keys.key is None:
        operator, random_bytes = made.machine.options.keys, made.machine.chance.randbytes
        report = check_unlocked(disk, Path("/store"), operator, random_bytes)
        assert may_hide or report.findings, name


async def check(made: Made, disk: FaultyDisk, name: str, *, may_hide: bool) -> None:
    """Assert that no wrong message is served, and that each missing one is reported.

    With `may_hide`, missing messages need not be reported.
    """
    machine = Machine(disk, made.machine.limits, made.machine.options)
    store = await machine.open()
    found = {m.sequence: plain(m) for m in await everything(store)}
    for sequence in made.messages.keys() - found.keys():  # the messages that are not served
        assert may_hide or any(each.covers(sequence) for each in store.damage), (name, sequence)
    for sequence, message in found.items():
        assert message == made.messages[sequence], (name, sequence)
    assert may_hide or store.damage, name
    await end_other_tasks()


GAP = 100_000  # sequences without a message, too many for one block to span


async def until_gone(disk: FaultyDisk, path: Path) -> None:
    for _ in range(1000):
        if not disk.exists(path):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{path} is still there")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_a_dropped_block_and_the_gap_in_front_of_it_are_not_lost(kind: str, end: str) -> None:
    """A dropped block and the gap before it are not reported as lost.

    A mirror whose origin lost sequences has such a gap. Only the block's header shows it, and
    compaction drops the block.
    """
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    store = await machine.open()
    word = b"a word that is longer than what commits cost"
    await fill(store, 1, 4, word)
    store.append("s.gap", None, word * 10, 4, sequence=4 + GAP)
    await store.synced()
    behind_gap = store._log.all_blocks[-1]
    assert behind_gap.base_sequence == 4 + GAP, "the gap is in front of the block"
    path = store._blocks[behind_gap].path
    await fill(store, 5, 9, word)
    kept = [1, 2, 3, *range(behind_gap.last_sequence + 1, store.log.last_sequence + 1)]
    assert store._log.active is not behind_gap
    for sequence in range(4 + GAP, behind_gap.last_sequence + 1):
        await store.delete(sequence)
    await store.synced()
    await until_gone(machine.disk, path)
    if end == "closed":
        await store.close()
    await end_other_tasks()
    machine.disk = machine.disk.kill()
    if end.endswith(INDEX_NAME):
        machine.disk.unlink(DIRECTORY / INDEX_NAME)
    opened = await machine.open()
    assert opened.damage == []
    assert [message.sequence for message in await everything(opened)] == kept
    await end_other_tasks()


async def newest_lost(machine: Machine, end: str) -> tuple[int, int]:
    """Remove a stream's newest block; return the last sequence before it, and in it."""
    store = await machine.open()
    await fill(store, 1, 16, b"kept or lost")
    newest, last = store._log.active, store.log.last_sequence
    path, before = store._blocks[newest].path, newest.base_sequence - 1
    if end == "closed":
        await store.close()
    else:
        await store._jobs.finished()
    await end_other_tasks()
    machine.disk = machine.disk.kill()
    machine.disk.unlink(path)
    if end.endswith(INDEX_NAME):
        machine.disk.unlink(DIRECTORY / INDEX_NAME)
    return before, last


async def opened_again(machine: Machine, *, scan: bool) -> FileStore:
    machine.disk = machine.disk.kill()
    if scan and machine.disk.exists(DIRECTORY / INDEX_NAME):
        machine.disk.unlink(DIRECTORY / INDEX_NAME)
    return await machine.open()


async def numbers(store: FileStore) -> list[int]:
    return [message.sequence for message in await everything(store)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_a_newest_block_that_is_lost_is_told_and_its_sequences_stay_unused(
    kind: str, end: str
) -> None:
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    before, last = await newest_lost(machine, end)
    kept = list(range(1, before + 1))
    for round_number in range(4):
        store = await opened_again(machine, scan=round_number == 2)
        assert await numbers(store) == kept
        assert [each.first_sequence for each in store.damage] == [before + 1]
        assert store.damage[0].covers(last)
        assert store.log.last_sequence >= last
        for _ in range(3):
            kept.append(store.append("s.0", None, b"after", last))
        await store.synced()
        assert kept[-1] - kept[before] < 3 * (round_number + 1), "no more is skipped"
        await end_other_tasks()


async def test_what_a_mirror_lost_is_appended_again() -> None:
    machine = Machine(FaultyDisk(), Limits(), replace(OPTIONS["plain"], is_mirror=True))
    before, last = await newest_lost(machine, "killed, without index.db")
    store = await opened_again(machine, scan=True)
    assert store.damage
    assert store.log.last_sequence == before
    for sequence in range(before + 1, last + 1):
        store.append("s.0", None, b"again", sequence, sequence=sequence)
    await store.synced()
    await end_other_tasks()
    store = await opened_again(machine, scan=True)
    assert store.damage == []
    assert await numbers(store) == list(range(1, last + 1))
    await end_other_tasks()


@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_a_stream_that_is_cut_between_two_blocks_has_lost_none(kind: str) -> None:
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    store = await machine.open()
    await fill(store, 1, 16, b"a word")
    await store._jobs.finished()
    store._jobs.is_closing = False
    second = store._log.all_blocks[2].base_sequence
    await store.truncate(second - 1)
    await end_other_tasks()
    for scan in (False, True):
        store = await opened_again(machine, scan=scan)
        assert store.damage == []
        assert await numbers(store) == list(range(1, second))
        assert store.log.last_sequence == second - 1
        await end_other_tasks()


@pytest.mark.parametrize("wound", ["another", "shorter"])
@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_a_file_that_is_exchanged_while_it_is_served_costs_its_messages(
    kind: str, wound: str
) -> None:
    machine = Machine(FaultyDisk(), Limits(), OPTIONS[kind])
    store = await machine.open()
    await fill(store, 1, 16, b"a word")
    await store._jobs.finished()
    first, second = store._log.all_blocks[:2]
    for block in store._log.all_blocks[:-1]:
        block.clear_cache()
        block.drop_arrays()
    data = read_file(machine.disk, store._blocks[first if wound == "another" else second].path)
    with contextlib.closing(machine.disk.open(store._blocks[second].path)) as file:
        file.truncate(0)
        file.pwrite(data if wound == "another" else data[:-230], 0)
    lost = []
    for sequence in range(1, 16):
        try:
            assert (await store.load(sequence)).sequence == sequence
        except MessageDamaged:
            lost.append(sequence)
    assert set(lost) <= set(range(second.base_sequence, second.last_sequence + 1))
    assert wound == "shorter" or len(lost) == second.last_sequence - second.base_sequence + 1
    assert not lost or store.damage
    await end_other_tasks()


@pytest.mark.parametrize("end", ENDS[:2])
@pytest.mark.parametrize("kind", list(OPTIONS))
async def test_an_only_block_that_is_lost_is_told_and_its_sequences_stay_unused(
    kind: str, end: str
) -> None:
    """The loss of a new stream's only block is reported, and its sequences are not used again.

    The stream's index.db says only that the stream had blocks.
    """
    machine = Machine(FaultyDisk(), Limits(), replace(OPTIONS[kind], block_bytes_max=1 << 16))
    store = await machine.open()
    await fill(store, 1, 10, b"lost")
    await (store.close() if end == "closed" else store._jobs.finished())
    await end_other_tasks()
    machine.disk.unlink(DIRECTORY / block_name(1))
    after: list[int] = []
    for _ in range(3):
        store = await opened_again(machine, scan=False)
        assert [each.covers(9) for each in store.damage] == [True]
        assert await numbers(store) == after
        after.append(store.append("s.0", None, b"after", 10))
        assert after[-1] > 9
        await store.synced()
        await store._jobs.finished()
        await end_other_tasks()


async def test_a_blank_index_says_nothing() -> None:
    """An empty or blank index.db is no damage: a power cut may take what was written to it."""
    machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
    store = await machine.open()
    await end_other_tasks()
    for blank in (b"", bytes(500)):
        machine.disk = machine.disk.kill()
        machine.disk.open(DIRECTORY / INDEX_NAME).pwrite(blank, 0)
        store = await machine.open()
        assert store.damage == []
        assert store.log.last_sequence == 0
        await end_other_tasks()
    report = check_unlocked(machine.disk, Path("/store"), machine.options.keys, bytes)
    assert report.findings == []
