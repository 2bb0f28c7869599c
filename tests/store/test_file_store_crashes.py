"""FileStore on a disk that loses power, or fails a call, at any moment.

Issue "The store", section 4: nothing synced is ever lost, nothing torn is ever served, removals
never overtake. Design, "Durability": index.db never disagrees with a full scan.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.file_store import FileOptions, FileStore
from natsd.store.index_db import INDEX_NAME
from natsd.store.store import Limits
from natsd.store.volume import Volume
from tests.store.faulty_disk import FaultyDisk
from tests.store.plain_store import Plain, PlainStore
from tests.store.test_file_store_model import DIRECTORY, KEYS, end_other_tasks, everything
from tests.store.test_store_model import plain

OPTIONS = {
    "plain": FileOptions(block_bytes_max=700),
    "compressed": FileOptions(block_bytes_max=700, compress=True),
    "encrypted": FileOptions(block_bytes_max=700, keys=KEYS, context="S"),
}
LIMITS = [
    Limits(),
    Limits(max_msgs=5),
    Limits(max_bytes=600),
    Limits(max_msgs_per_subject=1),
    Limits(max_msgs_per_subject=2, max_msgs=7),
]

operations = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(0, 40), st.integers(1, 6)),
    st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(0, 40), st.integers(1, 6)),
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
    """What was asked of a store: after each step what it should hold, and up to which it said that
    it is durable."""

    model: PlainStore
    appended: dict[int, Plain] = field(default_factory=dict)
    after: list[PlainStore] = field(default_factory=list)
    durable: int = 0

    def __post_init__(self) -> None:
        self.note()

    def note(self) -> None:
        self.after.append(self.model.copy())

    def check(self, found: dict[int, Plain], last: int) -> None:
        """Is this what can be there after power was lost?"""
        for sequence, message in found.items():
            assert message == self.appended[sequence], "nothing else was ever written"
        synced, later = self.after[self.durable], self.after[self.durable :]
        assert last >= synced.last
        for sequence in self.appended:
            if sequence <= synced.last and sequence not in synced.messages:
                assert sequence not in found, "its removal was durable"
        for sequence in synced.messages:
            if sequence not in found:
                states = [state for state in later if sequence not in state.messages]
                assert states, "it was durable, and nobody removed it"
                assert last >= states[0].last, "its removal overtook what asked for it"
        for sequence, message in self.appended.items():
            if synced.last < sequence <= last and sequence not in found:
                assert any(sequence not in state.messages for state in later), message


class AtOnce(Executor):
    """Calls what is submitted: threads would make each run another."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Machine:
    """A disk, and the store on it."""

    def __init__(self, disk: FaultyDisk, limits: Limits, options: FileOptions) -> None:
        self.disk = disk
        self.limits = limits
        self.options = options
        self.chance = random.Random(3)

    async def open(self) -> FileStore:
        loop = asyncio.get_running_loop()
        volume = Volume.open(self.disk, Path("/store"), self.chance.randbytes, loop=loop)
        volume._readers = AtOnce()  # type: ignore[assignment]
        random_bytes = self.chance.randbytes
        store = await FileStore.open(volume, DIRECTORY, self.limits, random_bytes, self.options)
        await store.settle()
        return store

    async def until_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it go on until it is done or the power is gone."""
        task = asyncio.ensure_future(work)
        while not task.done() and not self.disk.is_off:
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if not self.disk.is_off and result is not None:
            raise result
        await end_other_tasks()


async def run(store: FileStore, history: History, steps: list[tuple[Any, ...]]) -> None:
    model = history.model
    for name, *arguments in steps:
        if name == "append":
            subject, size, times = arguments
            for _ in range(times):
                time_ns = len(history.appended) + 1
                message = Plain(
                    model.last + 1, subject, None, bytes([65 + time_ns % 26]) * size, time_ns, 0
                )
                history.appended[message.sequence] = message
                store.append(subject, None, message.data, time_ns)
                model.append(subject, None, message.data, time_ns)
                history.note()
        elif name in ("delete", "erase"):
            sequence = max(model.last - arguments[0], 0)
            model.delete(sequence)
            history.note()
            await getattr(store, name)(sequence)
        elif name == "purge":
            model.purge(arguments[0], 0, 0)
            history.note()
            await store.purge(pattern=arguments[0])
        elif name == "skip":
            store.skip(arguments[0])
            model.skip(arguments[0])
            history.note()
        elif name == "synced":
            known = len(history.after) - 1
            await store.synced()
            history.durable = known
        elif name == "index":
            await store.write_index()
        else:
            for _ in range(arguments[0]):
                await asyncio.sleep(0)


async def contents(store: FileStore) -> tuple[Any, ...]:
    found = {m.sequence: plain(m) for m in await everything(store)}
    state = store.state(with_deleted=True)
    if state.last_sequence not in found:
        state = replace(state, last_time_ns=0)  # only index.db knows, if nothing is left of it
    return found, state, await store.subject_states(">")


async def check_after_crash(machine: Machine, history: History, seed: int) -> None:
    """Opened by index.db, if it is there, and by a scan: the same, and what can be there."""
    scanned = Machine(machine.disk.crash(seed), machine.limits, machine.options)
    machine.disk = scanned.disk.crash(seed)
    scanned.disk = machine.disk.crash(seed)
    machine.disk.is_off = scanned.disk.is_off = False
    if scanned.disk.exists(DIRECTORY / INDEX_NAME):
        scanned.disk.unlink(DIRECTORY / INDEX_NAME)
    store = await machine.open()
    found, state, subjects = await contents(store)
    synced = history.after[history.durable].last
    for damage in store.damage:  # a commit that was torn, and not acknowledged
        assert damage.first_sequence > synced or not damage.first_sequence
    history.check(found, state.last_sequence)
    other = await contents(await scanned.open())
    assert (found, state, subjects) == other


@settings(max_examples=120, deadline=None)
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

        async def life() -> None:
            store = await machine.open()
            await run(store, history, steps)
            await store.close()
            history.durable = len(history.after) - 1

        machine.disk.power_fails_at = calls
        await machine.until_off(life())
        await check_after_crash(machine, history, seed)
        await end_other_tasks()

    asyncio.run(scenario())
