"""Only the store of waiting messages fails; publishers that depend on a lost one are told."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natsd.jetstream.jetstream import JetStream
from tests.jetstream.serving import account_of, create, publish, serving
from tests.jetstream.stream.publishing import header_block
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import eventually_within

START, APPEND, COMMIT = range(3)
FULL = 10023


@dataclass
class Publisher:
    """A client that publishes in one turn of the loop, and its answers."""

    jetstream: JetStream
    heard: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        client = account_of(self.jetstream).account.internal_client
        client.subscribe("in.>", self._take)

    def _take(self, subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        self.heard.setdefault(subject.removeprefix("in."), []).append(json.loads(data))

    def publish(self, reply: str, data: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        account_of(self.jetstream).account.internal_client.publish(
            "s.1", data, reply=f"in.{reply}", headers=header_block(named)
        )

    def send(self, batch: str, sequence: int, operation: int, **headers: str) -> None:
        """Send a message of a fast batch."""
        self.publish(f"{batch}.10.fail.{sequence}.{operation}.$FI", **headers)

    def told(self, batch: str) -> list[Any]:
        """Return the answers to a batch, without flow messages."""
        return [
            each
            for reply, answers in self.heard.items()
            if reply.startswith(f"{batch}.")
            for each in answers
            if "type" not in each
        ]


def errors(answers: list[Any]) -> list[int]:
    return [each["error"]["err_code"] for each in answers]


@asynccontextmanager
async def full_for_delays() -> AsyncIterator[tuple[JetStream, Publisher]]:
    """The stream's own messages find room on the disk, the next waiting message does not."""
    disk = FaultyDisk(seed=1)
    async with serving(Path("/data"), disk=disk) as jetstream:
        await create(jetstream, "S", subjects=["s.>"], allow_msg_schedules=True, allow_batched=True)
        await publish(jetstream, "s.0")
        disk.fail("pwrite", errno.ENOSPC, path="delayed/000001.blk")
        yield jetstream, Publisher(jetstream)


async def test_a_fast_batch_ends_without_a_pub_ack() -> None:
    async with full_for_delays() as (jetstream, publisher):
        publisher.send("A", 1, START)
        publisher.send("A", 2, APPEND, Nats_Delay="1h")
        publisher.send("B", 1, START)
        await eventually_within(lambda: publisher.told("A"))
        publisher.send("A", 3, COMMIT)
        publisher.send("B", 2, COMMIT)
        await eventually_within(lambda: publisher.told("B") and len(publisher.told("A")) == 2)
        assert errors(publisher.told("A")) == [FULL, 10208]  # of an unknown batch
        assert publisher.told("B") == [{"stream": "S", "seq": 5, "batch": "B", "count": 2}]
        assert account_of(jetstream).stream("S").readers.log.msgs == 4


async def test_a_commit_that_came_meanwhile_is_no_success() -> None:
    async with full_for_delays() as (_, publisher):
        publisher.send("A", 1, START)
        publisher.send("A", 2, APPEND, Nats_Delay="1h")
        publisher.send("A", 3, COMMIT)
        publisher.send("A", 1, START)  # a new batch, which lost nothing
        publisher.send("A", 2, COMMIT)
        await eventually_within(lambda: len(publisher.told("A")) == 3)
        assert errors(publisher.told("A")[:2]) == [FULL, FULL]
        assert publisher.told("A")[2] == {"stream": "S", "seq": 6, "batch": "A", "count": 2}


async def test_what_was_lost_has_no_duplicate() -> None:
    async with full_for_delays() as (_, publisher):
        publisher.publish("1", Nats_Msg_Id="x", Nats_Delay="1h")
        publisher.publish("2", Nats_Msg_Id="x", Nats_Delay="1h")
        publisher.publish("3")
        await eventually_within(lambda: "3" in publisher.heard)
        assert errors(publisher.heard["1"] + publisher.heard["2"]) == [FULL, FULL]
        assert publisher.heard["3"] == [{"stream": "S", "seq": 3}]


async def test_a_batch_rests_on_what_its_duplicates_repeat() -> None:
    async with full_for_delays() as (_, publisher):
        publisher.publish("1", Nats_Msg_Id="x", Nats_Delay="1h")
        publisher.send("A", 1, START)
        publisher.send("A", 2, APPEND, Nats_Msg_Id="x", Nats_Delay="1h")
        publisher.send("A", 3, COMMIT)
        publisher.send("B", 1, COMMIT, Nats_Msg_Id="x", Nats_Delay="1h")
        publisher.publish("2")
        await eventually_within(lambda: "2" in publisher.heard)
        assert errors(publisher.heard["1"]) == [FULL]
        assert errors(publisher.told("A")) == [FULL, FULL]
        assert errors(publisher.told("B")) == [FULL]


async def test_what_is_kept_counts() -> None:
    async with serving(Path("/data"), disk=FaultyDisk(seed=1)) as jetstream:
        await create(jetstream, "S", subjects=["s.>"], allow_msg_schedules=True, allow_batched=True)
        publisher = Publisher(jetstream)
        publisher.send("A", 1, START)
        publisher.send("A", 2, APPEND, Nats_Delay="1h")
        await asyncio.sleep(0)
        publisher.send("A", 3, COMMIT)
        await eventually_within(lambda: publisher.told("A"))
        assert publisher.told("A") == [{"stream": "S", "seq": 3, "batch": "A", "count": 3}]
