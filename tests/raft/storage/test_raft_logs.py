"""RaftLogs against a model: crashes at every call, torn writes, flipped bits, full disks."""

import asyncio
import contextlib
import errno
import os
import random
import struct
from pathlib import Path

import pytest

from natsd.raft.entry import Entry, EntryKind, HardState, Health, Membership, Snapshot
from natsd.raft.storage import log_files
from natsd.raft.storage.errors import LogsFailedError, LogsUnreadableError
from natsd.raft.storage.raft_logs import GroupWrite, RaftLogs
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.wal.format import HEADER_BYTES, SECTOR_BYTES, encode_header
from tests.raft.storage.logs import (
    ROOT,
    SEGMENT_BYTES,
    entry,
    files_of,
    open_logs,
    put,
    with_and_without_a_key,
    write,
)
from tests.raft.storage.model import History
from tests.store.faulty_disk import FaultyDisk, PowerLoss

TORTURE = int(os.environ.get("NATSD_TORTURE", "1"))


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    disk = RealDisk()
    logs = RaftLogs.open(disk, tmp_path / "raft", os.urandom)
    assert logs.take_recovered() == {}
    snapshot = Snapshot(1, 1, Membership(frozenset({1, 2}), frozenset({3})), b"state")
    put(logs, "g", snapshot)
    member = Entry(3, 2, EntryKind.MEMBERSHIP, b"m")
    write(logs, GroupWrite("g", HardState(2, 1), snapshot, entries=[entry(2), member]))
    write(logs, GroupWrite("h", HardState(7, 0)), GroupWrite("g", entries=[entry(4, 2)]))
    logs.close()
    logs = RaftLogs.open(disk, tmp_path / "raft", os.urandom)
    found = logs.take_recovered()
    assert (found["g"].hard_state, found["g"].snapshot) == (HardState(2, 1), snapshot)
    assert found["g"].entries == [entry(2), member, entry(4, 2)]
    assert (found["h"].hard_state, found["h"].entries) == (HardState(7, 0), [])
    assert logs.damage == []
    logs.close()


@with_and_without_a_key
@pytest.mark.parametrize("seed", range(30 * TORTURE))
def test_a_crash_at_any_call_loses_nothing_that_was_reported(
    seed: int, keys: OperatorKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power fails again and again, also while the logs are being opened."""
    chance = random.Random(seed)
    if seed % 3 == 0:  # all batches are large
        monkeypatch.setattr(log_files, "SMALL_BYTES", 0)
    disk, history = FaultyDisk(seed), History(chance)
    for _ in range(8):
        disk.power_fails_at = chance.randrange(250)
        try:
            logs = open_logs(disk, chance.randrange(1 << 30), keys=keys)
            assert logs.damage == []
            history.continue_from(history.check(logs.take_recovered()))
            history.run(logs, 12)
        except PowerLoss:
            pass
        disk = disk.crash(chance.randrange(1 << 30))
    logs = open_logs(disk, 1, keys=keys)
    history.check(logs.take_recovered())


@with_and_without_a_key
@pytest.mark.parametrize("seed", range(30 * TORTURE))
def test_a_kill_and_then_a_power_cut(seed: int, keys: OperatorKeys) -> None:
    """What a start has found stays, even if it was not synced before."""
    chance = random.Random(seed)
    disk, history = FaultyDisk(seed), History(chance)
    for _ in range(4):
        disk.power_fails_at = chance.randrange(60, 400)
        try:
            logs = open_logs(disk, chance.randrange(1 << 30), keys=keys)
            history.continue_from(history.check(logs.take_recovered()))
            history.run(logs, 12)
        except PowerLoss:
            pass
        disk = disk.kill()
        logs = open_logs(disk, keys=keys)
        history.continue_from(history.check(logs.take_recovered()))
        disk = disk.crash(chance.randrange(1 << 30))


def flip(disk: FaultyDisk, path: Path, chance: random.Random) -> None:
    size = disk.open(path).size()
    if size:
        flip_bit(disk, path, chance.randrange(size), chance.randrange(8))


def flip_bit(disk: FaultyDisk, path: Path, offset: int, bit: int = 0) -> None:
    file = disk.open(path)
    file.pwrite(bytes([file.pread(1, offset)[0] ^ 1 << bit]), offset)
    file.fsync()


@with_and_without_a_key
@pytest.mark.parametrize("ending", ["flip", "flip after crash", "spoil", "remove"])
@pytest.mark.parametrize("seed", range(20 * TORTURE))
def test_damage_of_one_file_is_found_out(seed: int, ending: str, keys: OperatorKeys) -> None:
    """One damaged place costs no vote and no term; groups that may have lost entries know it."""
    chance = random.Random(seed)
    disk, history = FaultyDisk(seed), History(chance)
    logs = open_logs(disk, seed, keys=keys)
    for _ in range(chance.randrange(3)):
        history.run(logs, 10)
        logs.close()
        logs = open_logs(disk, seed, keys=keys)
    if ending == "flip after crash":
        disk.power_fails_at = chance.randrange(80, 300)
    with contextlib.suppress(PowerLoss):
        history.run(logs, 30)
    disk = disk.crash(seed) if ending == "flip after crash" else disk.kill()
    path = chance.choice([path for path in files_of(disk) if disk.open(path).size()])
    if ending == "spoil":
        disk.spoil(path, offset=chance.randrange(disk.open(path).size()))
    elif ending == "remove":
        disk.unlink(path)
    else:
        flip(disk, path, chance)
    logs = open_logs(disk, seed, keys=keys)
    recovered = logs.take_recovered()
    history.check(recovered, is_damaged=True)
    hurt = {name: group.hard_state.health for name, group in recovered.items()}
    again = open_logs(disk.kill(), seed, keys=keys).take_recovered()
    assert {name: group.hard_state.health for name, group in again.items()} == hurt
    for name, group in again.items():
        assert group.entries == recovered[name].entries


@with_and_without_a_key
@pytest.mark.parametrize("what", ["the header", "the first batch", "the page"])
def test_damage_at_the_beginning_of_the_oldest_segment_is_noticed(
    what: str, keys: OperatorKeys
) -> None:
    """No batch is before it, whose number would tell that some are missing, and none behind it
    has entries."""
    disk = FaultyDisk(1)
    snapshot = Snapshot(1, 1, Membership(frozenset({1})), b"state")
    logs = open_logs(disk, keys=keys)
    put(logs, "g", snapshot)
    write(logs, GroupWrite("g", HardState(1, 1), snapshot, entries=[entry(2)]))
    logs.close()
    for term in (2, 3):  # each start begins a segment
        logs = open_logs(disk, keys=keys)
        write(logs, GroupWrite("g", HardState(term, 1)))
        logs.close()
    oldest, *others = sorted(path for path in files_of(disk) if path.name.startswith("log."))
    assert others
    if what == "the page":
        disk.spoil(oldest, offset=0)
    else:
        at, size = (0, HEADER_BYTES) if what == "the header" else (HEADER_BYTES, 512)
        file = disk.open(oldest)
        file.pwrite(b"\xa5" * size, at)
        file.fsync()
    logs = open_logs(disk, keys=keys)
    found = logs.take_recovered()["g"]
    assert found.hard_state.health is not Health.SOUND
    logs.close()


def last_sector(disk: FaultyDisk, path: Path) -> int:
    """Return where the last sector begins that holds something."""
    file = disk.open(path)
    written = len(file.pread(file.size(), 0).rstrip(b"\0"))
    return (written - 1) // SECTOR_BYTES * SECTOR_BYTES


def test_damage_of_the_last_batch_before_a_start_is_noticed_later() -> None:
    """The next batch is in another segment, and tells what the damaged one wrote."""
    disk = FaultyDisk(1)
    logs = open_logs(disk)
    write(logs, GroupWrite("g", HardState(1, 1), entries=[entry(1)]))
    write(logs, GroupWrite("g", entries=[entry(2)]))
    logs.close()
    open_logs(disk).close()
    flip_bit(disk, ROOT / "log.1", last_sector(disk, ROOT / "log.1"))
    found = open_logs(disk.kill()).take_recovered()["g"]
    assert found.entries == [entry(1)]
    assert found.hard_state.health is Health.LOG_LOST


@pytest.mark.parametrize("name", ["log.1", "state.1"])
def test_a_file_that_was_cut_off_is_damaged(name: str) -> None:
    """Space is reserved in front of the writes, so that a torn batch leaves a longer file."""
    disk = FaultyDisk(1)
    logs = open_logs(disk, segment_bytes=1 << 20)
    for index in range(1, 60):
        write(logs, GroupWrite("g", HardState(index, 1), entries=[entry(index)]))
    logs.close()
    end = last_sector(disk, ROOT / name) + SECTOR_BYTES
    assert end < disk.open(ROOT / name).size()
    disk = disk.kill()
    reserved_last = 16 << 10  # the batch there may be torn, and the one behind it tells the space
    for cut in range(reserved_last + 2 * SECTOR_BYTES, end, 100):
        if cut % SECTOR_BYTES:
            after = disk.kill()
            after.open(ROOT / name).truncate(cut)
            logs = open_logs(after)
            assert any("cut off" in damage.what for damage in logs.damage), cut
            found = logs.take_recovered()["g"]
            lost = Health.LOG_LOST if name == "log.1" else Health.SOUND
            assert (found.hard_state.term, found.hard_state.health) == (59, lost)


def test_damage_of_entries_that_replace_others_of_the_same_batch_is_noticed() -> None:
    """A follower hears the old leader and the new one while a batch is being synced."""
    disk = FaultyDisk(1)
    logs = open_logs(disk)
    write(logs, GroupWrite("g", HardState(1, 1), entries=[entry(1)]))
    old, new = GroupWrite("g", entries=[entry(2), entry(3)]), [entry(2, 2, b"new"), entry(3, 2)]
    write(logs, old, GroupWrite("g", HardState(2, 0), entries=new))
    write(logs, GroupWrite("g", HardState(3, 0)))
    logs.close()
    file = disk.open(ROOT / "log.1")
    flip_bit(disk, ROOT / "log.1", file.pread(file.size(), 0).index(b"new"))
    found = open_logs(disk.kill()).take_recovered()["g"]
    assert found.entries == [entry(1)]
    assert found.hard_state.health is Health.LOG_LOST


@pytest.mark.parametrize("first", [(), (entry(5),)])
def test_damage_of_the_state_that_replaces_a_log_costs_the_entries_behind_it(
    first: tuple[Entry, ...],
) -> None:
    """A member gets a snapshot, and then entries: they are not told from what was replaced."""
    disk, done = FaultyDisk(1), list[Exception | None]()
    logs = open_logs(disk)
    write(logs, GroupWrite("g", HardState(1, 1), entries=[entry(1), entry(2)]))
    write(logs, GroupWrite("calm", HardState(1, 1), entries=[entry(1)]))
    snapshot = Snapshot(4, 3, Membership(frozenset({1})), b"")
    logs.put_snapshot("g", snapshot, done.append)
    while not done:
        logs.wait()
    write(logs, GroupWrite("g", None, snapshot, replaces_log=True, entries=first))
    write(logs, GroupWrite("g", entries=[entry(5 + len(first))]))
    logs.close()
    file = disk.open(ROOT / "log.1")
    place = struct.pack("<QQ", snapshot.index, snapshot.term)
    flip_bit(disk, ROOT / "log.1", file.pread(file.size(), 0).index(place))
    found = open_logs(disk.kill()).take_recovered()
    assert found["g"].hard_state.health is Health.LOG_LOST
    assert found["calm"].hard_state.health is Health.SOUND


@pytest.mark.parametrize("seed", range(5 * TORTURE))
def test_damage_of_the_last_batch_is_noticed_whenever_a_start_is_cut_off(seed: int) -> None:
    """A segment that a start has begun and not finished is behind the damage."""
    disk = FaultyDisk(seed)
    logs = open_logs(disk)
    write(logs, GroupWrite("g", HardState(1, 1), entries=[entry(1)]))
    write(logs, GroupWrite("g", entries=[entry(2)]))
    logs.close()
    path = ROOT / "log.1"
    at = last_sector(disk, path)
    for call in range(200):
        starting = disk.kill()
        flip_bit(starting, path, at)
        starting.power_fails_at = call
        with contextlib.suppress(PowerLoss):
            open_logs(starting)
        found = open_logs(starting.crash(seed + call)).take_recovered()["g"]
        assert found.entries == [entry(1)]
        assert found.hard_state.health is Health.LOG_LOST, call


@with_and_without_a_key
def test_a_full_disk_delays_writes_and_loses_nothing(keys: OperatorKeys) -> None:
    disk, history = FaultyDisk(1), History(random.Random(1))
    logs = open_logs(disk, keys=keys)
    history.run(logs, 5)
    disk.fail("allocate", errno.ENOSPC, times=-1)
    disk.fail("pwrite", 0, times=3)
    has_waited = False
    for _ in range(40):
        while not logs.waits_for_space and history.reported < len(history.states) - 1:
            logs.wait()
        write_of = history.write_of("c", history.states[-1].get("c"))
        if write_of.snapshot is None and not write_of.removes:
            history.note([write_of])
            logs.write([write_of], history.report)
        has_waited |= logs.waits_for_space
        logs.retry()
    assert has_waited
    disk.heal()
    logs.retry()
    history.settle(logs)
    again = open_logs(disk.kill(), keys=keys)
    assert history.check(again.take_recovered()) == history.states[-1]


@with_and_without_a_key
@pytest.mark.parametrize("call", ["fdatasync", "pwrite", "sync_dir"])
def test_after_a_failed_sync_nothing_more_is_written(call: str, keys: OperatorKeys) -> None:
    disk, history = FaultyDisk(2), History(random.Random(2))
    logs = open_logs(disk, segment_bytes=1024, keys=keys)
    history.run(logs, 5)
    disk.fail(call, errno.EIO)
    told: list[Exception | None] = []
    for term in range(50, 100):  # long enough for a new segment
        logs.write([GroupWrite("c", HardState(term, 1))], told.append)
        while logs.failure is None and len(told) < term - 49:
            logs.wait()
    assert isinstance(told[-1], LogsFailedError)
    known = told.index(told[-1])
    assert told[:known] == [None] * known
    calls = len(disk.calls)
    logs.write([GroupWrite("c", HardState(100, 1))], told.append)
    assert isinstance(told[-1], LogsFailedError)
    assert len(disk.calls) == calls
    again = open_logs(disk.crash(1), keys=keys).take_recovered()
    assert (known and 49 + known) <= again["c"].hard_state.term <= 50 + known
    assert again["c"].hard_state.health is Health.SOUND


@with_and_without_a_key
def test_a_lagging_group_does_not_hold_the_disk(keys: OperatorKeys) -> None:
    """One group's few entries are written forward; the disk use stays bounded."""
    disk = FaultyDisk(3)
    logs = open_logs(disk, keys=keys)
    write(logs, GroupWrite("slow", HardState(1, 1), entries=[entry(1), entry(2)]))
    write(logs, GroupWrite("busy", HardState(1, 1)))
    index = 0
    for round_number in range(300):
        entries = [entry(index + n, data=bytes([n]) * 500) for n in range(1, 6)]
        index += 5
        write(logs, GroupWrite("busy", entries=entries))
        if round_number % 10 == 9:
            snapshot = Snapshot(index, 1, Membership(frozenset({1})), b"")
            put(logs, "busy", snapshot)
            write(logs, GroupWrite("busy", snapshot=snapshot))
        assert logs.size_bytes < 8 * SEGMENT_BYTES
    names = [path.name for path in files_of(disk)]
    assert "log.1" not in names
    assert len(names) < 12
    found = open_logs(disk.kill(), keys=keys).take_recovered()
    assert found["slow"].entries == [entry(1), entry(2)]
    assert found["busy"].snapshot is not None
    assert found["busy"].snapshot.index + len(found["busy"].entries) == index


def test_a_later_version_is_refused_and_left_alone() -> None:
    disk = FaultyDisk(4)
    logs = open_logs(disk)
    write(logs, GroupWrite("g", HardState(1, 1)))
    logs.close()
    for magic, name in ((b"NATSDRFT", "log.9"), (b"NATSDRST", "state.9")):
        after = disk.kill()
        header = encode_header(magic, 3, 9, 1)
        after.open(ROOT / name, create=True).pwrite(header, 0)
        with pytest.raises(LogsUnreadableError, match="later version"):
            open_logs(after)
        assert after.open(ROOT / name).pread(HEADER_BYTES, 0) == header
        disk = disk.crash()


def test_unknown_files_stay() -> None:
    disk = FaultyDisk(5)
    open_logs(disk).close()
    for name in ("log.1.bak", "notes", "snapshots/README", "log.0", "snapshots/x.1.1"):
        disk.open(ROOT / name, create=True).pwrite(b"mine", 0)
    open_logs(disk.kill())
    for name in ("log.1.bak", "notes", "snapshots/README", "log.0", "snapshots/x.1.1"):
        assert disk._now[ROOT / name] is not None


@with_and_without_a_key
@pytest.mark.parametrize("seed", range(10 * TORTURE))
def test_short_writes_and_then_a_power_cut(seed: int, keys: OperatorKeys) -> None:
    """What a failed write has left behind the last batch is no damage once it is written anew."""
    chance = random.Random(seed)
    disk, history = FaultyDisk(seed), History(chance)
    logs = open_logs(disk, keys=keys)
    for _ in range(6):
        disk.fail(chance.choice(["pwrite", "allocate"]), errno.ENOSPC, after=chance.randrange(3))
        disk.fail("pwrite", 0, path=chance.choice(["log.1", "state.1"]), times=chance.randint(1, 3))
        for _ in range(5):
            writes = [GroupWrite("g", HardState(1, 1), entries=history.entries(1, 1))]
            logs.write(writes, lambda _: None)
            while not logs.waits_for_space and logs._under_way is not None:
                logs.wait()
        while logs.waits_for_space:
            logs.retry()
            while not logs.waits_for_space and logs._under_way is not None:
                logs.wait()
        disk.heal()
    again = open_logs(disk.crash(seed), keys=keys)
    assert again.damage == []
    assert again.take_recovered()["g"].entries


async def test_what_may_wait_goes_with_the_next_batch(tmp_path: Path) -> None:
    logs = RaftLogs.open(RealDisk(), tmp_path / "raft", os.urandom)
    write(logs, GroupWrite("g", HardState(1, 0)), GroupWrite("h", HardState(1, 0)))
    logs.watch(asyncio.get_running_loop())
    size, done, both = logs.size_bytes, list[str](), asyncio.Event()
    logs.write([GroupWrite("g", entries=[entry(1)])], lambda _: done.append("g"), may_wait=True)
    logs.write([GroupWrite("h", entries=[entry(1)])], lambda _: (done.append("h"), both.set()))
    await asyncio.wait_for(both.wait(), 10)
    assert done == ["g", "h"]
    assert logs.size_bytes == size + SECTOR_BYTES  # one batch
    logs.close()


async def test_what_may_wait_is_written_soon(tmp_path: Path) -> None:
    logs = RaftLogs.open(RealDisk(), tmp_path / "raft", os.urandom)
    logs.watch(asyncio.get_running_loop())
    written = asyncio.Event()
    write_of_g = [GroupWrite("g", HardState(1, 0), entries=[entry(1)])]
    logs.write(write_of_g, lambda _: written.set(), may_wait=True)
    await asyncio.wait_for(written.wait(), 10)
    logs.close()
    logs = RaftLogs.open(RealDisk(), tmp_path / "raft", os.urandom)
    assert logs.take_recovered()["g"].entries == [entry(1)]
    logs.close()
