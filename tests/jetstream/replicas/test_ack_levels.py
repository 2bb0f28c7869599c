"""When a publish is acknowledged: `natsd.ack` of a stream, and what each level can lose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.replicas.early_answers import EarlyAnswers
from natsd.jetstream.stream.settings_in_metadata import ACK
from natsd.jetstream.stream.stream import Stream
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.store.disk.disk import CommitJob
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.serving import publish
from tests.waiting import eventually_within


async def create(servers: Servers, level: str) -> Server:
    """Make a stream with one message; return its leader."""
    await servers.create(subjects=["orders.>"], metadata={ACK: level} if level else {})
    await servers.store("orders.1", b"first")
    await servers.agree()
    return await servers.leader()


@contextmanager
def syncs_held(monkeypatch: pytest.MonkeyPatch, *servers: Server) -> Iterator[None]:
    """Let the syncs of these servers' RAFT logs not return, until the end."""
    held: list[tuple[RaftLogs, CommitJob]] = []
    written = RaftLogs._written
    is_over = False

    def hold(logs: RaftLogs, job: CommitJob) -> None:
        if any(logs is each._logs for each in servers) and not is_over:
            held.append((logs, job))
        else:
            written(logs, job)

    with monkeypatch.context() as patch:
        patch.setattr(RaftLogs, "_written", hold)
        yield
    is_over = True  # some syncs are still under way
    for logs, job in held:
        written(logs, job)


def publishing(server: Server, data: bytes) -> asyncio.Task[dict[str, object]]:
    return asyncio.create_task(publish(server.jetstream, "orders.1", data))


async def are_proposed(server: Server) -> None:
    """Wait until the second message is in the leader's log, and the others have it, too."""
    group = server.group
    await eventually_within(lambda: group.proposals_under_way == 1)
    last = group.node.log.last_index
    others = [each for each in server.cluster.all if not each.is_cut]
    await eventually_within(lambda: all(each.group.node.log.last_index == last for each in others))


@pytest.mark.parametrize("level", ["", "quorum-synced", "quorum-written", "leader"])
async def test_what_a_majority_has_written_is_acknowledged_at_that_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers, level)
        with syncs_held(monkeypatch, *servers.all):
            sent = publishing(leader, b"second")
            await are_proposed(leader)
            if level == "quorum-written":
                assert (await sent)["seq"] == 2
            assert sent.done() is (level == "quorum-written")
            assert leader.stream.readers.visible == 1  # whatever was acknowledged
        assert (await sent)["seq"] == 2
        await servers.agree()
        assert leader.stream.readers.visible == 2


@pytest.mark.parametrize("level", ["quorum-synced", "quorum-written", "leader"])
async def test_what_the_leader_has_synced_is_acknowledged_at_that_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers, level)
        for server in servers.all:
            if server is not leader:
                servers.cut(server)
        sent = publishing(leader, b"second")
        await eventually_within(lambda: leader.group.node.log.stable > leader.group.node.log.commit)
        if level == "leader":
            assert (await sent)["seq"] == 2
        assert sent.done() is (level == "leader")
        assert leader.stream.readers.visible == 1
        servers.network.cut.clear()
        await sent
        await servers.agree()


async def test_what_only_the_leader_has_is_lost_with_its_leadership(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        first = await create(servers, "leader")
        servers.cut(first)
        assert (await publish(first.jetstream, "orders.2", b"lost"))["seq"] == 2
        assert await servers.store("orders.2", b"kept") == 2
        servers.network.cut.clear()
        await servers.agree()
        assert (await first.stream.store.load(2)).data == b"kept"


def test_only_entries_of_this_leadership_count() -> None:
    """Another leader's entries may have taken the places of those that were submitted."""
    answered: list[int] = []
    log = SimpleNamespace(stable=5, commit=3)
    node = SimpleNamespace(is_leader=True, term=2, log=log)
    group: Any = SimpleNamespace(node=node)
    config = StreamConfig(name="S", metadata={ACK: "leader"})
    readers = SimpleNamespace(acknowledge=answered.append)
    early, stream = EarlyAnswers(), cast(Stream, SimpleNamespace(config=config, readers=readers))
    early.follow(stream, group)
    early.begin(2, 10)
    early.submitted(5, 3)
    group.on_progress()
    assert answered == [13]
    early.submitted(6, 1)
    log.stable, node.is_leader = 6, False
    group.on_progress()
    node.is_leader, node.term = True, 4
    group.on_progress()
    assert answered == [13]


async def test_another_level_is_in_force_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers, "")
        config = leader.stream.config
        changed = config.model_copy(update={"metadata": config.metadata | {ACK: "quorum-written"}})
        await leader.stream.reconfigure(changed)
        await leader.stream.agreed()
        await servers.agree()
        with syncs_held(monkeypatch, *servers.all):
            assert (await publish(leader.jetstream, "orders.1", b"second"))["seq"] == 2
        await servers.agree()
