"""Delayed messages and schedules of a stream with replicas: only the leader publishes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from natsd.accounts import Account
from natsd.jetstream.schedules.delays import Delays
from natsd.store.errors import StoreFull
from natsd.store.file_store import FileStore
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.replicas.test_failures import find_no_space, write_nothing
from tests.jetstream.replicas.test_removed_messages import lead
from tests.jetstream.serving import publish
from tests.waiting import eventually_within


async def create(servers: Servers, **settings: Any) -> tuple[Server, Server]:
    """Return the leader, and another server."""
    await servers.create(subjects=["orders.>"], allow_msg_schedules=True, **settings)
    leader = await servers.leader()
    return leader, next(each for each in servers.all if each is not leader)


async def delay(server: Server, data: bytes, wanted: str = "1h") -> dict[str, Any]:
    headers = f"NATS/1.0\r\nNats-Delay: {wanted}\r\n\r\n".encode()
    return await publish(server.jetstream, "orders.later", data, headers)


def delays_of(server: Server) -> Delays:
    assert server.stream.scheduled is not None
    return server.stream.scheduled.delays


async def stored(server: Server) -> list[bytes]:
    log, store = server.stream.readers.log, server.stream.store
    sequences = range(log.first_sequence, log.last_sequence + 1)
    return [(await store.load(each)).data for each in sequences if log.has(each)]


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_former_leader_publishes_nothing(tmp_path: Path, storage: str) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers, storage=storage)
        for number in range(5):
            await delay(leader, b"%d" % number, f"{200 + 100 * number}ms")
        await lead(servers, other)
        await eventually_within(lambda: not len(delays_of(other)))
        await servers.agree(lambda: not any(len(delays_of(each)) for each in servers.all))
        assert await stored(other) == [b"%d" % number for number in range(5)]
        assert delays_of(leader)._work is None
        await delay(other, b"again", "100ms")
        await lead(servers, leader)
        await eventually_within(lambda: not len(delays_of(leader)))
        await servers.agree(lambda: not any(len(delays_of(each)) for each in servers.all))
        assert (await stored(leader))[5:] == [b"again"]


async def test_a_former_leader_fires_no_schedule(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        headers = b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: orders.t\r\n\r\n"
        ack = await publish(leader.jetstream, "orders.schedule", b"tick", headers)
        assert ack == {"stream": "ORDERS", "seq": 1}
        await lead(servers, other)
        former = leader.stream.scheduled
        assert former is not None
        assert not len(former.schedules)
        last = other.stream.readers.log.last_sequence
        await eventually_within(lambda: other.stream.readers.log.last_sequence > last)
        assert not former.schedules.is_busy
        await lead(servers, leader)
        await eventually_within(lambda: len(former.schedules) == 1)
        last = leader.stream.readers.log.last_sequence
        await eventually_within(lambda: leader.stream.readers.log.last_sequence > last)
        other_schedules = other.stream.scheduled
        assert other_schedules is not None
        assert not len(other_schedules.schedules)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_what_a_leader_alone_took_and_removed_is_undone(tmp_path: Path, storage: str) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers, storage=storage)
        for number in range(5):
            await delay(leader, b"%d" % number)
        await servers.agree()
        servers.cut(leader)
        removing = asyncio.create_task(delays_of(leader).cancel(2))
        lost = asyncio.create_task(delay(leader, b"lost"))
        second = await servers.leader(but=leader)
        assert (await delay(second, b"kept"))["seq"] == 6
        assert "error" in await lost
        with pytest.raises(Exception, match="unavailable"):
            await removing
        servers.network.cut.clear()
        await servers.agree()
        assert sorted(delays_of(leader)._waiting) == [1, 2, 3, 4, 5, 6]
        await lead(servers, leader)
        assert await delays_of(leader).cancel(6)
        await servers.agree()
        await servers.restart(other)
        await servers.agree()


def store_of(server: Server) -> FileStore:
    store = delays_of(server)._store
    assert isinstance(store, FileStore)
    return store


@pytest.mark.parametrize("is_leading", [True, False])
async def test_delayed_messages_that_were_not_written_come_again(
    tmp_path: Path, is_leading: bool
) -> None:
    """Their store finds no space on one server: what the replicas agreed to is not lost there."""
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        for number in range(5):
            await delay(leader, b"%d" % number)
        await servers.agree()
        failing = leader if is_leading else other
        commits = store_of(failing)._commits
        await commits.pause()
        client: Account = leader.stream.account.account
        for number in range(5, 8):
            headers = b"NATS/1.0\r\nNats-Delay: 1h\r\n\r\n"
            client.internal_client.publish("orders.later", b"%d" % number, headers=headers)
        removing = asyncio.create_task(delays_of(leader).cancel(2))
        await eventually_within(lambda: len(delays_of(failing)) == 7)
        await servers.store("orders.1", b"visible")
        await eventually_within(lambda: failing.replica.applied == leader.replica.applied)
        commits.failed(StoreFull())
        commits.resumed()
        commits.resume()
        await asyncio.gather(removing, return_exceptions=True)
        await servers.agree()
        assert sorted(delays_of(failing)._waiting) == [1, 3, 4, 5, 6, 7, 8]
        assert failing.replica.failure is None
        await lead(servers, failing)
        assert await delays_of(failing).purge("") == 7
        await servers.agree()


async def test_a_stream_that_was_not_written_has_its_delayed_messages_once(tmp_path: Path) -> None:
    """The store of the delayed messages is ahead of that of the messages."""
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        for number in range(60):
            await servers.store("orders.1", b"%d" % number)
        await servers.agree()
        await write_nothing(other)
        for number in range(5):
            await delay(leader, b"%d" % number)
            await servers.store("orders.1", b"more %d" % number)
        await delays_of(leader).cancel(63)
        await eventually_within(lambda: other.replica.applied == leader.replica.applied)
        await store_of(other).synced()
        find_no_space(other)
        await servers.agree()
        await servers.restart(other)
        await servers.agree()
        await lead(servers, other)
        assert (await delay(other, b"last"))["seq"] == 71
        await servers.agree()


async def test_a_replica_that_was_left_behind_has_what_is_agreed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        servers.cut(other)
        for number in range(70):
            await delay(leader, b"%d" % number, "1h" if number % 2 else "10ms")
        await eventually_within(lambda: len(delays_of(leader)) == 35)
        assert await delays_of(leader).cancel(min(delays_of(leader)._waiting))
        await eventually_within(lambda: leader.group.node.log.snapshot.index > 50)
        servers.network.cut.clear()
        await servers.agree(lambda: other.transfer.fetched)
        assert len(delays_of(other)) == 34
        await lead(servers, other)
        await delay(other, b"soon", "10ms")
        await servers.agree(lambda: all(len(delays_of(each)) == 34 for each in servers.all))
