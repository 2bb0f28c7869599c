"""A consumer's state on disk: what was synced is found again, whatever the disk does.

Synced changes survive, and damage never becomes a wrong state (docs/store.md).
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.block.cache_budget import CacheBudget
from natsd.store.commit.committer import Committer
from natsd.store.commit.volume import Volume
from natsd.store.consumer import consumer_store
from natsd.store.consumer.consumer_files import is_blank, is_state_used
from natsd.store.consumer.consumer_state import (
    AckPolicyCode,
    ConsumerOptions,
    ConsumerState,
    Pending,
    SequencePair,
)
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.disk.disk import make_directories
from natsd.store.disk.doubled_file import read_file
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import (
    ConsumerStateDamaged,
    InvalidConsumerState,
    OldUpdate,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from natsd.store.wal.replay import replay
from natsd.store.wal.write_ahead_log import WriteAheadLog
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk, PowerLoss
from tests.waiting import eventually_within

pytestmark = pytest.mark.torture

T = TypeVar("T")
ROOT = Path("/volume")
OBS = ROOT / "obs" / "worker"
EXPLICIT = ConsumerOptions()


class Host:
    """A volume on a simulated disk; it reads without threads, so that every run is the same."""

    def __init__(self, disk: FaultyDisk, *, with_journal: bool = False) -> None:
        self.disk = disk
        loop = asyncio.get_running_loop()
        journal = WriteAheadLog(disk, ROOT, random.Random(1).randbytes) if with_journal else None
        self.committer = Committer(disk, journal, loop=loop)
        self.logs = CacheBudget(1)  # so that logs are closed very often

    def place_of(self, path: Path) -> str:
        return path.relative_to(ROOT).as_posix()

    async def read(self, function: Callable[..., T], *arguments: object) -> T:
        await asyncio.sleep(0)
        return function(*arguments)


def new_disk(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    make_directories(disk, ROOT)
    return disk


async def create(host: Any, options: ConsumerOptions = EXPLICIT, path: Path = OBS) -> ConsumerStore:
    return await ConsumerStore.create(host, path, options, os.urandom)


async def reopen(host: Any, options: ConsumerOptions = EXPLICIT, path: Path = OBS) -> ConsumerStore:
    return await ConsumerStore.open(host, path, options, os.urandom)


def begin(host: Any, path: Path = OBS) -> ConsumerStore:
    """Return the store of a consumer that has a directory and no state."""
    make_directories(host.disk, path.parent)
    return ConsumerStore.begin(host, path, EXPLICIT, os.urandom)


async def open_after_crash(disk: FaultyDisk, seed: int = 0) -> ConsumerStore:
    after = disk.crash(seed)
    replay(after, ROOT)
    host = Host(after)
    return begin(host) if is_blank(after, OBS) else await reopen(host)


def deliver(store: ConsumerStore | MemoryConsumerStore, *streams: int) -> None:
    for stream in streams:
        consumer = store.tracker.delivered_consumer + 1
        store.update_delivered(consumer, stream, 1, stream * 1000)


async def test_a_consumer_comes_back_on_a_real_disk(tmp_path: Path) -> None:
    for round_number in range(3):
        volume = Volume.open(RealDisk(), tmp_path, os.urandom, loop=asyncio.get_running_loop())
        path = tmp_path / "obs" / "worker"
        if round_number == 0:
            store = await create(volume, path=path)
        else:
            store = await reopen(volume, path=path)
        first = 10 * round_number
        assert store.tracker.delivered_consumer == first
        deliver(store, *range(first + 1, first + 11))
        for consumer in range(first + 1, first + 9):
            store.update_acks(consumer, consumer)
        await store.synced()
        expected = store.state()
        assert expected.ack_floor.consumer == 8  # two more messages wait for their acks
        await store.close()
        await volume.close()
    # Each close wrote a checkpoint and began a new log.
    assert sorted(os.listdir(tmp_path / "obs" / "worker")) == [
        "000004.log",
        "state.db",
        "state.db.copy",
    ]


async def test_synced_means_on_disk() -> None:
    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1, 2, 3)
    store.update_acks(2, 2)
    await store.synced()
    assert store.durable_changes == 4
    expected = store.state()
    deliver(store, 4)
    found = await open_after_crash(disk)
    assert found.state() == expected
    assert found.recovery.damage == []


async def test_what_has_become_durable_is_told() -> None:
    store = await create(Host(new_disk()))
    told: list[int] = []
    store.on_durable = told.append
    deliver(store, 1, 2, 3)
    await store.synced()
    assert told == [3]
    store.reset()
    await store.synced()
    assert told == [3, store.durable_changes]


@pytest.mark.parametrize("with_journal", [False, True])
async def test_a_long_log_becomes_a_checkpoint(
    with_journal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_store, "LOG_BYTES_MIN", 4096)
    disk = new_disk()
    store = await create(Host(disk, with_journal=with_journal))
    for stream in range(1, 600):
        deliver(store, stream)
        store.update_acks(stream, stream)
        if stream % 7 == 0:
            await store.synced()
    await store.synced()
    expected = store.state()
    assert expected.ack_floor == SequencePair(599, 599)
    await store.close()
    names = disk.listdir(OBS)
    assert len(names) == 3
    assert names[0] > "000005.log"
    found = await open_after_crash(disk)
    assert found.state() == expected


async def test_whole_states_are_kept() -> None:
    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1, 2, 3)
    await store.synced()
    store.set_starting_sequence(50)
    await store.synced()
    assert (await open_after_crash(disk)).state().delivered == SequencePair(3, 50)

    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1, 2, 3)
    store.reset(7)
    deliver(store, 8)
    await store.synced()
    expected = ConsumerState(SequencePair(1, 8), SequencePair(0, 7), {8: Pending(1, 8000)}, {})
    assert (await open_after_crash(disk)).state() == expected


@pytest.mark.parametrize("make", ["file", "memory"])
async def test_updates_of_whole_states(make: str) -> None:
    store: ConsumerStore | MemoryConsumerStore = MemoryConsumerStore(EXPLICIT)
    if make == "file":
        store = await create(Host(new_disk()))
    deliver(store, 1, 2, 3)
    store.update_acks(1, 1)
    ahead = ConsumerState(SequencePair(5, 9), SequencePair(2, 4), {7: Pending(4, 1)}, {7: 2})
    store.update(ahead)
    assert store.state() == ahead
    with pytest.raises(OldUpdate):
        store.update(ConsumerState(SequencePair(4, 9), SequencePair(2, 4)))
    with pytest.raises(InvalidConsumerState):
        store.force_update(ConsumerState(SequencePair(1, 1), SequencePair(2, 2)))
    assert store.state() == ahead
    store.force_update(ConsumerState())
    assert store.state() == ConsumerState()
    store.set_starting_sequence(3)
    store.reset(5)
    assert store.state() == ConsumerState(SequencePair(0, 5), SequencePair(0, 5))
    await store.synced()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.synced()
    await store.abandon()


async def test_a_clean_close_loses_nothing() -> None:
    disk = new_disk()
    host = Host(disk)
    store = await create(host)
    deliver(store, 1, 2)
    expected = store.state()
    await store.close()
    await store.close()
    store = await reopen(host)
    assert store.state() == expected
    await store.close()


async def test_an_abandoned_log_is_not_synced_any_more() -> None:
    """The log of a removed consumer is not synced any more.

    A sync of its closed file would fail, and look like a failed disk.
    """
    disk = new_disk()
    host = Host(disk, with_journal=True)
    stores = [await create(host, path=ROOT / f"{number}") for number in range(8)]
    for store in stores:
        deliver(store, 1, 2)
    await asyncio.gather(*(store.synced() for store in stores))
    assert disk.exists(ROOT / "journal.0")
    await stores[0].abandon()
    calls = disk.calls.count("fdatasync")
    await host.committer.forget_removed(ROOT / "0")
    assert disk.calls.count("fdatasync") == calls + 1, "the journal's, for what it forgets"
    for store in stores[1:]:
        await store.close()
    await host.committer.close()
    assert not disk.exists(ROOT / "journal.0"), "nothing failed: it is not kept"


async def test_no_space_takes_nothing_back_and_piles_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_store, "RETRY_S", 0)
    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1)
    await store.synced()
    disk.fail("pwrite", 0)
    deliver(store, 2)
    with pytest.raises(StoreFull):
        await store.synced()
    deliver(store, *range(3, 3000))
    assert store.tracker.changes.count == 0
    store.resumed()
    disk.fail("pwrite", errno.ENOSPC)  # the checkpoint's write fails
    with pytest.raises(StoreFull):
        await store.synced()
    while True:
        try:
            await store.synced()
            break
        except StoreFull:
            await asyncio.sleep(0)
    expected = store.state()
    assert expected.delivered.consumer == 2999
    assert (await open_after_crash(disk)).state() == expected


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
async def test_a_broken_disk_is_never_written_again(call: str) -> None:
    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1, 2)
    await store.synced()
    expected = store.state()
    disk.fail(call, errno.EIO)
    deliver(store, 3)
    for _ in range(2):
        with pytest.raises(StoreReadOnly):
            await store.synced()
        deliver(store, 4)
        with pytest.raises(StoreReadOnly):
            store.reset()
    found = await open_after_crash(disk)
    assert found.state().delivered.consumer in (2, 3)
    if found.state().delivered.consumer == 2:
        assert found.state() == expected


async def test_a_store_without_changes_has_no_files() -> None:
    disk = new_disk()
    store = begin(Host(disk))
    store.commit()
    await store.synced()
    await store.close()
    assert is_blank(disk, OBS)
    assert not disk.exists(OBS)


async def test_the_first_change_makes_the_files_of_a_store() -> None:
    disk = new_disk()
    store = begin(Host(disk))
    deliver(store, 1, 2)
    await store.synced()
    assert not is_blank(disk, OBS)
    assert is_state_used(disk, OBS)
    assert (await open_after_crash(disk)).state() == store.state()


async def test_the_first_change_makes_no_directory_for_a_deleted_consumer() -> None:
    disk = new_disk()
    store = begin(Host(disk))
    disk.rename(OBS.parent, ROOT / "obs.removed")
    deliver(store, 1)
    with pytest.raises(StoreReadOnly):
        await store.synced()
    await store.abandon()
    assert not disk.exists(OBS.parent)


async def test_a_broken_disk_at_a_checkpoint() -> None:
    disk = new_disk()
    store = await create(Host(disk))
    deliver(store, 1)
    disk.fail("fsync", errno.EIO)
    store.reset(9)
    with pytest.raises(StoreReadOnly):
        await store.synced()
    with pytest.raises(StoreReadOnly):
        await store.close()


class Scenario:
    """A consumer with random deliveries and acks, and its state after each change."""

    def __init__(self, store: ConsumerStore, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self.states = {store.tracker.change_count: store.state()}
        self.acknowledged = store.tracker.change_count

    def step(self) -> None:
        store, tracker = self.store, self.store.tracker
        state = self.states[max(self.states)]
        kind = self.chance.random()
        pending = sorted(state.pending)
        if kind < 0.5 or not pending:
            deliver(store, tracker.delivered_stream + self.chance.randint(1, 3))
        elif kind < 0.9:
            stream = self.chance.choice(pending)
            store.update_acks(state.pending[stream].sequence, stream)
        elif kind < 0.95:
            stream = self.chance.choice(pending)
            store.update_delivered(tracker.delivered_consumer + 1, stream, 2, 5)
        elif kind < 0.98:
            store.update_starting(tracker.delivered_stream + 2)
        else:
            store.reset(self.chance.randint(0, 5))
        self.states[tracker.change_count] = store.state()

    async def run(self, rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(self.chance.randint(1, 30)):
                self.step()
            reached = self.store.tracker.change_count
            try:
                await self.store.synced()
            except StoreFull:
                self.store.resumed()
                continue
            self.acknowledged = reached


@given(
    seed=st.integers(0, 1 << 32),
    calls=st.integers(0, 250),
    faults=st.lists(
        st.tuples(
            st.sampled_from(["pwrite", "fdatasync", "fsync", "rename", "open"]),
            st.sampled_from([errno.EIO, errno.ENOSPC, 0]),
            st.integers(0, 60),
        ),
        max_size=2,
    ),
    has_files=st.booleans(),
)
@settings(max_examples=150 * TORTURE, deadline=None)
def test_power_fails_at_any_call(
    seed: int, calls: int, faults: list[tuple[str, int, int]], has_files: bool
) -> None:
    """A power cut leaves the state after some change, at or after the last acknowledged one."""

    async def lose_power_and_look() -> None:
        disk = new_disk(seed)
        store = await create(Host(disk)) if has_files else begin(Host(disk))
        scenario = Scenario(store, random.Random(seed))
        disk.power_fails_at = calls
        for call, number, after in faults:
            disk.fail(call, number if call == "pwrite" or number else errno.EIO, after=after)
        running = asyncio.ensure_future(scenario.run(25))
        while not (running.done() or disk.is_off):  # noqa: ASYNC110 - a disk has no event
            await asyncio.sleep(0)
        running.cancel()
        outcome = (await asyncio.gather(running, return_exceptions=True))[0]
        expected = (StoreError, PowerLoss, asyncio.CancelledError, type(None))
        assert isinstance(outcome, expected), outcome
        found = await open_after_crash(disk, seed)
        reached = found.tracker.change_count
        assert reached >= scenario.acknowledged
        assert found.state() == scenario.states[reached]
        deliver(found, found.tracker.delivered_stream + 1)
        await found.synced()
        assert (await open_after_crash(found._volume.disk, seed + 1)).state() == found.state()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_store, "LOG_BYTES_MIN", 6000)
        patch.setattr(consumer_store, "RETRY_S", 0)
        asyncio.run(lose_power_and_look())


Files = dict[str, bytes]


async def make_files(*, close: bool) -> tuple[Files, list[ConsumerState]]:
    """Return a consumer's files after 12 commits, and its state after every change."""
    disk = new_disk()
    store = await create(Host(disk))
    states = [store.state()]
    for commit in range(1, 13):
        deliver(store, commit * 2)
        states.append(store.state())
        if commit % 3 == 0:
            store.update_acks(commit - 1, (commit - 1) * 2)
            states.append(store.state())
        await store.synced()
    if close:
        await store.close()
    return {name: read_file(disk, OBS / name) for name in disk.listdir(OBS)}, states


def disk_of(files: Files) -> FaultyDisk:
    disk = new_disk()
    make_directories(disk, OBS)
    for name, data in files.items():
        disk.open(OBS / name, create=True).pwrite(data, 0)
    return disk


def assert_safe(found: ConsumerState, states: list[ConsumerState]) -> None:
    """Assert that no undelivered message counts as delivered, and no unacked one as acked."""
    last = states[-1]
    then = next(state for state in states if state.delivered == found.delivered)
    acked = set(range(2, 26, 2)) - set(last.pending)
    assert set(then.pending) - acked <= set(found.pending) <= set(then.pending)
    assert found.ack_floor.stream <= last.ack_floor.stream
    assert last.delivered.stream >= found.delivered.stream


@pytest.mark.parametrize("name", ["state.db", "state.db.copy", "000001.log"])
async def test_flipped_bits_are_safe_and_reported(name: str) -> None:
    """In a checkpoint they cost nothing; in the log, a commit and what builds upon it."""
    files, states = await make_files(close=False)
    end = len(files[name].rstrip(b"\0"))  # a flipped bit in preallocated zeros is a torn end
    for bit in range(0, end * 8, 7 if name == "000001.log" else 97):
        data = bytearray(files[name])
        data[bit // 8] ^= 1 << bit % 8
        host = Host(disk_of(files | {name: bytes(data)}))
        store = await reopen(host)
        state = store.state()
        assert_safe(state, states)
        (damage,) = store.recovery.damage
        assert damage.path == OBS / name
        assert damage.offset <= bit // 8 < damage.offset + damage.length
        assert damage.harmless == (name != "000001.log" or damage.offset == 0)
        assert state == states[-1] or not damage.harmless
        text = f"{OBS / name}: {damage.length} bytes at {damage.offset}: "
        assert str(damage).startswith(text)
        assert store.recovery.set_aside == OBS / "damaged" / "000001.log"
        again = await reopen(host)
        assert (again.state(), again.recovery.damage) == (state, [])


@pytest.mark.parametrize("close", [True, False])
async def test_zeroed_sectors_and_cuts_are_safe(close: bool) -> None:
    """Damage may deliver messages again, but skips none and acknowledges none."""
    files, states = await make_files(close=close)
    (name,) = (name for name in files if name.endswith(".log"))
    log = files[name]
    damaged = [log[:at] + bytes(512) + log[at + 512 :] for at in range(0, len(log), 32)]
    damaged += [log[:size] for size in range(0, len(log), 9)]
    for data in damaged:
        host = Host(disk_of(files | {name: data}))
        found = await reopen(host)
        assert_safe(found.state(), states)
        again = await reopen(host)
        assert (again.state(), again.recovery.damage) == (found.state(), [])


async def test_a_missing_log_is_damage_and_a_missing_checkpoint_the_end() -> None:
    files, _ = await make_files(close=False)
    del files["000001.log"]
    store = await reopen(Host(disk_of(files)))
    assert [damage.what for damage in store.recovery.damage] == ["log is missing"]
    assert store.state() == ConsumerState()
    data = bytearray(files["state.db"])
    data[30] ^= 1
    data[4096 + 30] ^= 1
    both = {"state.db": bytes(data), "state.db.copy": bytes(data)}
    with pytest.raises(ConsumerStateDamaged, match=r"state\.db is damaged"):
        await reopen(Host(disk_of(both)))
    with pytest.raises(ConsumerStateDamaged, match=r"state\.db is missing"):
        await reopen(Host(disk_of({})))


async def test_ack_none_and_all_come_back() -> None:
    for policy in (AckPolicyCode.NONE, AckPolicyCode.ALL):
        disk = new_disk()
        options = ConsumerOptions(policy)
        store = await create(Host(disk), options)
        deliver(store, 1, 2, 3, 4)
        if policy is AckPolicyCode.ALL:
            store.update_acks(3, 3)
        await store.synced()
        found = await reopen(Host(disk.crash()), options)
        assert found.state() == store.state()
        assert found.state().ack_floor.stream == (4 if policy is AckPolicyCode.NONE else 3)


async def test_idle_consumers_share_few_descriptors() -> None:
    """Consumers whose logs are closed and opened again keep every change, also after a restart."""
    disk = FaultyDisk()
    volume = Volume.open(disk, ROOT, disk.chance.randbytes, loop=asyncio.get_running_loop())
    volume.logs.resize(3)
    stores = [
        await ConsumerStore.create(volume, ROOT / f"c{number}", EXPLICIT, disk.chance.randbytes)
        for number in range(10)
    ]

    def open_logs() -> int:
        return sum(store._file is not None for store in stores)

    for sequence in range(1, 5):
        for store in stores:
            store.update_delivered(sequence, sequence, 1, sequence)
            store.update_acks(sequence, sequence)
            await store.synced()
        await eventually_within(lambda: open_logs() <= 4)
    stores[0].force_update(stores[0].state())  # a checkpoint while the log is closed
    await asyncio.gather(*(store.synced() for store in stores))
    for store in stores:
        await store.close()
    await volume.close()

    volume = Volume.open(disk, ROOT, disk.chance.randbytes, loop=asyncio.get_running_loop())
    for number in range(10):
        store = await ConsumerStore.open(
            volume, ROOT / f"c{number}", EXPLICIT, disk.chance.randbytes
        )
        assert store.state().ack_floor.stream == 4
        assert store.recovery.damage == []
        await store.close()
    await volume.close()
