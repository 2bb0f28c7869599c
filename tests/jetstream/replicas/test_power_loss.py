"""The power of all servers fails at once: what was acknowledged is there, whatever was not synced.

Each disk keeps or loses each sector that was not synced. The logs of the group have to make up for
what the files have lost, and no damage may look like that of a sector that was synced.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.jetstream.power import ROOT
from tests.jetstream.replicas.servers import OPTIONS, Servers
from tests.jetstream.replicas.test_histories import PUBLISHERS, WORKER, History
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(300),
    # Tasks that the power loss ends before their first step leave coroutines behind.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

LIVES = 4
SECONDS_MAX = 2.0


class Lives:
    """The disks of the servers, and what clients were told, from one start to the next."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.disks = [FaultyDisk(seed=3 * seed + at) for at in range(3)]
        self.before: History | None = None

    async def live(self, seconds: float) -> None:
        """Start the servers, check what they have, and use them until the power fails."""
        servers = Servers(ROOT, 3, OPTIONS, self.disks)
        for server in servers.all:
            await server.start()
        history = await self.begin(servers)
        clients = [asyncio.create_task(history.publish()) for _ in range(PUBLISHERS)]
        clients.append(asyncio.create_task(history.consume()))
        await asyncio.sleep(seconds)
        for each in clients:
            assert not each.done(), each
        self.disks = [disk.crash(self.random.randrange(1 << 30)) for disk in self.disks]
        await end_other_tasks()
        for server in servers.all:
            server.jetstream.scheduler.close()
            server.jetstream.reactor.close()
        self.before = history

    async def begin(self, servers: Servers) -> History:
        """Make the stream, or check that it has all that was acknowledged."""
        history = History(servers, self.seed)
        if self.before is None:
            await servers.create(subjects=["orders.>"])
            leader = await servers.leader()
            await leader.stream.create_consumer(WORKER, "create")
            return history
        servers.config = self.before.servers.config
        servers.created_ns = self.before.servers.created_ns
        for server in servers.all:
            await servers.serve(server)
        history.acknowledged = self.before.acknowledged
        history.delivered = self.before.delivered
        history.confirmed, history.ids = self.before.confirmed, self.before.ids
        await servers.leader()  # before, replicas may be level with what they had on disk
        await servers.agree()
        await history.check()
        return history


@pytest.mark.parametrize("seed", range(TORTURE))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    lives = Lives(seed)
    for _ in range(LIVES):
        asyncio.run(lives.live(lives.random.uniform(0.1, SECONDS_MAX)))
    assert lives.before is not None
    assert lives.before.acknowledged
