"""MemStore's own promises: memory follows the live messages, and long work comes in slices.

The tests that all kinds of store share are in test_store_examples.py and test_store_model.py.
"""

import asyncio
from collections.abc import Callable

import pytest

from natsd.store.errors import MaximumBytesExceeded
from natsd.store.log.message_log import (
    Compact,
    EnforcePerSubjectLimit,
    Expire,
    LastMatch,
    MessageLog,
    MultiLast,
    NextMatch,
    NumPending,
    Operation,
    Purge,
    RemoveAbove,
    SubjectTotals,
)
from natsd.store.log.subjects import Filter
from natsd.store.mem_store import MemStore
from natsd.store.store import Discard, Limits

KEYS = [f"key.{number}" for number in range(100)]


async def test_overwritten_keys_leave_no_bytes_behind() -> None:
    """A bucket of 100 keys of 1 KiB, each written 200 times, takes at most 5 times its bytes."""
    store = MemStore(Limits(max_msgs_per_subject=1), block_bytes=1 << 16)
    for _ in range(200):
        for key in KEYS:
            store.append(key, None, bytes(1024), 1)
    assert store.state().msgs == 100
    assert store.memory_bytes < 100 * 1024 * 5


async def test_bytes_that_are_not_counted() -> None:
    """A record has 40 bytes beside its subject and data; 24 of them may not count."""
    store = MemStore(Limits(max_bytes=100, uncounted_bytes=24))
    for expected in (1, 2, 2):
        store.append("s", None, bytes(33), 1)
        assert (store.state().msgs, store.state().bytes) == (expected, expected * 50)
    full = MemStore(Limits(max_bytes=100, uncounted_bytes=24, discard=Discard.NEW))
    for _ in range(2):
        full.append("s", None, bytes(33), 1)
    with pytest.raises(MaximumBytesExceeded):
        full.append("s", None, b"", 1)


async def test_deletes_inside_leave_few_bytes_behind() -> None:
    store = MemStore(block_bytes=1 << 16)
    for number in range(2000):
        store.append("a", None, bytes(1024), number)
    full = store.memory_bytes
    for sequence in range(1, 2001):
        if sequence % 10:
            await store.delete(sequence)
    assert store.state().msgs == 200
    assert store.memory_bytes < full / 4
    assert (await store.load(1990)).data == bytes(1024)


async def test_names_of_subjects_without_messages_are_forgotten() -> None:
    store = MemStore(Limits(max_msgs=10))
    for number in range(20_000):
        store.append(f"unique.{number}", None, b"", 1)
    assert store.state().num_subjects == 10
    assert store._log.subjects.empty_subjects == 0
    assert store._log.subjects.memory_bytes < 100_000


async def test_expiries_of_removed_messages_are_forgotten() -> None:
    """One key that is overwritten many times with a TTL leaves few expiries."""
    store = MemStore(Limits(max_msgs_per_subject=1))
    for number in range(50_000):
        store.append("a", None, b"", number, expires_ns=10**18)
    assert len(store._log.expiries) < 5_000
    assert await store.expire(10**18) == 1


async def test_an_erased_message_is_overwritten_at_once() -> None:
    store = MemStore()
    store.append("a", None, b"secret" * 10, 1)
    store.append("a", None, b"public", 2)
    await store.erase(1)
    (block,) = store._log.all_blocks
    extent = block.take_extent(1, 1, force=True)
    assert b"secret" not in bytes(extent or b"")
    assert b"public" in bytes(extent or b"")


async def test_a_store_without_messages_is_small() -> None:
    assert MemStore().memory_bytes < 8192


# ---- slices

OPERATIONS: dict[str, Callable[[MessageLog], Operation]] = {
    "num_pending": lambda log: NumPending(log, Filter(["key.*"]), 150),
    "num_pending_last": lambda log: NumPending(log, Filter(["key.*"]), 150, True),
    "multi_last": lambda log: MultiLast(log, Filter(["key.>"]), 250),
    "subject_totals": lambda log: SubjectTotals(log, Filter(["key.*"])),
    "last_match": lambda log: LastMatch(log, Filter(["key.*"])),
    "next_match": lambda log: NextMatch(log, Filter(["*.77", "none.*"]), 280),
    "purge": lambda log: Purge(log, Filter(["key.*"])),
    "purge_keep": lambda log: Purge(log, Filter([">"]), 0, 10),
    "compact": lambda log: Compact(log, 290),
    "remove_above": lambda log: RemoveAbove(log, 7),
    "expire": lambda log: Expire(log, 100),
    "thin": lambda log: EnforcePerSubjectLimit(log),
}


def filled(limits: Limits | None = None) -> MemStore:
    store = MemStore(limits, block_bytes=2000)
    for number in range(300):
        store.append(KEYS[number % 100], None, b"data", 1, expires_ns=50 if number % 7 else 0)
    return store


@pytest.mark.parametrize("name", OPERATIONS)
def test_slices_do_what_one_step_does(name: str) -> None:
    """An operation in slices gives the same result as in one step.

    Long work runs in slices, so that nothing holds the event loop for more than 5 ms.
    """
    at_once, sliced = filled(), filled()
    for store in (at_once, sliced):
        store._log.set_limits(Limits(max_msgs_per_subject=1))
    whole = OPERATIONS[name](at_once._log)
    assert whole.step(1 << 40)
    parts, steps = OPERATIONS[name](sliced._log), 1
    while not parts.step(1):
        steps += 1
    assert steps > 1 or name == "next_match"
    assert parts.result == whole.result
    assert sliced.state(with_deleted=True) == at_once.state(with_deleted=True)


@pytest.mark.parametrize("name", ["num_pending", "multi_last", "subject_totals"])
def test_an_operation_begins_anew_if_the_log_is_emptied(name: str) -> None:
    store = filled()
    operation = OPERATIONS[name](store._log)
    operation.step(1)
    store._log.clear(301)
    while not operation.step(1):
        pass
    result = operation.result
    assert result in ([], {}, (0, 300))


def test_what_is_appended_meanwhile_is_not_pending() -> None:
    """`num_pending` counts up to the last sequence at its beginning."""
    store = filled()
    operation = NumPending(store._log, Filter(["key.*"]), 1)
    while not operation.step(1):
        store.append("key.99", None, b"", 1)
        store.append("key.5", None, b"", 1)
    assert operation.result == (300, 300)


async def test_the_loop_goes_on_during_a_long_purge() -> None:
    store = MemStore()
    for number in range(60_000):
        store.append(KEYS[number % 100], None, b"", 1)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert await store.purge(pattern="key.*") == 60_000
    ticking.cancel()
    assert ticks > 10


async def test_a_smaller_limit_is_enforced_in_the_background() -> None:
    store = MemStore()
    for number in range(60_000):
        store.append(KEYS[number % 100], None, b"", 1)
    store.update_limits(Limits(max_msgs=5), 1)
    store.append("a", None, b"", 1)
    await store.settle()
    assert store.state().msgs == 5


async def test_limits_without_a_loop_wait_for_settle() -> None:
    """A store made outside of an event loop, as by `natsd store`, keeps its limits."""
    store = await asyncio.to_thread(filled, Limits(max_msgs=100))
    assert store.state().msgs == 100
