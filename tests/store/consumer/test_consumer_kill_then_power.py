"""A consumer's process is killed at any call, and then the power fails.

A process between the two shows what the page cache has, and is killed too or goes on. No delivery
and no ack that a process showed is undone: recovery does not trust the page cache (docs/store.md,
"What an acknowledgement means").
"""

import asyncio
import contextlib
import errno
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.store.consumer import consumer_store
from natsd.store.consumer.consumer_files import is_blank
from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.disk.disk import make_directories, sync_names
from natsd.store.errors import ConsumerStateDamaged, StoreError
from natsd.store.wal.replay import replay
from tests.store.consumer.test_consumer_store import (
    OBS,
    ROOT,
    Host,
    begin,
    create,
    deliver,
    new_disk,
    reopen,
)
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk, PowerLoss
from tests.store.test_file_store_model import end_other_tasks

pytestmark = pytest.mark.torture

Step = tuple[str, int]
MADE = ROOT / "made"  # it exists once a consumer was made that has no state

steps_taken = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "ack", "ack", "synced", "turn", "reset"]),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=30,
)


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint replace a log after a dozen entries."""
    monkeypatch.setattr(consumer_store, "LOG_BYTES_MIN", 700)


@dataclass
class Consumer:
    """The state that was synced before the first kill, and the state that was shown since."""

    synced: ConsumerState = field(default_factory=ConsumerState)
    shown: ConsumerState | None = None

    async def live(self, store: ConsumerStore, steps: list[Step]) -> None:
        for name, number in steps:
            tracker = store.tracker
            if name == "deliver":
                first = tracker.delivered_stream + 1
                deliver(store, *range(first, first + number))
            elif name == "ack":
                pending = sorted(store.state().pending.items())[number:]
                for stream, waiting in pending[:2]:
                    store.update_acks(waiting.sequence, stream)
            elif name == "reset":
                store.set_starting_sequence(tracker.delivered_stream + number)
            elif name == "synced":
                state = store.state()
                await store.synced()
                self.synced = state
            else:
                for _ in range(number):
                    await asyncio.sleep(0)

    def check(self, found: ConsumerState) -> None:
        for known in (self.synced, self.shown):
            if known is not None:
                assert found.delivered.stream >= known.delivered.stream
                assert found.ack_floor.stream >= known.ack_floor.stream
                acked = range(known.ack_floor.stream + 1, known.delivered.stream + 1)
                for stream in acked:
                    if stream not in known.pending:
                        assert stream not in found.pending, "its ack was durable, or shown"
        if self.shown is not None:
            assert found == self.shown, "nothing happened since it was shown"


async def until_off(disk: FaultyDisk, work: Any) -> None:
    """Run the work until it is done or the disk is off; errors of the disk end it too."""
    task = asyncio.ensure_future(work)
    while not task.done() and not disk.is_off:  # noqa: ASYNC110 - a disk has no event
        await asyncio.sleep(0)
    if task.done():
        with contextlib.suppress(StoreError, OSError, PowerLoss):
            await task
    await end_other_tasks()


async def opened(disk: FaultyDisk) -> ConsumerStore | None:
    """Open the consumer as a volume does; return None if the consumer was never created.

    A consumer with a directory and no state begins.
    """
    sync_names(disk, ROOT)
    replay(disk, ROOT)
    if disk.exists(MADE) and is_blank(disk, OBS):
        return begin(Host(disk))
    if not disk.exists(OBS):
        return None
    try:
        return await reopen(Host(disk))
    except ConsumerStateDamaged:
        assert not disk.exists(OBS / "state.db"), "no power cut damages a checkpoint"
        assert not disk.exists(MADE), "entries in a log come after the checkpoint"
        return None


@settings(
    max_examples=150 * TORTURE,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=steps_taken,
    fault=st.one_of(
        st.none(),
        st.tuples(st.sampled_from(["fdatasync", "fsync", "sync_dir", "rename"]), st.integers(0, 9)),
    ),
    calls=st.integers(5, 120),
    deaths=st.lists(st.integers(0, 25), max_size=3),
    seed=st.integers(0, 1 << 16),
    with_journal=st.booleans(),
    has_files=st.booleans(),
)
def test_what_was_shown_after_a_kill_outlives_a_power_cut(
    steps: list[Step],
    fault: tuple[str, int] | None,
    calls: int,
    deaths: list[int],
    seed: int,
    with_journal: bool,
    has_files: bool,
) -> None:
    consumer = Consumer()

    async def life(disk: FaultyDisk) -> None:
        host = Host(disk, with_journal=with_journal)
        if has_files:
            store = await create(host)
        else:
            make_directories(disk, MADE)
            store = begin(host)
        if fault is not None:
            disk.fail(fault[0], errno.EIO, after=fault[1])
        await consumer.live(store, steps)
        state = store.state()
        await store.close()
        consumer.synced = state

    async def show(disk: FaultyDisk) -> None:
        store = await opened(disk)
        if store is not None:
            consumer.shown = store.state()

    async def scenario() -> None:
        disk = new_disk(seed)
        disk.power_fails_at = calls
        await until_off(disk, life(disk))
        for death in [*deaths, 1000]:
            disk = disk.kill()
            disk.power_fails_at = death
            await until_off(disk, show(disk))
        store = await opened(disk.crash(seed))
        if store is None:
            assert consumer.shown is None
            assert consumer.synced == ConsumerState()
        else:
            assert store.recovery.damage == []
            consumer.check(store.state())
        await end_other_tasks()

    asyncio.run(scenario())


async def test_a_log_that_is_cut_after_a_clean_close_costs_nothing() -> None:
    """A log that is cut after a clean close loses nothing, and its missing end is reported.

    The whole state is in the checkpoint.
    """
    for size in (0, 40, 64):
        disk = new_disk()
        store = await create(Host(disk))
        deliver(store, *range(1, 102))
        for number in range(1, 51):
            store.update_acks(number, number)
        await store.synced()
        state = store.state()
        await store.close()
        (name,) = (name for name in disk.listdir(OBS) if name.endswith(".log"))
        disk.open(OBS / name).truncate(size)
        found = await reopen(Host(disk))
        assert found.state() == state
        assert size == 64 or [damage.path.name for damage in found.recovery.damage] == [name]
        await found.close()
