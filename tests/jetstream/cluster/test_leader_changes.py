"""A server leads a stream, follows another leader, and leads again: its work goes on."""

from __future__ import annotations

import asyncio

import pytest
from nats.js.api import RetentionPolicy, StreamSource
from nats.js.client import JetStreamContext

from natsd.testing.nats_cluster import NatsCluster
from tests.jetstream.cluster.asking import NAMES, hand_over, leader_of, wait_until_whole


async def wait_for_sequence(js: JetStreamContext, stream: str, sequence: int) -> None:
    async with asyncio.timeout(20):
        while (await js.stream_info(stream)).state.last_seq < sequence:  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["mirror", "sources"])
async def test_a_copy_goes_on_when_its_first_leader_leads_again(
    cluster: NatsCluster, kind: str
) -> None:
    client = await cluster.connect(0)
    js = client.jetstream()
    origin = StreamSource(name="ORIGIN")
    settings = {"mirror": origin} if kind == "mirror" else {"sources": [origin]}
    await js.add_stream(name="ORIGIN", subjects=["o"], num_replicas=3)
    await js.add_stream(name="COPY", num_replicas=3, **settings)
    await wait_until_whole(client, "COPY", set(NAMES))
    first = await leader_of(client, "COPY")
    other = next(name for name in NAMES if name != first)
    stored = 0
    for server in (first, other, first, other, first):
        await hand_over(client, "COPY", server)
        for _ in range(20):
            stored += 1
            await js.publish("o", b"%d" % stored)
        await wait_for_sequence(js, "COPY", stored)
    assert [(await js.get_msg("COPY", at)).data for at in range(1, stored + 1)] == [
        b"%d" % at for at in range(1, stored + 1)
    ]


async def test_what_another_leader_copied_is_not_copied_again(cluster: NatsCluster) -> None:
    """The copies are consumed, and so removed, before the first leader leads again."""
    client = await cluster.connect(0)
    js = client.jetstream()
    await js.add_stream(name="ORIGIN", subjects=["o"], num_replicas=3)
    await js.add_stream(
        name="COPY",
        num_replicas=3,
        sources=[StreamSource(name="ORIGIN")],
        retention=RetentionPolicy.WORK_QUEUE,
    )
    await wait_until_whole(client, "COPY", set(NAMES))
    pull = await js.pull_subscribe("o", "worker", "COPY")
    first = await leader_of(client, "COPY")
    other = next(name for name in NAMES if name != first)
    received: list[bytes] = []
    stored = 0
    for server in (first, other, first, other):
        await hand_over(client, "COPY", server)
        for _ in range(20):
            stored += 1
            await js.publish("o", b"%d" % stored)
        await wait_for_sequence(js, "COPY", stored)
        while len(received) < stored:
            for message in await pull.fetch(20, timeout=5):
                received.append(message.data)
                await message.ack_sync()
    await js.publish("o", b"last")
    (message,) = await pull.fetch(1, timeout=10)
    received.append(message.data)
    assert received == [*(b"%d" % at for at in range(1, stored + 1)), b"last"]
