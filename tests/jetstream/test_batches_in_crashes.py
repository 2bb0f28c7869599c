"""Atomic batches when the server is killed or the power fails (ADR-50, docs/store.md).

Of each batch either all messages are there or none; every acknowledged message is there.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from natsd.jetstream.jetstream import JetStream
from natsd.store.file_store import FileStore
from tests.clients.target import GO_SERVER
from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.batch import Batch
from tests.jetstream.power import ROOT, run_until_off
from tests.jetstream.serve import connect, kill_soon, load_until_gone, serve_files
from tests.jetstream.serving import account_of, create, publish, serving
from tests.jetstream.stream.publishing import header_block
from tests.store.crash import TORTURE
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import everything

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server does not sync by default"),
]

SIZE = 7
"""The number of messages in a batch."""
BLOCK_BYTES = 700
LARGE = bytes(40_000)
"""A payload of which a block of a stream without limits holds some hundred."""
SLICED = bytes(250_000)
"""A payload so large that the loop needs several turns to append a batch."""
PUBLISHERS = 4
ROUNDS = 3 * TORTURE
LAST_CALL = 60
STEP = 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that a batch is longer than a block."""
    monkeypatch.setattr("natsd.store.file_store.SMALL_BLOCK_BYTES", BLOCK_BYTES)


# ---- kill -9


async def publish_batches(api: Api, name: str, payload: bytes, acknowledged: set[str]) -> None:
    """Publish one batch after another until the server is gone."""
    number = 0
    while True:
        batch = Batch(api.nc, f"{name}-{number}")
        number += 1
        for _ in range(SIZE - 1):
            named = {"Nats-Batch-Id": batch.batch_id, "Nats-Batch-Sequence": f"{batch.count + 1}"}
            batch.count += 1
            await api.nc.publish(f"s.{name}", payload, headers=named)
        acked = await batch.commit(f"s.{name}", payload)
        assert acked["count"] == SIZE
        acknowledged.add(batch.batch_id)


async def batches_of(api: Api) -> list[str]:
    """Return the batch id of every message, in stream order."""
    found = []
    state = await api.stream_state("S")
    subscription = await api.nc.jetstream().subscribe("s.>", stream="S", ordered_consumer=True)
    for _ in range(state["messages"]):
        message = await subscription.next_msg(10)
        assert message.headers is not None
        found.append(message.headers["Nats-Batch-Id"])
    await subscription.unsubscribe()
    return found


async def test_kill_9(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(7), set[str]()
    for number in range(ROUNDS):
        server = await asyncio.to_thread(serve_files, tmp_path)
        client = await connect(server)
        api = Api(client)
        if number == 0:
            await api.create_stream("S", subjects=["s.>"], storage="file", allow_atomic=True)
        counts = Counter(await batches_of(api))
        assert set(counts.values()) <= {SIZE}
        assert acknowledged <= set(counts)
        await client.close()
        killer = asyncio.ensure_future(kill_soon(server, 0.1 + chance.random() / 2))
        work = [
            partial(
                publish_batches,
                name=f"r{number}p{place}",
                payload=SLICED if place % 2 else LARGE,
                acknowledged=acknowledged,
            )
            for place in range(PUBLISHERS)
        ]
        await load_until_gone(server, work)
        await killer
    server = await asyncio.to_thread(serve_files, tmp_path)
    client = await connect(server)
    found = await batches_of(Api(client))
    assert acknowledged <= set(found)
    assert [found[at] for at in range(0, len(found), SIZE) for _ in range(SIZE)] == found
    await client.close()
    await asyncio.to_thread(server.stop)


# ---- the power fails


class Program:
    """A program that publishes batches and single messages and notes the acknowledged ones."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []

    async def run(self, jetstream: JetStream) -> None:
        await create(
            jetstream, "S", subjects=["s.>"], storage="file", allow_atomic=True, max_bytes=9000
        )
        for number in range(3):
            await publish(jetstream, "s.single", b"x" * 50)
            await self.publish_batch(jetstream, f"b{number}")

    async def publish_batch(self, jetstream: JetStream, batch_id: str) -> None:
        client = account_of(jetstream).account.internal_client
        for number in range(1, SIZE):
            headers = header_block({"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": f"{number}"})
            client.publish(f"s.{batch_id}", b"x" * 60, headers=headers)
        last = {"Nats-Batch-Sequence": f"{SIZE}", "Nats-Batch-Commit": "1"}
        headers = header_block({"Nats-Batch-Id": batch_id, **last})
        answer = await publish(jetstream, f"s.{batch_id}", b"x" * 60, headers)
        if "error" not in answer:
            self.acknowledged.append(batch_id)


async def look(disk: FaultyDisk, program: Program) -> None:
    async with serving(ROOT, disk=disk) as jetstream:
        stream = account_of(jetstream).streams.get("S")
        found: Counter[str] = Counter()
        if stream is not None:
            assert isinstance(stream.store, FileStore)
            found.update(message.subject for message in await everything(stream.store))
        batches = {subject: count for subject, count in found.items() if subject != "s.single"}
        assert set(batches.values()) <= {SIZE}
        assert {f"s.{batch_id}" for batch_id in program.acknowledged} <= set(batches)


@pytest.mark.parametrize("number", range(5, LAST_CALL, STEP if TORTURE == 1 else 1))
def test_the_power_fails(number: int, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(3 * TORTURE):
        disk, program = FaultyDisk(seed=seed), Program()
        disk.power_fails_at = number
        with caplog.at_level(logging.CRITICAL):  # losses are logged as failures
            asyncio.run(run_until_off(disk, program))
        asyncio.run(look(disk.crash(seed=seed), program))
