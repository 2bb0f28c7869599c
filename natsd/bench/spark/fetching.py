"""Reading without Spark: nats-py's pull subscription, fetched in a loop into a list."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import ClassVar

from natsd.bench.jetstream.arms import JetStreamServer
from natsd.bench.spark.filling import fill, url
from natsd.bench.spark.reading import stream_of
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError

FETCHED_AT_ONCE = 1_000


@dataclass(frozen=True)
class Fetch(SparkScenario):
    """A nats-py consumer without acknowledgements, which fetches a thousand messages at once."""

    needs: ClassVar[str] = "nats"

    messages: int
    payload_bytes: int

    def prepare(self, stage: Stage, server: JetStreamServer) -> None:
        """Fill the stream."""
        fill(server, stream_of(self.payload_bytes), self.messages, self.payload_bytes)

    def run(self, stage: Stage, server: JetStreamServer) -> Run:
        """Fetch all messages and measure the rate, and the CPU time per message."""
        began = time.process_time()
        seconds = asyncio.run(self._fetch(url(server)))
        used = (time.process_time() - began) / self.messages
        return Run({"rate": self.messages / seconds, "cpu": used})

    async def _fetch(self, server: str) -> float:
        """Return the seconds from the subscription to the last message.

        Raises LoadError if the fetched bytes are not those that were published.
        """
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        client = await nats.connect(server)
        try:
            context = client.jetstream()
            began = time.perf_counter()
            config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True)
            subscription = await context.pull_subscribe(
                "", stream=stream_of(self.payload_bytes), config=config
            )
            found: list[bytes] = []
            while len(found) < self.messages:
                wanted = min(FETCHED_AT_ONCE, self.messages - len(found))
                found += [message.data for message in await subscription.fetch(wanted)]
            seconds = time.perf_counter() - began
            await subscription.unsubscribe()
        finally:
            await client.close()
        if sum(map(len, found)) != self.messages * self.payload_bytes:
            raise LoadError("nats-py fetched something else")
        return seconds
