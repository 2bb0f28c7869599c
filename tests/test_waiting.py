"""The waiting function and the choice of event loop work as the tests need them."""

import asyncio

import pytest
import uvloop

from tests.waiting import Eventually


async def test_returns_when_the_condition_holds(eventually: Eventually) -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, done.set)
    await eventually(done.is_set)


async def test_fails_at_the_deadline(eventually: Eventually) -> None:
    with pytest.raises(AssertionError, match=r"still false after 0\.02 s"):
        await eventually(lambda: False, deadline_s=0.02)


@pytest.mark.both_loops
async def test_runs_on_both_loops(request: pytest.FixtureRequest) -> None:
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    assert is_uvloop == ("uvloop" in request.node.name)
