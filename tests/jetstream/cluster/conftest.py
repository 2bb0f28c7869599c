"""Three servers with JetStream, which lead and follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import natsd.testing
from natsd.testing.nats_cluster import NatsCluster


@pytest.fixture
async def cluster() -> AsyncIterator[NatsCluster]:
    async with natsd.testing.cluster(jetstream=True) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers
