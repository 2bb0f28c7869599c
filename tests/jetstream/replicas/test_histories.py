"""Random faults: whatever was acknowledged is there in the end, once, on all replicas.

Publishers and a consumer go on all the time, through whichever server leads, while servers are cut
off, restarted, and lose their files or a bit of them. The seed of a failure is in its message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import Storage
from natsd.raft.group import GroupLimits
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.serving import ask
from tests.store.crash import TORTURE
from tests.waiting import eventually_within

pytestmark = [pytest.mark.torture, pytest.mark.timeout(600)]

STEPS = 8
FAULTS = {
    Storage.FILE: ["cut", "restart", "restart", "wipe", "flip"],
    Storage.MEMORY: ["cut", "restart", "restart"],
}
PAUSE_S = 0.01
SUBJECTS = 5
PUBLISHERS = 3
WORKER = ConsumerConfig(
    durable_name="worker", ack_policy=AckPolicy.EXPLICIT, ack_wait=1_000_000_000
)


class History:
    """The servers, what was done to them, and what clients were told."""

    def __init__(self, servers: Servers, seed: int) -> None:
        self.servers = servers
        self.seed = seed
        self.random = random.Random(seed)
        self.done: list[tuple[str, int]] = []  # faults, with the number of the server
        self.is_over = False
        self.acknowledged: dict[int, bytes] = {}
        self.confirmed: Counter[bytes] = Counter()
        self.delivered: set[bytes] = set()
        self.ids = 0

    # ---- clients

    def leader(self) -> Server | None:
        """Return a server that takes messages."""
        leading = [each for each in self.servers.all if each.is_up and each.replica.is_leading]
        return self.random.choice(leading) if leading else None

    async def publish(self) -> None:
        """Publish one message after the other, each until it is acknowledged."""
        while not self.is_over:
            self.ids += 1
            data = b"%d" % self.ids
            subject = f"orders.{self.random.randrange(SUBJECTS)}"
            headers = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % data
            payload = data + b" " + bytes(self.random.choice([0, 100, 3000]))
            sequence = None
            while sequence is None:
                sequence = await self.published(subject, payload, headers)
                await asyncio.sleep(PAUSE_S)
            assert sequence not in self.acknowledged, (self.seed, self.done, sequence)
            self.acknowledged[sequence] = payload

    async def published(self, subject: str, payload: bytes, headers: bytes) -> int | None:
        """Publish once; return the sequence, or None: it is not known whether it is stored."""
        leader = self.leader()
        if leader is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                (_, answer), *_ = await ask(leader.jetstream, subject, payload, headers)
                ack = json.loads(answer)
                return None if "error" in ack else int(ack["seq"])
        return None

    async def consume(self) -> None:
        """Fetch messages, and acknowledge each until that is confirmed, or the leader is gone."""
        while not self.is_over:
            leader = self.leader()
            if leader is None:
                await asyncio.sleep(PAUSE_S)
                continue
            with contextlib.suppress(TimeoutError, ApiError):
                async with asyncio.timeout(1):
                    await self.fetch(leader)

    async def fetch(self, leader: Server) -> None:
        client = leader.stream.account.account.internal_client
        inbox = f"_INBOX.{self.random.random()}"
        arrived: asyncio.Queue[tuple[str | None, bytes]] = asyncio.Queue()
        subscription = client.subscribe(
            inbox, lambda _subject, reply, _head, data: arrived.put_nowait((reply, data))
        )
        try:
            subject = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"
            client.publish(subject, b'{"batch":5,"expires":500000000}', reply=inbox)
            while True:
                reply, data = await arrived.get()
                if reply is None or not reply.startswith("$JS.ACK."):
                    return
                self.delivered.add(data)
                await ask(leader.jetstream, reply, b"+ACK")
                self.confirmed[data] += 1
        finally:
            client.unsubscribe(subscription)

    # ---- faults

    async def break_something(self) -> None:
        """Do something to a minority of the servers, and mend it after a while."""
        server = self.random.choice(self.servers.all)
        what = self.random.choice(FAULTS[self.servers.config.storage])
        self.done.append((what, server.number))
        if what == "cut":
            self.servers.cut(server)
            await asyncio.sleep(self.random.uniform(0.1, 3))
            self.servers.network.cut.clear()
        else:
            await server.stop()
            await asyncio.sleep(self.random.uniform(0, 1))
            directory = server.stream_directory
            if what == "wipe":
                shutil.rmtree(directory)
            elif what == "flip":
                self.flip(directory)
            await server.start()
            await self.servers.serve(server)
            if not server.stream.is_filed:  # it survives the loss of one replica at a time
                await eventually_within(lambda: server.replica.is_current, 60)
        await asyncio.sleep(self.random.uniform(0.1, 2))

    def flip(self, directory: Path) -> None:
        """Flip a bit of a block."""
        blocks = sorted(directory.glob("msgs/*.blk"))
        if not blocks:
            return
        path = self.random.choice(blocks)
        content = bytearray(path.read_bytes())
        if content:
            content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
            path.write_bytes(content)

    async def run(self) -> None:
        """Run the history, and check what is left."""
        leader = await self.servers.leader()
        await leader.stream.create_consumer(WORKER, "create")
        await leader.stream.agreed()
        clients = [asyncio.create_task(self.publish()) for _ in range(PUBLISHERS)]
        clients.append(asyncio.create_task(self.consume()))
        for _ in range(STEPS):
            await self.break_something()
            for each in clients:
                assert not each.done(), await each
        self.is_over = True
        async with asyncio.timeout(60):
            await asyncio.gather(*clients)
        await self.servers.agree()
        await self.check()

    async def check(self) -> None:
        stream = (await self.servers.leader()).stream
        log = stream.readers.log
        stored = {}
        for sequence in range(1, log.last_sequence + 1):
            if log.has(sequence):
                stored[sequence] = (await stream.store.load(sequence)).data
        for sequence, data in self.acknowledged.items():
            assert stored[sequence] == data, sequence
        times = Counter(data.split(b" ")[0] for data in stored.values())
        assert not [name for name, count in times.items() if count > 1]
        assert self.delivered <= set(stored.values())


@pytest.mark.parametrize("number", range(TORTURE))
@pytest.mark.parametrize("storage", Storage)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, number: int, storage: Storage) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    limits = GroupLimits(snapshot_after_entries=100)
    async with cluster(tmp_path, limits=limits) as servers:
        window_ns = 60_000_000_000
        await servers.create(subjects=["orders.>"], duplicate_window=window_ns, storage=storage)
        await History(servers, seed).run()
