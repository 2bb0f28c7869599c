"""Fixtures: `open_store` opens a new store of each kind, `volume` is a volume for a file store."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.disk.real_disk import RealDisk
from natsd.store.log_store import LogStore
from natsd.store.store import Limits
from tests.store.store_kinds import STORE_KINDS

OpenStore = Callable[..., Awaitable[LogStore]]


@pytest.fixture(params=sorted(STORE_KINDS))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Return a function that opens a new store with the given limits.

    A test calls it as `await open_store(max_msgs=3)`. Each test runs once for each kind in
    STORE_KINDS. The stores are closed when the test ends.
    """
    opened: list[LogStore] = []

    async def open_one(**limits: Any) -> LogStore:
        directory = tmp_path / str(len(opened))
        directory.mkdir()
        store = await STORE_KINDS[request.param](directory, Limits(**limits))
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def volume(tmp_path: Path) -> AsyncIterator[Volume]:
    """Yield a volume in the test's directory, which is closed when the test ends."""
    loop = asyncio.get_running_loop()
    opened = Volume.open(RealDisk(), tmp_path, os.urandom, loop=loop)
    yield opened
    await opened.close()
