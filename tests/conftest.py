"""Fixtures and settings for all tests: the choice of event loop, and waiting with a deadline.

Async tests run on uvloop. A test marked `both_loops` runs on uvloop and on plain asyncio; `pytest
--loop=asyncio` runs all tests on plain asyncio, as `make debug` does.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import uvloop
from hypothesis import settings

import natsd
from tests.waiting import Eventually, eventually_within

settings.register_profile("natsd", deadline=None)  # a busy machine is no failure
settings.load_profile("natsd")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS: Mapping[str, LoopFactory] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=LOOPS, default="uvloop", help="event loop of async tests")


def pytest_collection_finish() -> None:
    """Exclude the imported and collected objects from garbage collection.

    Tests of the objects that a server leaves behind collect garbage often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _left_behind() -> Iterator[None]:
    """Exclude what the tests of a module leave behind from garbage collection, too.

    Otherwise each collection of a test takes longer the later it runs: in the end, seconds.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"natsd: {natsd.__file__}", f"loop: {config.getoption('--loop')}"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    if item.get_closest_marker("both_loops"):
        return LOOPS
    chosen = config.getoption("--loop")
    return {chosen: LOOPS[chosen]}


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import make_scheduler  # not at the top: xdist may be switched off

    return make_scheduler(config, log)


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    """Restore the logger's level and propagation, which the log of a daemon changes."""
    logger = logging.getLogger("natsd")
    level, propagate = logger.level, logger.propagate
    yield
    if logger.level != level:
        logger.setLevel(level)
    logger.propagate = propagate


@pytest.fixture
def eventually() -> Eventually:
    """Return the waiting function: `await eventually(lambda: not server.clients)`.

    The test fails if the condition does not hold in time.
    """
    return eventually_within
