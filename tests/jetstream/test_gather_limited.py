"""The same work for many things: a bounded number at once, and the first failure is raised."""

import asyncio

import pytest

from natsd.jetstream.gather_limited import gather_limited


async def test_all_of_it_is_done_a_few_at_a_time() -> None:
    done: list[int] = []
    under_way: set[int] = set()
    most_seen = 0

    async def work(item: int) -> None:
        nonlocal most_seen
        under_way.add(item)
        most_seen = max(most_seen, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(item)
        done.append(item)

    await gather_limited(work, range(20), most=3)
    assert sorted(done) == list(range(20))
    assert most_seen == 3


async def test_a_failure_ends_the_others_and_is_raised_as_it_is() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise OSError("no disk")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    with pytest.raises(OSError, match="no disk"):
        await gather_limited(work, range(3), most=3)
    assert sorted(ended) == [0, 2]
