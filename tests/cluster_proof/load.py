"""All clients together: they begin on a whole cluster, and go on until they are told to end."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.cluster_proof.clients import FAILURES, Refused, RoamingClient
from tests.cluster_proof.consuming import CONSUMER, pull
from tests.cluster_proof.journal import Journal
from tests.cluster_proof.key_value import BUCKET, SUBJECT, KeyClient
from tests.cluster_proof.publishing import (
    STREAM,
    SUBJECTS,
    Probe,
    Publisher,
    chained,
    one_at_a_time,
    pipelined,
)
from tests.waiting import eventually_within

SECOND_NS = 1_000_000_000
ACK_WAIT_NS = 2 * SECOND_NS
DUPLICATE_WINDOW_NS = 600 * SECOND_NS
PUBLISHERS = {"one": one_at_a_time, "two": one_at_a_time, "many": pipelined, "chain": chained}
PULLERS = 2
KEY_CLIENTS = 3
PROGRESS = 5
END_S = 60.0


def stream_config(replicas: int, learning: int = 0) -> dict[str, Any]:
    """Return the stream's configuration; `learning` is the number of its read replicas."""
    config = {
        "name": STREAM,
        "subjects": [SUBJECTS],
        "num_replicas": replicas,
        "duplicate_window": DUPLICATE_WINDOW_NS,
    }
    if learning:
        config |= {"allow_direct": True, "metadata": {"natsd.read_replicas": str(learning)}}
    return config


class Load:
    """The clients of one run."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        self.journal = Journal()
        self._urls = tuple(urls)
        self._chance = random.Random(seed)
        self._clients: list[RoamingClient] = []
        self.client = self._new_client()
        """For requests of the scenario."""
        self.probe = Probe(urls, self.journal, self._chance)
        self._clients += [each.client for each in self.probe.publishers]
        self._publishers = {name: self._publisher(name) for name in PUBLISHERS}
        self.replicas = dict[str, int]()
        """How many replicas each stream has."""
        self._end, self._end_pulling = asyncio.Event(), asyncio.Event()

    def _new_client(self) -> RoamingClient:
        client = RoamingClient(self._urls, random.Random(self._chance.random()))
        self._clients.append(client)
        return client

    def _publisher(self, name: str) -> Publisher:
        return Publisher(name, self._new_client(), self.journal)

    async def create_streams(self, replicas: int, learning: int = 0) -> None:
        """Create the stream, its consumer and the bucket, as soon as the cluster can.

        The stream has `learning` read replicas besides.
        """
        self.replicas = {STREAM: replicas, BUCKET: replicas}
        await self._create(f"STREAM.CREATE.{STREAM}", **stream_config(replicas, learning))
        config = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": 10_000,
        }
        await self._create(
            f"CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", stream_name=STREAM, config=config
        )
        await self._create(
            f"STREAM.CREATE.{BUCKET}",
            name=BUCKET,
            subjects=[f"{SUBJECT}.>"],
            num_replicas=replicas,
            max_msgs_per_subject=-1,
            allow_rollup_hdrs=True,
            deny_delete=True,
        )

    async def scale(self, replicas: int) -> None:
        """Change the number of the stream's replicas."""
        self.replicas[STREAM] = replicas
        await self.client.api_soon(f"STREAM.UPDATE.{STREAM}", **stream_config(replicas))

    async def _create(self, subject: str, **body: object) -> None:
        """Ask until it succeeds: a cluster that has just begun has no leader yet."""
        async with asyncio.timeout(END_S):
            while True:
                try:
                    await self.client.api(subject, 5.0, **body)
                    return
                except (*FAILURES, Refused) as error:
                    self.journal.failed(error)
                await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the clients; at the end, which needs a whole cluster, let each finish its work."""
        key_clients = [
            KeyClient(self._new_client(), self.journal, self._chance) for _ in range(KEY_CLIENTS)
        ]
        pullers = [
            pull(self._new_client(), self.journal, self._end_pulling) for _ in range(PULLERS)
        ]
        writing = [run(self._publishers[name], self._end) for name, run in PUBLISHERS.items()]
        writing += [self.probe.run(self._end), *(each.run(self._end) for each in key_clients)]
        async with asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(each) for each in writing]
            for each in pullers:
                tasks.create_task(each)
            try:
                await self.until_progress()
                yield
                await self.until_progress()
                self._end.set()
                await eventually_within(lambda: all(each.done() for each in writers), END_S)
                await self._until_consumed()
            finally:  # nats-py hides some cancellations: after a failure, too, the tasks must end
                self._end.set()
                self._end_pulling.set()

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(client.close() for client in self._clients))

    async def until_progress(self, count: int = PROGRESS) -> None:
        """Wait until each publisher has several further acknowledgements."""
        wanted = {each: each.count + count for each in self._publishers.values()}
        try:
            await eventually_within(lambda: all(e.count >= n for e, n in wanted.items()), END_S)
        except AssertionError:
            waiting = ", ".join(each.name for each, n in wanted.items() if each.count < n)
            raise AssertionError(f"publishers without progress: {waiting}") from None

    async def _until_consumed(self) -> None:
        """Wait until the consumer has nothing that it must deliver, or deliver again."""
        async with asyncio.timeout(END_S):
            while True:
                info = await self.client.api_soon(f"CONSUMER.INFO.{STREAM}.{CONSUMER}")
                if not info["num_pending"] and not info["num_ack_pending"]:
                    return
                await asyncio.sleep(0.1)
