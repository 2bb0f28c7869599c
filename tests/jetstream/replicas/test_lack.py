"""Replicas that lack something, as those in memory do after a restart: what they get, and when.

A stream in memory survives the loss of a minority of its replicas.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.replicas import lack, transfer
from natsd.jetstream.replicas.lack import Lack
from natsd.jetstream.replicas.manifest import decode_manifest
from natsd.jetstream.replicas.memory_image import BuiltInMemory
from natsd.jetstream.replicas.stream_image import BuiltStream
from natsd.jetstream.replicas.transfer import StreamTransfer
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.replicas.servers import GROUP, CutClient, Server, Servers, cluster
from tests.jetstream.replicas.test_stream_replica import work
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)
DATA = bytes(100)
SNAPSHOT = 50
"""A group of these tests takes a snapshot behind so many entries."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lack, "LOOK_S", 0.1)
    monkeypatch.setattr(lack, "LEADERLESS_S", 2.5)
    monkeypatch.setattr(lack, "PATIENCE_S", 1.0)
    monkeypatch.setattr(transfer, "ASK_S", 0.2)


async def create(servers: Servers, **settings: Any) -> tuple[Server, Server, Server]:
    """Return the leader and the others, of a stream in memory with a consumer."""
    await servers.create(subjects=["orders.>"], **{"storage": "memory", **settings})
    leader = await servers.leader()
    await leader.stream.create_consumer(WORKER, "create")
    await servers.store("orders.new", b"first")
    one, other = (each for each in servers.all if each is not leader)
    return leader, one, other


async def fill(servers: Servers, count: int = 120) -> None:
    """Store so many messages that the first ones are not in the logs any more."""
    for number in range(count):
        await servers.store(f"orders.{number % 9}", b"%d" % number + DATA)


async def all_have_snapshots(servers: Servers) -> None:
    await eventually_within(
        lambda: all(each.group.node.log.snapshot.index > SNAPSHOT for each in servers.all)
    )


async def start(servers: Servers, *started: Server) -> None:
    for server in started:
        await server.start()
        await servers.serve(server)


def messages_of(server: Server) -> int:
    return server.stream.readers.log.msgs


async def test_a_restarted_replica_applies_the_whole_log(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, one, _ = await create(servers)
        await work(leader, 1)
        await servers.restart(one)
        await servers.store("orders.new", b"second")
        await servers.agree()
        assert messages_of(one) == 2
        assert not one.transfer.fetched


async def test_a_restarted_replica_fetches_the_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, one, _ = await create(servers)
        await fill(servers)
        await work(leader, 3)
        await all_have_snapshots(servers)
        await servers.restart(one)
        await servers.agree(lambda: one.transfer.fetched)
        assert messages_of(one) == 121
        await fill(servers, 5)
        await servers.agree()
        await eventually_within(lambda: one.replica.is_current)
        assert not one.group.node.is_observer


async def test_a_replica_that_was_left_behind_fetches_the_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, one, _ = await create(servers)
        servers.cut(one)
        await fill(servers)
        await eventually_within(lambda: leader.group.node.log.snapshot.index > SNAPSHOT)
        servers.network.cut.clear()
        await servers.agree(lambda: one.transfer.fetched)
        assert messages_of(one) == 121


async def test_a_restarted_leader_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await create(servers)
        for _ in range(3):
            await fill(servers, 60)
            leader = await servers.leader()
            await servers.restart(leader)
            await servers.agree()
            await eventually_within(lambda server=leader: server.replica.is_current)
        assert messages_of(await servers.leader()) == 181


async def test_the_last_replica_that_has_the_stream_leads(tmp_path: Path) -> None:
    """A majority was restarted, but the third replica is there."""
    async with cluster(tmp_path) as servers:
        leader, one, _ = await create(servers)
        await fill(servers)
        await all_have_snapshots(servers)
        for server in (leader, one):
            await server.stop()
        await start(servers, leader, one)
        await servers.agree()
        assert all(messages_of(each) == 121 for each in servers.all)


async def test_the_stream_begins_anew_when_all_were_restarted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, _, _ = await create(servers)
        await fill(servers)
        await work(leader, 5)
        await all_have_snapshots(servers)
        floor = leader.stream.consumer("worker").store.state().ack_floor
        for server in servers.all:
            await server.stop()
        await start(servers, *servers.all)
        servers.acknowledged.clear()
        assert await servers.store("orders.new", b"goes on") == 122
        await servers.agree(but=("message ids",))  # those of lost messages may come again
        leader = await servers.leader()
        assert 1 <= messages_of(leader) < 122 - SNAPSHOT
        consumer = leader.stream.consumer("worker")
        assert consumer.store.state().ack_floor.consumer >= floor.consumer
        assert (await work(leader, messages_of(leader)))[-1] == b"goes on"


async def test_the_log_of_all_commands_is_the_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await create(servers)
        for server in servers.all:
            await server.stop()
        await start(servers, *servers.all)
        assert await servers.store("orders.new", b"second") == 2
        await servers.agree()
        assert messages_of(await servers.leader()) == 2


async def test_a_minority_that_has_the_stream_comes_too_late(tmp_path: Path) -> None:
    """The others have begun anew: it removes what they have lost."""
    async with cluster(tmp_path) as servers:
        leader, one, other = await create(servers)
        await fill(servers)
        await all_have_snapshots(servers)
        await servers.agree()
        servers.cut(other)
        for server in (leader, one):
            await server.stop()
        await start(servers, leader, one)
        servers.acknowledged.clear()
        assert await servers.store("orders.new", b"goes on") == 122
        assert messages_of(other) == 121
        servers.network.cut.clear()
        await servers.agree(but=("message ids",))  # those of lost messages may come again
        assert messages_of(other) < 122 - SNAPSHOT


class SilentCatchUp(StreamTransfer):
    """The others answer what the test says, and send nothing."""

    answers: ClassVar[dict[int, bool]] = {}

    async def ask(self, applied: int) -> dict[int, bool]:
        return self.answers

    async def fetch(self, stream: Stream, applied: int) -> BuiltStream:
        await asyncio.sleep(3600)
        raise AssertionError


@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        ({}, "for ever"),  # the others may have it
        ({2: False}, "for a while"),  # so may the last one, but that is a minority
        ({2: False, 3: False}, "not"),
        ({2: False, 3: True}, "for ever"),
    ],
)
async def test_a_leader_begins_anew_when_no_majority_can_have_it(
    tmp_path: Path, answers: dict[int, bool], waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is as of the election: it may have changed since."""
    async with cluster(tmp_path) as servers:
        leader, one, _ = await create(servers)
        voters = sorted(leader.group.membership.voters - {leader.group.node.id})
        members = {2: voters[0], 3: voters[1]}
        SilentCatchUp.answers = {members[each]: has_it for each, has_it in answers.items()}
        monkeypatch.setattr(lack, "PATIENCE_S", 0.5 if waits == "for a while" else 3600)
        silent = SilentCatchUp(CutClient(leader), GROUP, os.urandom)
        manifest = decode_manifest(await leader.replica.snapshot()())
        mending = asyncio.create_task(Lack(leader.group, silent, leader.stream, manifest).mend())
        if waits == "for ever":
            await asyncio.sleep(1)
            assert not mending.done()
            mending.cancel()
        else:
            built = await mending
            assert isinstance(built, BuiltInMemory)
            assert built.messages.log.last_sequence == manifest.last_sequence == 1
            assert [each.consumer.name for each in built.consumers] == ["worker"]
            await eventually_within(lambda: messages_of(one) == 0)


def lose_memory(_: Server) -> None:
    """Do nothing: the restart is enough."""


def lose_directory(server: Server) -> None:
    shutil.rmtree(server.stream_directory)


@pytest.mark.parametrize(("storage", "lose"), [("memory", lose_memory), ("file", lose_directory)])
async def test_a_replica_whose_log_the_others_need_fetches_without_a_leader(
    tmp_path: Path, storage: str, lose: Callable[[Server], None]
) -> None:
    """The only replica with the stream lacks entries that only a replica without it has."""
    async with cluster(tmp_path) as servers:
        leader, one, other = await create(servers, storage=storage)
        await fill(servers)
        await all_have_snapshots(servers)
        await servers.agree()
        servers.cut(other)
        await servers.store("orders.new", b"last")
        await eventually_within(lambda: one.replica.applied == leader.replica.applied)
        await leader.stop()
        await one.stop()
        lose(one)
        servers.network.cut.clear()
        await start(servers, one)
        assert await servers.leader() is one
        await eventually_within(lambda: messages_of(other) == 122)
        await start(servers, leader)
        await servers.agree()
        assert all(messages_of(each) == 122 for each in servers.all)
