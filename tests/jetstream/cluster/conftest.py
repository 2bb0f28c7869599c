"""Clusters whose servers have JetStream, and lead and follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import natsd.testing
from natsd.testing.nats_cluster import NatsCluster
from tests.jetstream.cluster.sites import CONFIG, FAR, NEAR


@pytest.fixture
async def cluster() -> AsyncIterator[NatsCluster]:
    async with natsd.testing.cluster(jetstream=True) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


@pytest.fixture
async def sites() -> AsyncIterator[NatsCluster]:
    """Three servers in one site, and two in another one that is far from it."""
    per_server = [NEAR, NEAR, NEAR, FAR, FAR]
    async with natsd.testing.cluster(5, config=CONFIG, per_server=per_server) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers
