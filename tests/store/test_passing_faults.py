"""EMFILE and ENOMEM at every call: operations are refused or delayed, and then go on.

No acknowledged message is lost, and the store goes on by itself when the faults are over. Each case
is one stream, one errno and one window of failing calls, which begins at the n-th call, for every n
(docs/store.md, "What an acknowledgement means").
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from natsd.store.codec.records import OVERHEAD_BYTES, StoredMessage
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.disk.disk import is_transient
from natsd.store.errors import MessageNotFound, StoreEOF, StoreError
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import Machine
from tests.store.test_file_store_model import KEYS, end_other_tasks, everything

pytestmark = pytest.mark.torture

OPENING = frozenset({"open", "sync_dir", "listdir", "rmtree"})
CALLS = {
    errno.EMFILE: OPENING,
    errno.ENOMEM: OPENING
    | {"pread", "pwrite", "allocate", "truncate", "rename", "unlink", "mkdir", "link"},
}
STREAMS = {
    "plain": (Limits(), FileOptions(block_bytes_max=700)),
    "compressed": (Limits(), FileOptions(block_bytes_max=700, compress=True)),
    "encrypted": (Limits(), FileOptions(block_bytes_max=700, keys=KEYS, context="S")),
    "per subject": (Limits(max_msgs_per_subject=2), FileOptions(block_bytes_max=700)),
    "small": (Limits(max_bytes=600), FileOptions()),
}
STEP = max(1, 7 // TORTURE)  # distance of first failing calls; 1 in `make torture`
DEADLINE_S = 20


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten all pauses before another try to a millisecond or less."""
    with (
        mock.patch("natsd.store.commit.committer.PROBE_S", 0.001),
        mock.patch("natsd.store.commit.commits.RETRY_S", 0.001),
        mock.patch("natsd.store.maintenance.background_jobs.RETRY_S", 0.001),
        mock.patch("natsd.store.maintenance.compaction.RETRY_S", 0.001),
        mock.patch("natsd.store.consumer.consumer_store.RETRY_S", 0.001),
        mock.patch("natsd.store.maintenance.block_cache.PAUSE_MAX_S", 0.001),
        mock.patch("natsd.store.maintenance.block_cache.PAUSE_MIN_S", 0.0001),
    ):
        yield


async def explore_all(
    explore_one: Callable[[int, int], Awaitable[bool]], windows: tuple[int, ...]
) -> None:
    """Run a case for each window size and each first failing call, until no call is reached."""
    cases = 0
    for times in windows:
        after = times % STEP
        while await explore_one(after, times):
            after += STEP
            cases += 1
    assert cases


def expect_passing(error: Exception) -> None:
    """Raise the error again unless it is one of a passing fault."""
    if not is_transient(error):
        raise error


@dataclass
class Publisher:
    """The messages that a store acknowledged, and the sequences that it was asked to remove."""

    limits: Limits
    sent: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    acknowledged: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)

    def append(self, store: FileStore, number: int) -> None:
        subject, data = "abc"[number % 3], b"%d" % number * 20
        self.sent[store.append(subject, None, data, number)] = subject, data

    async def synced(self, store: FileStore) -> None:
        sent, self.sent = self.sent, {}
        await store.synced()
        self.acknowledged |= sent

    async def check(self, store: FileStore) -> None:
        """Assert that each acknowledged message is stored, unless limits or a removal took it."""
        there = await everything(store)
        for sequence, (subject, data) in self.acknowledged.items():
            try:
                message = await store.load(sequence)
            except MessageNotFound:
                assert sequence in self.removed or self.is_pushed_out(sequence, there), sequence
            else:
                assert (message.subject, message.data) == (subject, data)
        assert store.state().last_sequence >= max(self.acknowledged, default=0)

    def is_pushed_out(self, sequence: int, there: list[StoredMessage]) -> bool:
        """Return whether the limits removed a message; messages removed later count, too."""
        subject, data = self.acknowledged[sequence]
        later = {each.sequence: (each.subject, each.data) for each in there} | self.acknowledged
        later = {number: message for number, message in later.items() if number > sequence}
        if self.limits.max_msgs_per_subject > 0:
            same = [number for number, message in later.items() if message[0] == subject]
            return len(same) >= self.limits.max_msgs_per_subject
        sizes = sum(OVERHEAD_BYTES + len(each[0]) + len(each[1]) for each in later.values())
        own = OVERHEAD_BYTES + len(subject) + len(data)
        return 0 < self.limits.max_bytes < sizes + own


async def life(store: FileStore, publisher: Publisher) -> None:
    """Use the store in all ways; only errors of a passing fault may be raised."""
    for number in range(1, 26):
        try:
            publisher.append(store, number)
            if number % 3 == 0:
                await publisher.synced(store)
            if number % 8 == 0:
                publisher.removed.add(number - 2)
                await store.delete(number - 2)
            if number == 14:
                publisher.removed.add(9)
                await store.erase(9)
            if number == 20:
                await store.write_index()
            await store.load(max(1, number // 2))
        except (MessageNotFound, StoreEOF):
            continue
        except (StoreError, OSError) as error:
            expect_passing(error)
            publisher.sent.clear()


async def goes_on(store: FileStore, publisher: Publisher) -> None:
    """Assert that the store takes messages again by itself within DEADLINE_S seconds."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                publisher.append(store, 99)
                await publisher.synced(store)
                return
            except StoreError as error:
                expect_passing(error)
                publisher.sent.clear()
                await asyncio.sleep(0.001)


async def explore(kind: str, number: int, after: int, times: int) -> bool:
    """Run one case and return whether any call failed."""
    limits, options = STREAMS[kind]
    machine = Machine(FaultyDisk(), limits, options)
    publisher = Publisher(limits)
    store = await machine.open()
    machine.disk.fail(CALLS[number], number, after=after, times=times)
    await life(store, publisher)
    is_reached = machine.disk.has_failed_one
    machine.disk.heal()
    await goes_on(store, publisher)
    await publisher.check(store)

    machine.disk = machine.disk.crash(after)
    await end_other_tasks()
    store = await machine.open()
    await publisher.check(store)
    await store.close()
    await end_other_tasks()
    return is_reached


@pytest.mark.parametrize("number", CALLS)
@pytest.mark.parametrize("kind", STREAMS)
async def test_calls_of_a_stream_that_is_served(kind: str, number: int) -> None:
    with short_pauses():
        await explore_all(partial(explore, kind, number), (1, 5))


async def served_and_killed(kind: str) -> tuple[FaultyDisk, Publisher]:
    """Return the disk of a process that was killed in the middle of its work."""
    limits, options = STREAMS[kind]
    machine, publisher = Machine(FaultyDisk(), limits, options), Publisher(limits)
    await life(await machine.open(), publisher)
    publisher.sent.clear()
    disk = machine.disk.kill()
    await end_other_tasks()
    return disk, publisher


async def explore_start(
    kind: str, number: int, after: int, times: int, left: FaultyDisk, publisher: Publisher
) -> bool:
    """Run one case of a start and return whether any call failed."""
    limits, options = STREAMS[kind]
    machine = Machine(left.kill(), limits, options)
    left.is_off = False
    machine.disk.fail(CALLS[number], number, after=after, times=times)
    try:
        store = await machine.open()
    except (StoreError, OSError) as error:  # jetstream/recovery.py tries again
        expect_passing(error)
        machine.disk = machine.disk.kill()
        await end_other_tasks()
        store = await machine.open()
        is_reached = True
    else:
        is_reached = machine.disk.has_failed_one
    machine.disk.heal()
    await goes_on(store, publisher)
    await publisher.check(store)
    await store.close()
    await end_other_tasks()
    return is_reached


@pytest.mark.parametrize("number", CALLS)
@pytest.mark.parametrize("kind", STREAMS)
async def test_calls_of_a_start(kind: str, number: int) -> None:
    with short_pauses():
        left, publisher = await served_and_killed(kind)
        before = dict(publisher.acknowledged)

        async def explore_one(after: int, times: int) -> bool:
            publisher.acknowledged = dict(before)
            return await explore_start(kind, number, after, times, left, publisher)

        await explore_all(explore_one, (1, 3))


CONSUMER = Path("/store/consumer")
OPTIONS = ConsumerOptions(ack_policy=AckPolicyCode.EXPLICIT)


async def open_volume(disk: FaultyDisk) -> Volume:
    loop = asyncio.get_running_loop()
    return Volume.open(disk, Path("/store"), disk.chance.randbytes, loop=loop)


async def consume(store: ConsumerStore, acknowledged: list[int]) -> None:
    for sequence in range(1, 40):
        store.update_delivered(sequence, sequence, 1, sequence)
        store.update_acks(sequence, sequence)
        if sequence == 20:
            store.force_update(store.state())  # writes a checkpoint
        if sequence % 4 == 0:
            try:
                await store.synced()
            except StoreError as error:
                expect_passing(error)
            else:
                acknowledged[0] = sequence


async def explore_consumer(number: int, after: int, times: int) -> bool:
    """Run one case of a consumer and return whether any call failed."""
    disk, acknowledged = FaultyDisk(), [0]
    volume = await open_volume(disk)
    store = await ConsumerStore.create(volume, CONSUMER, OPTIONS, disk.chance.randbytes)
    disk.fail(CALLS[number], number, after=after, times=times)
    await consume(store, acknowledged)
    is_reached = disk.has_failed_one
    disk.heal()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await store.synced()
                break
            except StoreError as error:
                expect_passing(error)
                await asyncio.sleep(0.001)
    assert store.state().ack_floor.stream == 39

    disk = disk.crash(after)
    await end_other_tasks()
    volume = await open_volume(disk)
    store = await ConsumerStore.open(volume, CONSUMER, OPTIONS, disk.chance.randbytes)
    assert store.state().ack_floor.stream == 39
    assert not [damage for damage in store.recovery.damage if not damage.harmless]
    await store.close()
    await volume.close()
    await end_other_tasks()
    return is_reached


@pytest.mark.parametrize("number", CALLS)
async def test_calls_of_a_consumer(number: int) -> None:
    with short_pauses():
        await explore_all(partial(explore_consumer, number), (1, 4))
