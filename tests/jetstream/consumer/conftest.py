"""The bench as a fixture."""

from collections.abc import AsyncIterator

import pytest

from tests.jetstream.consumer.bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()
