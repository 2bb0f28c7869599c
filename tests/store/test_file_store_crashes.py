"""FileStore on a disk that loses power, or fails a call, at any moment.

Synced messages are never lost, torn messages are never served, a removal never happens before its
reason is durable, and index.db always agrees with a full scan (docs/store.md).
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from natsd.store.errors import StoreError, StoreFull, StoreReadOnly
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.plain_store import Plain, PlainStore
from tests.store.test_file_store_model import DIRECTORY, end_other_tasks, everything
from tests.store.test_store_model import plain
from tests.waiting import Eventually

pytestmark = pytest.mark.torture


@pytest.fixture(autouse=True)
def one_subject_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let index.db be written in as many slices as there are subjects."""
    monkeypatch.setattr("natsd.store.recovery.checkpoint_writer.KEYS_PER_SLICE", 1)


FIXTURE = [HealthCheck.function_scoped_fixture]
LIMITS = [
    Limits(),
    Limits(max_msgs=5),
    Limits(max_bytes=600),
    Limits(max_msgs_per_subject=1),
    Limits(max_msgs_per_subject=2, max_msgs=7),
]

AB: list[tuple[Any, ...]] = [("append", "a", 0, 1), ("append", "b", 3, 6), ("synced",)]

operations = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(0, 40), st.integers(1, 6)),
    st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(0, 40), st.integers(1, 6)),
    st.tuples(st.just("batch"), st.sampled_from("abc"), st.integers(0, 300), st.integers(2, 6)),
    st.tuples(st.just("delete"), st.integers(0, 12)),
    st.tuples(st.just("erase"), st.integers(0, 12)),
    st.tuples(st.just("purge"), st.sampled_from([">", "a", "b"])),
    st.tuples(st.just("skip"), st.integers(1, 4)),
    st.tuples(st.just("synced")),
    st.tuples(st.just("synced")),
    st.tuples(st.just("turn"), st.integers(1, 8)),
    st.tuples(st.just("index")),
)


@dataclass
class History:
    """The operations on a store: the expected store after each step, and the last durable step."""

    model: PlainStore
    appended: dict[int, Plain] = field(default_factory=dict)
    after: list[PlainStore] = field(default_factory=list)
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """Batches: first and last sequence, and the index in `after` from which on it is stored."""
    removals: list[tuple[int, set[int]]] = field(default_factory=list)
    """Removals: the index in `after` from which on they are done, and the removed sequences."""
    durable: int = 0
    writing: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self.note()

    def note(self) -> None:
        self.after.append(self.model.copy())

    def remove(self, change: Callable[[], object]) -> None:
        before = set(self.model.messages)
        change()
        self.note()
        self.removals.append((len(self.after) - 1, before - set(self.model.messages)))

    def append(self, store: FileStore, subject: str, size: int) -> None:
        message = self._next(subject, size, len(self.appended) + 1)
        store.append(subject, None, message.data, message.time_ns)
        self.note()

    def append_together(self, store: FileStore, subject: str, size: int, times: int) -> None:
        first, time_ns = self.model.last + 1, len(self.appended) + 1
        batch = [self._next(f"{subject}{number}", size, time_ns) for number in range(times)]
        store.append_together([(m.subject, None, m.data) for m in batch], time_ns)
        self.note()
        self.batches.append((first, self.model.last, len(self.after) - 1))

    def _next(self, subject: str, size: int, time_ns: int) -> Plain:
        model, data = self.model, bytes([65 + len(self.appended) % 26]) * size
        message = Plain(model.last + 1, subject, None, data, time_ns, 0)
        self.appended[message.sequence] = message
        model.append(subject, None, message.data, message.time_ns)
        return message

    def taken_instead(self, found: dict[int, Plain]) -> int:
        """Return the sequence below which messages may be gone, or 0.

        A removal that was not durable may be undone by the crash. The stream's limits then removed
        the oldest messages in its place.
        """
        is_undone = any(
            place > self.durable and not gone.isdisjoint(found) for place, gone in self.removals
        )
        return min(found) if is_undone else 0

    def check_batches(self, found: dict[int, Plain]) -> None:
        """Assert that a batch is stored whole but for later removals, or not at all."""
        instead = self.taken_instead(found)
        for first, last, place in self.batches:
            there = [sequence for sequence in range(first, last + 1) if sequence in found]
            later = self.after[place:]
            for sequence in set(range(first, last + 1)).difference(there) if there else ():
                is_removed = any(sequence not in state.messages for state in later)
                assert is_removed or sequence < instead, "a part of a batch"

    def check(self, found: dict[int, Plain], last: int) -> None:
        """Assert that the found messages may be there after a power cut."""
        self.check_batches(found)
        for sequence, message in found.items():
            assert message == self.appended[sequence], "nothing else was ever written"
        synced, later = self.after[self.durable], self.after[self.durable :]
        instead = self.taken_instead(found)
        assert last >= synced.last
        for sequence in self.appended:
            if sequence <= synced.last and sequence not in synced.messages:
                assert sequence not in found, "its removal was durable"
        for sequence in synced.messages:
            if sequence not in found and sequence >= instead:
                states = [state for state in later if sequence not in state.messages]
                assert states, "it was durable, and nobody removed it"
                assert last >= states[0].last, "its removal overtook what asked for it"
        for sequence, message in self.appended.items():
            if synced.last < sequence <= last and sequence not in found and sequence >= instead:
                assert any(sequence not in state.messages for state in later), message


async def run(store: FileStore, history: History, steps: list[tuple[Any, ...]]) -> None:
    model = history.model
    for name, *arguments in steps:
        if name == "append":
            subject, size, times = arguments
            for _ in range(times):
                history.append(store, subject, size)
        elif name == "batch":
            history.append_together(store, *arguments)
        elif name in ("delete", "erase"):
            sequence = max(model.last - arguments[0], 0)
            history.remove(partial(model.delete, sequence))
            await getattr(store, name)(sequence)
        elif name == "purge":
            history.remove(partial(model.purge, arguments[0], 0, 0))
            await store.purge(pattern=arguments[0])
        elif name == "skip":
            store.skip(arguments[0])
            model.skip(arguments[0])
            history.note()
        elif name == "synced":
            known = len(history.after) - 1
            await store.synced()
            history.durable = known
        elif name == "index":  # appends go on meanwhile
            history.writing = asyncio.ensure_future(store.write_index())
        else:
            for _ in range(arguments[0]):
                await asyncio.sleep(0)


async def live(machine: Machine, history: History, steps: list[tuple[Any, ...]]) -> None:
    """Run all steps and close the store, as a process does that is not killed."""
    store = await machine.open()
    await run(store, history, steps)
    await store.close()
    history.durable = len(history.after) - 1


async def contents(store: FileStore) -> tuple[Any, ...]:
    """Return the messages, the state and the message count of each subject."""
    found = {m.sequence: plain(m) for m in await everything(store)}
    state = store.state(with_deleted=True)
    if state.last_sequence not in found:
        state = replace(state, last_time_ns=0)  # the message is gone: only index.db knows
    return found, state, await store.subject_totals(">")


async def check_after_crash(machine: Machine, history: History, seed: int) -> None:
    """Assert that an open by index.db and an open by a scan find the same, allowed content."""
    scanned = Machine(machine.disk.crash(seed), machine.limits, machine.options)
    machine.disk = scanned.disk.crash(seed)
    scanned.disk = machine.disk.crash(seed)
    machine.disk.is_off = scanned.disk.is_off = False
    if scanned.disk.exists(DIRECTORY / INDEX_NAME):
        scanned.disk.unlink(DIRECTORY / INDEX_NAME)
    store = await machine.open()
    found, state, subjects = await contents(store)
    synced = history.after[history.durable].last
    for damage in store.damage:  # a torn commit that was not acknowledged
        assert damage.first_sequence > synced or not damage.first_sequence
    history.check(found, state.last_sequence)
    other = await contents(await scanned.open())
    assert (found, state, subjects) == other


# A new block's first commit is torn: its mark survives, but neither header nor message.
@example("encrypted", LIMITS[4], [*AB, ("append", "a", 36, 6), ("batch", "a", 0, 5)], 31, 3)
# A block is on disk, but not the next one, which removes the messages above the limit.
@example("plain", LIMITS[4], [*AB, ("append", "a", 36, 6), ("batch", "a", 0, 5)], 30, 0)
@example("encrypted", LIMITS[4], [*AB, ("append", "a", 36, 6), ("batch", "a", 0, 5)], 33, 0)
@example("encrypted", LIMITS[4], [*AB, ("append", "a", 36, 5), ("append", "a", 1, 6)], 33, 0)
@settings(max_examples=120 * TORTURE, deadline=None, suppress_health_check=FIXTURE)
@given(
    kind=st.sampled_from(list(OPTIONS)),
    limits=st.sampled_from(LIMITS),
    steps=st.lists(operations, min_size=3, max_size=25),
    calls=st.integers(8, 400),
    seed=st.integers(0, 1 << 16),
)
def test_power_fails_at_any_call(
    kind: str, limits: Limits, steps: list[tuple[Any, ...]], calls: int, seed: int
) -> None:
    async def scenario() -> None:
        machine = Machine(FaultyDisk(seed), limits, OPTIONS[kind])
        history = History(PlainStore(limits))
        machine.disk.power_fails_at = calls
        await machine.until_off(live(machine, history, steps))
        await check_after_crash(machine, history, seed)
        await end_other_tasks()

    asyncio.run(scenario())


CALLS = ["pwrite", "fdatasync", "fsync", "allocate", "sync_dir", "truncate", "open", "rename",
         "unlink", "pread", "size"]  # fmt: skip


@dataclass
class Kept:
    """The durable messages, and the sequences that the store was asked to remove since."""

    messages: dict[int, Plain] = field(default_factory=dict)
    last: int = 0
    removed: set[int] = field(default_factory=set)

    async def note(self, store: FileStore) -> None:
        self.messages = {m.sequence: plain(m) for m in await everything(store)}
        self.last = store.state().last_sequence
        self.removed.clear()

    def check(self, found: dict[int, Plain], last: int) -> None:
        assert last >= self.last
        for sequence, message in self.messages.items():
            if sequence not in self.removed:
                assert found.get(sequence) == message
        assert not [s for s in found if s <= self.last and s not in self.messages]


async def run_in_spite_of_errors(
    store: FileStore, kept: Kept, steps: list[tuple[Any, ...]], errors: list[Exception]
) -> None:
    """Run all steps and collect the errors; each successful sync is noted in `kept`."""
    time_ns = 0
    for name, *arguments in steps:
        try:
            if name == "append":
                for _ in range(arguments[2]):
                    time_ns += 1
                    store.append(arguments[0], None, b"%d" % time_ns * arguments[1], time_ns)
            elif name in ("delete", "erase"):
                sequence = max(store.state().last_sequence - arguments[0], 0)
                kept.removed.add(sequence)
                await getattr(store, name)(sequence)
            elif name == "synced":
                await store.synced()
                await kept.note(store)
            elif name == "index":
                await store.write_index()
            elif name == "turn":
                for _ in range(arguments[0]):
                    await asyncio.sleep(0)
        except (StoreError, OSError) as error:
            errors.append(error)


@settings(max_examples=120 * TORTURE, deadline=None, suppress_health_check=FIXTURE)
@given(
    kind=st.sampled_from(list(OPTIONS)),
    steps=st.lists(operations, min_size=3, max_size=25),
    faults=st.lists(
        st.tuples(
            st.sampled_from(CALLS),
            st.sampled_from([errno.EIO, errno.ENOSPC, 0]),
            st.integers(0, 40),
        ),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 1 << 16),
)
def test_any_call_fails_and_then_the_power(
    kind: str, steps: list[tuple[Any, ...]], faults: list[tuple[str, int, int]], seed: int
) -> None:
    """Without space appends are undone and the store goes on; after EIO it is read-only.

    Durable messages survive both, also after a power cut.
    """

    async def scenario() -> None:
        machine = Machine(FaultyDisk(seed), Limits(), OPTIONS[kind])
        kept = Kept()
        errors: list[Exception] = []
        store = await machine.open()
        for call, number, after in faults:
            if number or call == "pwrite":
                machine.disk.fail(call, number, after=after)
        await machine.until_off(run_in_spite_of_errors(store, kept, steps, errors))
        scanned = Machine(machine.disk.crash(seed), machine.limits, machine.options)
        machine.disk = scanned.disk.crash(seed)
        scanned.disk = machine.disk.crash(seed)
        machine.disk.is_off = False
        if scanned.disk.exists(DIRECTORY / INDEX_NAME):
            scanned.disk.unlink(DIRECTORY / INDEX_NAME)
        scanned.disk.is_off = False
        found, state, subjects = await contents(await machine.open())
        kept.check(found, state.last_sequence)
        assert (found, state, subjects) == await contents(await scanned.open())
        await end_other_tasks()

    asyncio.run(scenario())


async def test_out_of_space_takes_back_and_goes_on(tmp_path: Path) -> None:
    machine = Machine(FaultyDisk(capacity_bytes=60_000), Limits(), OPTIONS["plain"])
    store = await machine.open()
    store.append("a", None, b"kept", 1)
    await store.synced()
    with pytest.raises(StoreFull):  # noqa: PT012 - a later append fails
        for number in range(2, 2000):
            store.append("a", None, bytes(100), number)
            await store.synced()
    before = store.state()
    assert before.last_sequence == store.durable_sequence
    with pytest.raises(StoreFull):
        store.append("a", None, b"refused at once", 3000)
    machine.disk.capacity_bytes = None
    committer = store._volume.committer
    committer._look_for_space(store._commits)
    while store._commits.error is not None:  # noqa: ASYNC110 - takes a few turns
        await asyncio.sleep(0)
    assert store.state() == before
    assert store.append("a", None, b"welcome", 4000) == before.last_sequence + 1
    await store.synced()
    await store.close()


async def test_without_space_undoing_leaves_the_new_block_to_the_search_for_space(
    eventually: Eventually,
) -> None:
    """A leader steps down because its disk is full: what it undoes was taken back already."""
    machine = Machine(FaultyDisk(), Limits(), FileOptions(block_bytes_max=700))
    store = await machine.open()
    machine.disk.fail("pwrite", errno.ENOSPC, path="000002.blk", times=-1)
    with pytest.raises(StoreFull):  # noqa: PT012 - a later append fails
        for number in range(1, 20):
            store.append("a", None, bytes(100), number)
            await store.synced()
    before = store.state()
    await store.undo(StoreError())
    with pytest.raises(StoreFull):
        store.append("a", None, b"refused at once", 20)
    for _ in range(20):  # in which the file of the new block could be closed
        await asyncio.sleep(0)
    machine.disk.heal()
    store._volume.committer._look_for_space(store._commits)
    await eventually(lambda: store.write_error is None, 1.0)
    assert store.state() == before
    store.append("a", None, b"welcome", 21)
    await store.synced()
    await store.close()


async def test_a_failed_sync_is_never_tried_again() -> None:
    machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
    store = await machine.open()
    store.append("a", None, b"kept", 1)
    await store.synced()
    machine.disk.fail("fdatasync", errno.EIO)
    store.append("a", None, b"lost", 2)
    with pytest.raises(StoreReadOnly):
        await store.synced()
    with pytest.raises(StoreReadOnly):
        store.append("a", None, b"refused", 3)
    assert (await store.load(1)).data == b"kept"
    assert store.durable_sequence == store.state().last_sequence == 1
    await store.close()


class Heard:
    """A durability listener that records its calls."""

    def __init__(self) -> None:
        self.durable_upto: list[int] = []
        self.errors: list[StoreError] = []

    def durable(self, sequence: int) -> None:
        self.durable_upto.append(sequence)

    def failed(self, error: StoreError) -> None:
        self.errors.append(error)


async def test_a_listener_hears_of_each_commit_and_of_the_one_that_failed() -> None:
    """A listener hears each durable sequence once, in order, and never before it is on disk.

    It also hears of the commit that failed.
    """
    machine = Machine(FaultyDisk(), Limits(), OPTIONS["plain"])
    store = await machine.open()
    heard = Heard()
    store.set_durability_listener(heard)
    for number in range(1, 4):
        store.append("a", None, b"kept", number)
        store.append("a", None, b"kept too", number)
        await store.synced()
        assert heard.durable_upto[-1] == store.durable_sequence == 2 * number
    assert heard.durable_upto == sorted(set(heard.durable_upto))
    machine.disk.fail("fdatasync", errno.EIO)
    store.append("a", None, b"lost", 9)
    with pytest.raises(StoreReadOnly):
        await store.synced()
    assert heard.durable_upto[-1] == store.log.last_sequence == 6
    assert [type(error) for error in heard.errors] == [StoreReadOnly]
    await store.close()
