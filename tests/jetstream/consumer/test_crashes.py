"""The power fails while a consumer is created, changed or deleted: all or nothing.

The power fails at each call of the disk that the change makes (docs/store.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from natsd.jetstream.errors import ApiError
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import StoreError
from tests.jetstream.consumer.serving import Served, serving, start
from tests.store.faulty_disk import FaultyDisk, PowerLoss
from tests.store.test_file_store_model import end_other_tasks

Change = Callable[[Served, Stream], Awaitable[object]]
DATA = Path("/data")
CALLS_MAX = 80


async def make(served: Served, stream: Stream) -> None:
    await served.consumer(stream, description="one")


async def change(served: Served, stream: Stream) -> None:
    await served.consumer(stream, description="two")


async def remove(_served: Served, stream: Stream) -> None:
    await stream.delete_consumer("C")


async def nothing(_served: Served, _stream: Stream) -> None:
    pass


async def dies_at(call: int, before: Change, then: Change) -> tuple[FaultyDisk, bool]:
    """Return the disk after a power failure at that call of `then`, and whether it succeeded."""
    disk = FaultyDisk(seed=call)
    served = await start(DATA, disk=disk)
    stream = await served.stream()
    await before(served, stream)
    disk.power_fails_at = call
    change = asyncio.ensure_future(then(served, stream))
    while not change.done() and not disk.is_off:  # noqa: ASYNC110 - it sends no event
        await asyncio.sleep(0)
    is_done = False
    with contextlib.suppress(PowerLoss, ApiError, StoreError):
        if change.done():
            await change
            is_done = True
    disk.is_off = True
    served.jetstream.scheduler.close()
    await end_other_tasks()
    served.jetstream.volume._let_go()
    served.jetstream.reactor.close()
    return disk.crash(seed=call), is_done


async def deaths(before: Change, then: Change) -> AsyncIterator[tuple[str | None, bool]]:
    """Yield the description found after each power failure, and whether the change succeeded."""
    for call in range(CALLS_MAX):
        disk, is_done = await dies_at(call, before, then)
        async with serving(DATA, disk=disk) as served:
            stream = await served.stream()
            consumer = stream.consumers.get("C")
            description = None if consumer is None else consumer.config.description
            await make(served, stream)
        yield description, is_done
        if is_done:
            return
    raise AssertionError("the change needs more calls than that")


async def test_a_consumer_is_made_or_not() -> None:
    seen = set()
    async for description, is_done in deaths(nothing, make):
        seen.add(description)
        assert description == "one" if is_done else description in (None, "one")
    assert seen == {None, "one"}


async def test_a_consumer_is_changed_or_not() -> None:
    seen = set()
    async for description, is_done in deaths(make, change):
        seen.add(description)
        assert description == "two" if is_done else description in ("one", "two")
    assert seen == {"one", "two"}


async def test_a_consumer_is_removed_or_not() -> None:
    seen = set()
    async for description, is_done in deaths(make, remove):
        seen.add(description)
        assert description is None if is_done else description in ("one", None)
    assert seen == {"one", None}


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "rename", "mkdir"])
async def test_a_full_disk_makes_no_consumer(call: str) -> None:
    disk = FaultyDisk(seed=1)
    async with serving(DATA, disk=disk) as served:
        stream = await served.stream()
        disk.fail(call, errno.ENOSPC)
        with pytest.raises(ApiError) as refused:
            await make(served, stream)
        assert refused.value.err_code == 10047
        assert not stream.consumers
        await make(served, stream)
        assert stream.consumer("C").config.description == "one"


async def test_a_disk_that_refuses_a_change_leaves_the_consumer_as_it_was() -> None:
    disk = FaultyDisk(seed=1)
    async with serving(DATA, disk=disk) as served:
        stream = await served.stream()
        await make(served, stream)
        disk.fail("rename", errno.EIO, path=".new")
        with pytest.raises(ApiError) as refused:
            await change(served, stream)
        assert refused.value.err_code == 10104
        assert stream.consumer("C").config.description == "one"
        await change(served, stream)
        assert stream.consumer("C").config.description == "two"
