"""`natsd store check` finds all damage; after `natsd store repair` a volume is clean.

Damage is reported with file, offset and sequence. `natsd store repair DIR` sets the damaged bytes
aside and reports what it did (docs/store.md, "Damaged files").
"""

import asyncio
import os
import shutil
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest

from natsd.store.block.stored_blocks import block_id_of
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import ConsumerOptions, ConsumerState
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.crypto.keys import Cipher, OperatorKeys, open_data_key
from natsd.store.disk.disk import DirectoryLocked, make_directories
from natsd.store.disk.doubled_file import read_file
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of
from natsd.store.errors import MessageNotFound
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.maintenance.check import Finding, Report, check_volume, stored_blocks
from natsd.store.maintenance.repair import Repaired, repair_volume
from natsd.store.store import Limits
from tests.store.damage import flipped_bits, truncated
from tests.store.faulty_disk import FaultyDisk

DISK = RealDisk()
STREAM = "A/streams/ORDERS/msgs"
CONSUMER = "A/streams/ORDERS/obs/worker"
CLEAR = OperatorKeys()
KEY = OperatorKeys(b"operator's key", cipher=Cipher.AES_256_GCM)
MESSAGES = 300
LAST_ENVELOPE_BYTES = 48 + 104 + 16  # header, a mark, tag


@dataclass
class Made:
    """A closed volume, and the messages and the consumer's state in it."""

    root: Path
    options: FileOptions
    messages: dict[int, bytes]
    consumer: ConsumerState

    @property
    def operator(self) -> OperatorKeys:
        return self.options.keys

    def check(self) -> Report:
        return check_volume(DISK, self.root, self.operator, os.urandom)

    def repair(self) -> Repaired:
        return repair_volume(DISK, self.root, self.operator, os.urandom)


def options_for(operator: OperatorKeys, *, compress: bool = False) -> FileOptions:
    return FileOptions(8000, compress=compress, keys=operator, context=STREAM)


async def make_volume(root: Path, options: FileOptions) -> Made:
    """Make a volume with a stream of several blocks and a consumer, and close it."""
    volume = Volume.open(DISK, root, os.urandom, loop=asyncio.get_running_loop())
    store = await FileStore.open(volume, root / STREAM, Limits(), os.urandom, options)
    messages = {}
    for number in range(1, MESSAGES + 1):
        data = b"%d " % number * 40
        assert store.append(f"orders.{number % 7}", None, data, number) == number
        messages[number] = data
        if number % 20 == 0:
            await store.synced()
    for number in (5, 150, 151):
        await store.delete(number)
        del messages[number]
    await store.synced()
    consumer = await ConsumerStore.create(volume, root / CONSUMER, ConsumerOptions(), os.urandom)
    for number in range(1, 20):
        consumer.update_delivered(number, number, 1, number)
        if number % 3:
            consumer.update_acks(number, number)
        await consumer.synced()
    state = consumer.state()
    await consumer.close()
    await store.close()
    await volume.close()
    return Made(root, options, messages, state)


async def messages_of(made: Made) -> tuple[dict[int, bytes], ConsumerState, int]:
    """Return the messages, the consumer's state and the last sequence that a server finds."""
    volume = Volume.open(DISK, made.root, os.urandom, loop=asyncio.get_running_loop())
    path = made.root / STREAM
    store = await FileStore.open(volume, path, Limits(), os.urandom, made.options)
    found = {}
    for number in range(1, MESSAGES + 1):
        try:
            found[number] = (await store.load(number)).data
        except MessageNotFound:
            continue
    last = store.state().last_sequence
    consumer = await ConsumerStore.open(volume, made.root / CONSUMER, ConsumerOptions(), os.urandom)
    state = consumer.state()
    await consumer.close()
    await store.close()
    await volume.close()
    return found, state, last


def snapshot(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def block_paths(made: Made) -> list[Path]:
    return sorted((made.root / STREAM).glob("*.blk"))


forms = pytest.mark.parametrize(
    "options",
    [options_for(CLEAR), options_for(CLEAR, compress=True), options_for(KEY)],
    ids=["clear", "compressed", "encrypted"],
)


@forms
async def test_a_whole_volume_is_clean_and_stays_as_it_is(
    tmp_path: Path, options: FileOptions
) -> None:
    made = await make_volume(tmp_path, options)
    before = snapshot(tmp_path)
    report = made.check()
    assert report.is_clean, report
    assert (report.streams, report.consumers) == (1, 1)
    assert (report.blocks, report.messages) == (len(block_paths(made)), len(made.messages))
    assert made.repair() == Repaired()
    assert snapshot(tmp_path).keys() == before.keys()
    assert all(
        before[path] == data for path, data in snapshot(tmp_path).items() if path.suffix != ".lock"
    )


@forms
async def test_damaged_blocks_are_found_set_aside_and_written_anew(
    tmp_path: Path, options: FileOptions
) -> None:
    made = await make_volume(tmp_path, options)
    damaged = block_paths(made)[1::3]
    for path in damaged:
        flip(path, 2000 % len(path.read_bytes()))
    before = snapshot(tmp_path)
    report = made.check()
    assert snapshot(tmp_path) == before
    assert {Path(finding.file) for finding in report.findings} == set(damaged)
    lost = set()
    for finding in report.findings:
        assert finding.offset <= 2000 < finding.offset + finding.length or options.compress
        lost.update(range(finding.first_sequence, finding.last_sequence + 1))
    repaired = made.repair()
    assert repaired.unrepaired == []
    assert all(str(path) in "\n".join(repaired.done) for path in damaged)
    log = (tmp_path / STREAM / "damaged" / "repaired.log").read_text().splitlines()
    assert log == repaired.done
    assert made.check().is_clean
    for path, data in snapshot(tmp_path).items():
        if path.suffix == ".blk" and path not in damaged:
            assert data == before[path]
    found, state, last = await messages_of(made)
    assert found == {n: data for n, data in made.messages.items() if n not in lost}
    assert (state, last) == (made.consumer, MESSAGES)
    assert made.check().is_clean


async def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    made = await make_volume(tmp_path, options_for(CLEAR))
    index = tmp_path / STREAM / "index.db"
    if not index.exists():
        pytest.skip("the store has not written one")
    flip(index, 100)
    (finding,) = made.check().findings
    assert finding.file == str(index)
    made.repair()
    assert not index.exists()
    assert made.check().is_clean
    assert (await messages_of(made))[0] == made.messages


@pytest.mark.parametrize("name", ["000002.log", "state.db", "state.db.copy"])
async def test_a_damaged_consumer_is_written_anew(tmp_path: Path, name: str) -> None:
    made = await make_volume(tmp_path, options_for(CLEAR))
    path = tmp_path / CONSUMER / name
    flip(path, 20)
    (finding,) = made.check().findings
    assert finding.file == str(path)
    assert finding.offset <= 20 < finding.offset + finding.length
    repaired = made.repair()
    aside = tmp_path / CONSUMER / "damaged" / f"{name}.{finding.offset}"
    assert aside.stat().st_size == finding.length
    assert any(str(aside) in line for line in repaired.done)
    assert made.check().is_clean
    assert (await messages_of(made))[1] == made.consumer


async def test_a_consumer_of_which_nothing_is_left_begins_anew(tmp_path: Path) -> None:
    made = await make_volume(tmp_path, options_for(CLEAR))
    path = tmp_path / CONSUMER / "state.db"
    for each in (path, copy_of(path)):
        each.write_bytes(bytes(each.stat().st_size))
    (finding,) = made.check().findings
    assert "no copy of the state verifies" in finding.what
    made.repair()
    assert made.check().is_clean
    names = sorted(os.listdir(tmp_path / CONSUMER / "damaged"))
    assert names == ["000002.log", "repaired.log", "state.db", "state.db.copy"]


async def test_a_damaged_key_is_written_anew_and_a_wrong_one_told(tmp_path: Path) -> None:
    made = await make_volume(tmp_path, options_for(KEY))
    path = tmp_path / STREAM / "key.db"
    flip(path, 4200)
    (finding,) = made.check().findings
    assert (finding.file, finding.offset) == (str(path), 4096)
    made.repair()
    assert made.check().is_clean
    for each in (path, copy_of(path)):
        each.unlink()
        (finding,) = made.check().findings
        assert (finding.file, finding.what) == (str(each), "is missing")
        assert str(each) in made.repair().done[0]
        assert made.check().is_clean
    for wrong in (CLEAR, OperatorKeys(b"another")):
        report = check_volume(DISK, tmp_path, wrong, os.urandom)
        (line,) = report.unchecked
        assert str(path) in line
        assert not report.is_clean
    for each in (path, copy_of(path)):
        each.write_bytes(bytes(8192))
    assert made.repair().unrepaired == [f"{path} is damaged: no copy of the key verifies"]


async def test_a_block_of_which_nothing_is_left(tmp_path: Path) -> None:
    made = await make_volume(tmp_path, options_for(CLEAR))
    path = block_paths(made)[2]
    path.write_bytes(bytes(path.stat().st_size))
    report = made.check()
    assert [Path(finding.file) for finding in report.findings] == [path]
    made.repair()
    assert made.check().is_clean
    found, _, last = await messages_of(made)
    assert found.items() < made.messages.items()
    assert last == MESSAGES


def disk_of(files: dict[Path, bytes]) -> FaultyDisk:
    disk = FaultyDisk()
    for path, data in files.items():
        make_directories(disk, path.parent)
        disk.open(path, create=True).pwrite(data, 0)
    return disk


def stored_messages(made: Made, disk: FaultyDisk) -> dict[int, bytes]:
    """Return the data of each record that verifies in any block, removed messages included."""
    directory = made.root / STREAM
    opened = open_data_key(disk, directory, STREAM, made.operator, os.urandom)
    data_key = opened.data_key if opened else None
    blocks = stored_blocks(disk, made.root, directory, data_key, os.urandom)
    found = {}
    for name in disk.listdir(directory):
        block_id = block_id_of(name)
        if block_id is not None:
            scan = blocks.scan(read_file(disk, directory / name), block_id, proven=-1).scan
            for sequence in scan.sequences():
                message = scan.read(sequence)
                if message is not None:
                    found[sequence] = message.data
    return found


@forms
async def test_flipped_bits_anywhere_are_found_and_cost_what_is_told(
    tmp_path: Path, options: FileOptions
) -> None:
    """A flipped bit serves no wrong byte, loses no other record, and is reported."""
    made = await make_volume(tmp_path, replace(options, block_bytes_max=12_000))
    files = {path: data for path, data in snapshot(tmp_path).items() if path.name != "natsd.lock"}
    before = stored_messages(made, disk_of(files))
    for number, path in enumerate(sorted(files)):
        for wound in islice(flipped_bits(files[path]), number, None, 4001):
            disk = disk_of(files | {path: wound.data})
            report = check_volume(disk, tmp_path, made.operator, os.urandom)
            findings = [f for f in report.findings if f.file == str(path)]
            assert findings == report.findings
            if not findings:  # the bit is in the end of the file, which may be torn
                assert wound.first > len(files[path].rstrip(b"\0")) - LAST_ENVELOPE_BYTES
            told = [f for f in findings if f.offset <= wound.first < f.offset + max(f.length, 1)]
            assert told or not findings or path.name == "index.db"
            repaired = repair_volume(disk, tmp_path, made.operator, os.urandom)
            assert repaired.unrepaired == []
            assert check_volume(disk, tmp_path, made.operator, os.urandom).is_clean
            after = stored_messages(made, disk)
            assert after.items() <= before.items()
            lost = before.keys() - after.keys()
            assert all(any(covers(f, sequence) for f in findings) for sequence in lost)
            assert len(lost) <= 1 or options != options_for(CLEAR)


@forms
async def test_a_cut_costs_no_message_that_is_not_told(
    tmp_path: Path, options: FileOptions
) -> None:
    made = await make_volume(tmp_path, options)
    files = {path: data for path, data in snapshot(tmp_path).items() if path.name != "natsd.lock"}
    path = block_paths(made)[1]
    for wound in truncated(files[path], range(64, len(files[path]), 131)):
        disk = disk_of(files | {path: wound.data})
        report = check_volume(disk, tmp_path, made.operator, os.urandom)
        assert report.findings or report.messages == len(made.messages), wound.what


def covers(finding: Finding, sequence: int) -> bool:
    return finding.first_sequence <= sequence <= finding.last_sequence


async def test_neither_touches_a_volume_in_use(tmp_path: Path) -> None:
    made = await make_volume(tmp_path, options_for(CLEAR))
    volume = Volume.open(DISK, tmp_path, os.urandom, loop=asyncio.get_running_loop())
    before = snapshot(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"{os.getpid()}"):
        made.check()
    with pytest.raises(DirectoryLocked):
        made.repair()
    assert snapshot(tmp_path) == before
    await volume.close()


async def test_a_check_after_a_crash_reads_the_journal_as_a_server_would(tmp_path: Path) -> None:
    """A check of a volume after a kill finds all messages, also those in the journal.

    The files are copied while the volume is open, which is how kill -9 leaves them.
    """
    root, copy = tmp_path / "volume", tmp_path / "copy"
    volume = Volume.open(DISK, root, os.urandom, loop=asyncio.get_running_loop())
    store = await FileStore.open(volume, root / STREAM, Limits(), os.urandom)
    for number in range(1, 30):
        store.append("orders", None, b"data", number)
        await store.synced()
    shutil.copytree(root, copy)
    await store.close()
    await volume.close()
    report = check_volume(DISK, copy, CLEAR, os.urandom)
    assert (report.findings, report.messages) == ([], 29)
