"""Blocks that are damaged while the servers run: the leader and the followers repair each other.

fill ─▶ evict from memory ─▶ damage files of blocks ─▶ read everything from every replica
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from unittest.mock import patch

import pytest

from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.replicas import message_transfer
from natsd.jetstream.stream import storage
from natsd.store.errors import MessageDamaged
from natsd.store.file_store import FileStore
from natsd.store.sequence_set import SequenceSet
from tests.jetstream.replicas.servers import GROUP, Server, Servers, cluster
from tests.jetstream.serving import ask, publish
from tests.store.maintenance.test_block_repair import DAMAGES, block_files, evict, flip, of_block
from tests.store.test_file_store_model import everything
from tests.waiting import eventually_within

NEXT = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"
MESSAGES = 75
BODY_BYTES = 1500
RECORD_BYTES = 1550
LIMITS = {"subjects": ["orders.>"], "max_bytes": 128_000, "allow_direct": True}
"""With these the stream has small blocks, of about twenty messages each."""


def store_of(server: Server) -> FileStore:
    store = server.stream.store
    assert isinstance(store, FileStore)
    return store


async def filled(servers: Servers) -> dict[int, bytes]:
    """Fill the stream, evict it from memory, and return what it has."""
    await servers.create(**LIMITS)
    leader, chance = await servers.leader(), random.Random(3)
    expected = {at: chance.randbytes(BODY_BYTES) for at in range(1, MESSAGES + 1)}
    await asyncio.gather(
        *(publish(leader.jetstream, f"orders.{at}", data) for at, data in expected.items())
    )
    await servers.agree()
    await eventually_within(lambda: all(each.replica._is_current for each in servers.all))
    for server in servers.all:
        await server.stream.store.synced()
        await eventually_within(lambda at=server: store_of(at)._jobs._task is None)
        assert len(block_files(store_of(server))) >= 3
        evict(store_of(server))
    return expected


async def stored(server: Server) -> dict[int, bytes]:
    return {at: (await server.stream.store.load(at)).data for at in range(1, MESSAGES + 1)}


@pytest.mark.parametrize("what", DAMAGES)
async def test_every_replica_repairs_its_blocks(tmp_path: Path, what: str) -> None:
    """The leader gets from followers what it lacks; no stream is sent whole."""
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        for number, server in enumerate(servers.all):  # another block on each server
            DAMAGES[what](block_files(store_of(server))[number])
        for server in servers.all:
            assert await stored(server) == expected
            assert not server.stream.damage
            assert server.jetstream.volume.repairs.blocks == 1
            assert server.transfer.fetched == 0
        await servers.agree()
        leader = await servers.leader()
        await servers.restart(leader)
        await servers.agree()
        assert not leader.stream.damage
        assert leader.transfer.fetched == 0


async def test_replicas_with_damage_in_different_places_repair_each_other(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        for number, server in enumerate(servers.all):
            for path in block_files(store_of(server)):
                flip(path, 500 + number * RECORD_BYTES)
        found = await asyncio.gather(*(stored(server) for server in servers.all))
        assert found == [expected] * 3


async def test_consumers_and_direct_gets_find_all_messages(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        leader = await servers.leader()
        await leader.stream.create_consumer(
            ConsumerConfig(durable_name="worker", ack_policy="none"), "create"
        )
        await servers.agree()
        for server in servers.all:
            for path in block_files(store_of(server)):
                flip(path, 500 + server.number * RECORD_BYTES)
        pull = b'{"batch":%d}' % MESSAGES
        delivered = await ask(leader.jetstream, NEXT, pull, answers=MESSAGES)
        assert [data for _, data in delivered] == list(expected.values())
        for server in servers.all:
            got = {at: await direct_get(server, at) for at in expected}
            assert got == expected
        await servers.agree()


async def direct_get(server: Server, sequence: int) -> bytes:
    get = b'{"seq":%d}' % sequence
    ((_, data),) = await ask(server.jetstream, "$JS.API.DIRECT.GET.ORDERS", get)
    return data


async def test_a_scrub_repairs_what_nobody_reads(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        for number, server in enumerate(servers.all):
            flip(block_files(store_of(server))[number], 700)
        scrubs = [await server.jetstream.scrubber.scrub() for server in servers.all]
        assert [(each.repaired, each.left) for each in scrubs] == [(1, 0)] * 3
        for server in servers.all:
            evict(store_of(server))
            store_of(server).repair_from(None)
            assert await stored(server) == expected
            assert not server.stream.damage


async def test_messages_that_wait_for_their_time_are_repaired(tmp_path: Path) -> None:
    with patch.object(storage, "block_bytes_for", lambda *_: 4000):
        async with cluster(tmp_path) as servers:
            await servers.create(subjects=["orders.>"], allow_msg_schedules=True)
            leader = await servers.leader()
            headers = b"NATS/1.0\r\nNats-Delay: 1h\r\n\r\n"
            for number in range(20):
                await publish(leader.jetstream, "orders.new", b"%d" % number * 500, headers)
            await servers.agree()
            await eventually_within(lambda: all(each.replica._is_current for each in servers.all))
            delayed = [each.stream.file_stores[1] for each in servers.all]
            expected = [await everything(store) for store in delayed]
            assert len(expected[0]) == 20
            for number, store in enumerate(delayed):
                await store.synced()
                await eventually_within(lambda of=store: of._jobs._task is None)
                evict(store)
                flip(block_files(store)[number], 700)
            assert [await everything(store) for store in delayed] == expected


async def test_a_message_that_no_replica_has_is_damaged(tmp_path: Path) -> None:
    """As on one server: reading it fails, and everything else is there."""
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        for server in servers.all:
            flip(block_files(store_of(server))[1], 700)
        store = store_of(servers.all[0])
        lost = of_block(store, block_files(store)[1]).base_sequence
        del expected[lost]
        for server in servers.all:
            store = server.stream.store
            with pytest.raises(MessageDamaged):
                await store.load(lost)
            assert {at: (await store.load(at)).data for at in expected} == expected
            assert [each.first_sequence for each in server.stream.damage] == [lost]
        assert await servers.store("orders.new", b"goes on") == MESSAGES + 1


async def test_a_replica_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """The other one has not got the message: it may be on the one that is cut off."""
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        leader = await servers.leader()
        other, away = (each for each in servers.all if each is not leader)
        for server in (leader, other):
            flip(block_files(store_of(server))[1], 700)
        asked: list[SequenceSet] = []
        intact = store_of(other).intact

        def noted(sequences: SequenceSet) -> AsyncGenerator[bytes]:
            asked.append(sequences)
            return intact(sequences)

        servers.cut(away)
        with (
            patch.object(message_transfer, "SILENCE_S", 0.1),
            patch.object(store_of(other), "intact", noted),
        ):
            reading = asyncio.create_task(stored(leader))
            await eventually_within(lambda: asked)
            assert not reading.done()
            servers.network.cut.clear()
            assert await reading == expected
        assert len(asked) == 1


async def test_a_request_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        expected = await filled(servers)
        subject = message_transfer.SUBJECT.format(GROUP)
        for data in (b"", b"short", message_transfer.REQUEST.pack(1, 0) + b"no set"):
            servers.system.internal_client.publish(subject, data, reply="nobody")
        flip(block_files(store_of(servers.all[0]))[0], 700)
        assert await stored(servers.all[0]) == expected
