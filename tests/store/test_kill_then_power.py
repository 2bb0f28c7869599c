"""A process is killed at any call, the next one reads the page cache, and then the power fails.

The next process is killed too, or serves. Every message that was acknowledged or shown is still
there: recovery does not trust the page cache (docs/store.md, "What an acknowledgement means").
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.commit.committer import Sync
from natsd.store.file_store import FileStore
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.machine import OPTIONS, Machine
from tests.store.plain_store import Plain, PlainStore
from tests.store.test_file_store_crashes import (
    CALLS,
    FIXTURE,
    LIMITS,
    History,
    Kept,
    contents,
    live,
    operations,
    run_in_spite_of_errors,
)
from tests.store.test_file_store_model import DIRECTORY, end_other_tasks, everything
from tests.store.test_store_model import plain

pytestmark = pytest.mark.torture

KINDS = {**OPTIONS, "later": replace(OPTIONS["plain"], sync=Sync.LATER)}


@pytest.fixture(autouse=True)
def one_subject_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let index.db be written in as many slices as there are subjects."""
    monkeypatch.setattr("natsd.store.recovery.checkpoint_writer.KEYS_PER_SLICE", 1)


@dataclass
class Shown:
    """The messages that a process after the first one showed, or acknowledged itself."""

    messages: dict[int, Plain] = field(default_factory=dict)
    last: int = 0

    async def note(self, store: FileStore) -> None:
        self.messages = {m.sequence: plain(m) for m in await everything(store)}
        self.last = store.state().last_sequence

    def check(self, found: dict[int, Plain], last: int) -> None:
        assert last >= self.last, "it was shown that the stream goes on"
        for sequence, message in self.messages.items():
            assert found.get(sequence) == message, "it was shown"


async def serve(machine: Machine, shown: Shown, appended: dict[int, Plain], calls: int) -> None:
    """Open the store, show its messages and append one; be dead after `calls` calls of the disk."""

    async def life() -> None:
        store = await machine.open()
        await shown.note(store)
        if store.limits != Limits():
            return  # the limits may remove shown messages
        message = Plain(shown.last + 1, "z", None, b"after", shown.last + 1, 0)
        store.append("z", None, b"after", message.time_ns, sequence=message.sequence)
        appended[message.sequence] = message
        await store.synced()
        if machine.options.sync is not Sync.LATER:
            await shown.note(store)

    machine.disk.power_fails_at = calls
    await machine.until_off(life())
    machine.disk.power_fails_at = None


async def opened_after(
    disk: FaultyDisk, like: Machine, known: int, *, scan: bool
) -> tuple[Any, ...]:
    """Open the store, by index.db or by a scan, and return its content.

    Asserts that no damage up to sequence `known` is reported.
    """
    machine = Machine(disk, like.limits, like.options)
    if scan and disk.exists(DIRECTORY / INDEX_NAME):
        disk.unlink(DIRECTORY / INDEX_NAME)
    store = await machine.open()
    for damage in store.damage:  # a torn commit, neither shown nor acknowledged
        assert damage.first_sequence > known or not damage.first_sequence, damage
    return await contents(store)


async def check_power_cut(machine: Machine, seed: int, known: int) -> tuple[dict[int, Plain], int]:
    """Return the messages and the last sequence that are found after a power cut.

    Asserts that an open by index.db and an open by a scan find the same.
    """
    disk = machine.disk.crash(seed)
    other = disk.crash(seed)
    disk.is_off = False
    by_index = await opened_after(disk, machine, known, scan=False)
    await end_other_tasks()
    assert by_index == await opened_after(other, machine, known, scan=True)
    await end_other_tasks()
    found, state, _ = by_index
    return found, state.last_sequence


@settings(max_examples=150 * TORTURE, deadline=None, suppress_health_check=FIXTURE)
@given(
    kind=st.sampled_from(list(KINDS)),
    limits=st.sampled_from(LIMITS),
    steps=st.lists(operations, min_size=3, max_size=25),
    calls=st.integers(8, 300),
    deaths=st.lists(st.integers(0, 60), max_size=3),
    seed=st.integers(0, 1 << 16),
)
def test_what_was_shown_after_a_kill_outlives_a_power_cut(
    kind: str,
    limits: Limits,
    steps: list[tuple[Any, ...]],
    calls: int,
    deaths: list[int],
    seed: int,
) -> None:
    async def scenario() -> None:
        machine = Machine(FaultyDisk(seed), limits, KINDS[kind])
        history, shown = History(PlainStore(limits)), Shown()
        machine.disk.power_fails_at = calls
        await machine.until_off(live(machine, history, steps))
        for death in [*deaths, 1000]:
            machine.disk = machine.disk.kill()
            await serve(machine, shown, history.appended, death)
        if kind == "later":
            history.durable = 0
        synced = history.after[history.durable].last
        found, last = await check_power_cut(machine, seed, max(synced, shown.last))
        shown.check(found, last)
        if limits == Limits():
            history.model.last = max(history.model.last, last)
        after = {s: m for s, m in found.items() if m.subject == "z"}
        history.check({s: m for s, m in found.items() if s not in after}, last)
        await end_other_tasks()

    asyncio.run(scenario())


@settings(max_examples=150 * TORTURE, deadline=None, suppress_health_check=FIXTURE)
@given(
    kind=st.sampled_from([kind for kind in KINDS if kind != "later"]),
    limits=st.sampled_from(LIMITS[:1]),
    steps=st.lists(operations.filter(lambda step: step[0] != "batch"), min_size=3, max_size=25),
    faults=st.lists(
        st.tuples(
            st.sampled_from([*CALLS, "fdatasync", "fdatasync", "fsync"]),
            st.sampled_from([5, 5, 28]),
            st.integers(0, 60),
        ),
        min_size=1,
        max_size=3,
    ),
    calls=st.integers(30, 600),
    deaths=st.lists(st.integers(0, 60), max_size=2),
    seed=st.integers(0, 1 << 16),
)
def test_what_was_shown_after_a_failed_call_and_a_kill_outlives_a_power_cut(
    kind: str,
    limits: Limits,
    steps: list[tuple[Any, ...]],
    faults: list[tuple[str, int, int]],
    calls: int,
    deaths: list[int],
    seed: int,
) -> None:
    async def scenario() -> None:
        machine = Machine(FaultyDisk(seed), limits, KINDS[kind])
        kept, shown, errors = Kept(), Shown(), list[Exception]()

        async def life() -> None:
            store = await machine.open()
            for call, number, after in faults:
                machine.disk.fail(call, number, after=after)
            machine.disk.power_fails_at = calls
            await run_in_spite_of_errors(store, kept, steps, errors)

        await machine.until_off(life())
        for death in [*deaths, 1000]:
            machine.disk = machine.disk.kill()
            await serve(machine, shown, {}, death)
        found, last = await check_power_cut(machine, seed, max(kept.last, shown.last))
        shown.check(found, last)
        assert last >= kept.last
        for sequence, message in kept.messages.items():
            assert sequence in kept.removed or found.get(sequence) == message
        await end_other_tasks()

    asyncio.run(scenario())
