"""What is known of messages that were removed: their ids, and the positions of sources.

Every replica knows it, however it got the stream: a retry is no second message, whoever leads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import StreamSource
from natsd.jetstream.sourcing.positions import Positions
from tests.jetstream.commands.replay import message_ids
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.replicas.test_stream_replica import work
from tests.jetstream.serving import publish
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)
SNAPSHOT = 50
"""A group of these tests takes a snapshot behind so many entries."""


async def create(servers: Servers, **settings: Any) -> tuple[Server, Server]:
    """Return the leader of a work queue, and another server."""
    await servers.create(subjects=["orders.>"], **{"retention": "workqueue", **settings})
    leader = await servers.leader()
    await leader.stream.create_consumer(WORKER, "create")
    return leader, next(each for each in servers.all if each is not leader)


async def lead(servers: Servers, server: Server) -> None:
    """Have that server lead."""
    leader = await servers.leader()
    if leader is not server:
        leader.group.transfer_leadership(server.group.node.id)
    await eventually_within(
        lambda: server.replica.is_leading and not server.stream.ingest.is_paused
    )


async def retry(server: Server, message_id: str) -> dict[str, Any]:
    headers = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n".encode()
    return await publish(server.jetstream, "orders.new", b"again", headers)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_replica_that_was_left_behind_knows_the_ids(tmp_path: Path, storage: str) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers, storage=storage)
        servers.cut(other)
        for number in range(120):
            await servers.store("orders.new", b"%d" % number)
        await work(leader, 100)
        await eventually_within(lambda: leader.group.node.log.snapshot.index > SNAPSHOT)
        servers.network.cut.clear()
        await servers.agree(lambda: other.transfer.fetched)
        assert len(message_ids(other.stream, 0)) == 120
        await lead(servers, other)
        assert await retry(other, "7") == {"stream": "ORDERS", "seq": 8, "duplicate": True}
        await servers.store("orders.new", b"more")
        await servers.agree()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_restarted_replica_knows_the_ids(tmp_path: Path, is_killed: bool) -> None:
    """Some are in its files, from the last snapshot of its group; others come from the log."""
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        for number in range(80):
            await servers.store("orders.new", b"%d" % number)
            if number in (40, 79):
                await work(leader, 30)
                await servers.agree()
        assert other.group.node.log.snapshot.index > SNAPSHOT
        if is_killed:  # nothing is kept at its end
            other.stream.known_ids.at_close = lambda: nothing  # type: ignore[method-assign]  # a crash
        await servers.restart(other)
        await servers.agree()
        assert len(message_ids(other.stream, 0)) == 80
        assert not other.transfer.fetched
        await lead(servers, other)
        for number in (3, 55, 79):
            assert (await retry(other, str(number))).get("duplicate")
        await servers.agree()


async def nothing() -> None:
    """Keep nothing."""


def sourced(sequence: int) -> bytes:
    return b"NATS/1.0\r\nNats-Stream-Source: ORIGIN %d > > o\r\n\r\n" % sequence


def position(server: Server) -> int | None:
    assert server.stream.committed_positions is not None
    return server.stream.committed_positions.position_of("ORIGIN > >")


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_each_replica_knows_the_positions(tmp_path: Path, storage: str) -> None:
    async with cluster(tmp_path) as servers:
        sources = [StreamSource(name="ORIGIN")]
        leader, other = await create(servers, storage=storage, sources=sources)
        servers.cut(other)
        for number in range(1, 121):
            await publish(leader.jetstream, "orders.new", b"", sourced(number))
        await leader.stream.purge()
        await leader.stream.agreed()
        await eventually_within(lambda: leader.group.node.log.snapshot.index > SNAPSHOT)
        servers.network.cut.clear()
        await servers.agree(lambda: other.transfer.fetched)
        await eventually_within(lambda: [position(each) for each in servers.all] == [120] * 3)
        for server in servers.all:
            await servers.restart(server)
            await servers.agree()
            assert position(server) == 120
        await lead(servers, other)
        await publish(other.jetstream, "orders.new", b"", sourced(121))
        await servers.agree()
        assert [position(each) for each in servers.all] == [121] * 3
        positions = other.stream.committed_positions
        assert positions is not None
        assert positions.now().sequences == {"ORIGIN > >": 121}


async def test_a_source_that_is_added_later_has_sent_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, _ = await create(servers)
        await publish(leader.jetstream, "orders.new", b"", sourced(7))
        config = leader.stream.config.model_copy(update={"sources": [StreamSource(name="ORIGIN")]})
        await leader.stream.reconfigure(config)
        await servers.agree()
        assert [position(each) for each in servers.all] == [0, 0, 0]
        await publish(leader.jetstream, "orders.new", b"", sourced(8))
        await servers.agree()
        assert [position(each) for each in servers.all] == [8, 8, 8]
        positions = leader.stream.committed_positions
        assert positions is not None
        positions.take(Positions(upto=0, sequences={"ORIGIN > >": 5, "another": 9}))
        assert positions.now().sequences == {"ORIGIN > >": 8}
