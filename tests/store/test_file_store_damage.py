"""Damage anywhere in any file of a closed stream.

No wrong byte is served, no other record is lost, and the damage is reported with file, offset and
sequence (docs/store.md, "Damaged files").
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.store.errors import MessageNotFound
from natsd.store.file_store import FileOptions
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.damage import Wound, truncated, with_flipped_bit, zeroed
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.plain_store import Plain
from tests.store.test_file_store_model import DIRECTORY, end_other_tasks, everything
from tests.store.test_store_model import plain

MESSAGES = {
    sequence: Plain(sequence, "abc"[sequence % 3], None, b"%d" % sequence * 9, sequence, 0)
    for sequence in range(1, 19)
    if sequence not in (4, 11)
}
MARK_BYTES = 104
RECORDS_A_BLOCK = 10  # about as many as one damaged sector may cost


async def stored(options: FileOptions) -> FaultyDisk:
    """Return a disk with a closed stream of three blocks, with removals."""
    machine = Machine(FaultyDisk(), Limits(), options)
    store = await machine.open()
    for sequence in range(1, 19):
        message = b"%d" % sequence * 9
        store.append("abc"[sequence % 3], None, message, sequence)
        await store.synced()
    await store.delete(4)
    await store.delete(11)
    await store.close()
    await end_other_tasks()
    return machine.disk


def read(disk: FaultyDisk, path: Path) -> bytes:
    with contextlib.closing(disk.open(path)) as file:
        return file.pread(file.size(), 0)


def wounds(data: bytes, step: int) -> Iterator[Wound]:
    """Yield one flipped bit for every `step` bytes, zeroed sectors, and cuts."""
    for at in range(0, len(data), step):
        bit = at * 8 + at * 5 % 8  # another bit of the byte each time, over all eight
        yield Wound(f"bit {bit}", with_flipped_bit(data, bit), at, at + 1)
    yield from zeroed(data)
    yield from truncated(data, range(0, len(data), 97))


def wounded(disk: FaultyDisk, path: Path, data: bytes) -> FaultyDisk:
    """Return a copy of the disk on which the file has these bytes."""
    copy = disk.crash(1)
    disk.is_off = False
    with contextlib.closing(copy.open(path)) as file:
        file.truncate(len(data))
        file.pwrite(data, 0)
        file.fsync()
    return copy


async def check(machine: Machine, name: str, wound: Wound) -> None:
    """Assert that no wrong message is served, and that each lost one is reported for the file."""
    store = await machine.open()
    lost = set()
    for sequence in range(1, 19):
        try:
            message = await store.load(sequence)
        except MessageNotFound:
            lost.add(sequence)
        else:
            assert plain(message) == MESSAGES[sequence], (name, wound.what)
    lost -= {4, 11}
    assert store.state().last_sequence == 18, (name, wound.what)
    if lost:
        reported = {s for s in lost for found in store.damage if found.covers(s)}
        assert lost == reported, (name, wound.what, store.damage)
        assert {found.path.name for found in store.damage} == {name}
    is_clear = machine.options.keys.key is None and not machine.options.compress
    if wound.upto - wound.first == 1 and is_clear:
        assert len(lost) <= 1, (name, wound.what)
    assert len(lost) <= RECORDS_A_BLOCK


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("plain", "000001.blk"),
        ("plain", "000003.blk"),
        ("plain", INDEX_NAME),
        ("compressed", "000002.blk"),
        ("encrypted", "000001.blk"),
        ("encrypted", "000003.blk"),
        ("encrypted", INDEX_NAME),
    ],
)
async def test_any_wound(kind: str, name: str) -> None:
    disk = await stored(OPTIONS[kind])
    data = read(disk, DIRECTORY / name)
    for wound in wounds(data, step=2 if kind == "plain" else 9):
        copy = wounded(disk, DIRECTORY / name, wound.data)
        await check(Machine(copy, Limits(), OPTIONS[kind]), name, wound)
        await end_other_tasks()


@pytest.mark.parametrize("name", ["000002.blk", "000003.blk"])
async def test_a_block_of_which_only_marks_are_left_costs_no_other(name: str) -> None:
    disk = await stored(OPTIONS["plain"])
    data = read(disk, DIRECTORY / name).rstrip(b"\0")
    kept = 2 * MARK_BYTES
    copy = wounded(disk, DIRECTORY / name, b"\xa5" * (len(data) - kept) + data[-kept:])
    copy.unlink(DIRECTORY / INDEX_NAME)

    store = await Machine(copy, Limits(), OPTIONS["plain"]).open()

    found = {message.sequence: plain(message) for message in await everything(store)}
    assert found == {sequence: MESSAGES[sequence] for sequence in found}
    assert 1 in found
    assert name == "000003.blk" or 18 in found
    assert len(MESSAGES) - len(found) <= RECORDS_A_BLOCK
    assert not [s for s in found for one in store.damage if one.covers(s)]
    await end_other_tasks()
