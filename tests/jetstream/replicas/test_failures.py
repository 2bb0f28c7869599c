"""A replica whose files cannot be written, for a while or for good: another one leads."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from natsd.jetstream.asset_file import write_asset
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.stream import leading
from natsd.jetstream.stream.follower import Follower
from natsd.store.disk.disk import rename_removed
from natsd.store.errors import StoreFull, StoreReadOnly
from natsd.store.file_store import FileStore
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.replicas.test_stream_replica import work
from tests.jetstream.serving import account_of
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)


async def create(servers: Servers) -> tuple[Server, Server]:
    """Return the leader, and another server."""
    await servers.create(subjects=["orders.>"])
    for number in range(70):
        await servers.store(f"orders.{number % 7}", b"%d" % number)
    leader = await servers.leader()
    await leader.stream.create_consumer(WORKER, "create")
    await work(leader, 3)
    await servers.agree()
    return leader, next(each for each in servers.all if each is not leader)


def store_of(server: Server) -> FileStore:
    store = server.stream.store
    assert isinstance(store, FileStore)
    return store


async def write_nothing(server: Server) -> None:
    """Let nothing become durable on that server from now on."""
    store = store_of(server)
    await store.synced()
    await store._commits.pause()


def find_no_space(server: Server) -> None:
    """Have what is not durable undone, as if there was no space; then there is some again."""
    commits = store_of(server)._commits
    commits.failed(StoreFull())
    commits.resumed()
    commits.resume()


async def test_a_follower_without_space_applies_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await write_nothing(other)
        for number in range(20):
            await servers.store(f"orders.{number % 7}", b"more %d" % number)
        await leader.stream.delete_message(75)
        await work(leader, 3)
        await eventually_within(lambda: other.replica.applied == leader.replica.applied)
        find_no_space(other)
        assert other.stream.readers.log.last_sequence == 70
        await servers.store("orders.1", b"last")
        await servers.agree()
        assert other.replica.failure is None
        await eventually_within(lambda: other.replica.is_current)
        await eventually_within(lambda: not other.group.node.is_observer)
        await servers.restart(other)
        await servers.agree()


async def test_a_publish_for_which_there_is_no_space_is_applied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is met where the group hands it out, which goes on: the replica's task applies it."""
    async with cluster(tmp_path) as servers:
        _, other = await create(servers)
        apply_publishes = Follower.apply_publishes
        tries: list[int] = []

        def once_full(follower: Follower, commands: bytes, at: int, count: int) -> tuple[int, int]:
            if follower.stream is other.stream:
                tries.append(count)
                if len(tries) <= 2:
                    raise StoreFull
            return apply_publishes(follower, commands, at, count)

        monkeypatch.setattr(Follower, "apply_publishes", once_full)
        for number in range(3):
            await servers.store("orders.1", b"more %d" % number)
        await servers.agree()
        assert len(tries) > 2
        assert other.replica.failure is None
        assert not other.group.is_closed


async def test_a_leader_without_space_steps_down(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await write_nothing(leader)
        client = account_of(leader.jetstream).account.internal_client
        for number in range(20):
            client.publish(f"orders.{number % 7}", b"more %d" % number)
        await eventually_within(lambda: other.stream.readers.log.last_sequence == 90)
        agreement = leader.stream.agreement
        assert agreement is not None
        await agreement.reached()
        find_no_space(leader)
        assert leader.stream.readers.log.last_sequence == 70
        await eventually_within(lambda: not leader.replica.is_leading)
        assert await servers.leader() is not leader
        assert await servers.store("orders.1", b"last") == 91
        await servers.agree()
        assert leader.replica.failure is None
        await eventually_within(lambda: not leader.group.node.is_observer)


async def test_a_leader_alone_leads_again_when_there_is_space(tmp_path: Path) -> None:
    """The others do not take over."""
    async with cluster(tmp_path) as servers:
        leader, _ = await create(servers)
        for server in servers.all:
            server.group.node.is_observer = server is not leader
        await write_nothing(leader)
        find_no_space(leader)
        await eventually_within(lambda: not leader.replica.is_leading)
        await servers.store("orders.1", b"last")
        assert await servers.leader() is leader
        await servers.agree()


@pytest.mark.parametrize("is_leading", [True, False])
async def test_a_replica_that_failed_does_not_lead(tmp_path: Path, is_leading: bool) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        failed = leader if is_leading else other
        store = store_of(failed)
        await store._commits.pause()
        store._commits.error = StoreReadOnly("EIO")
        store._commits.failed(store._commits.error)
        await eventually_within(lambda: failed.replica.failure)
        await eventually_within(lambda: not failed.replica.is_leading)
        left = [each for each in servers.all if each is not failed]
        assert await servers.leader() in left
        for number in range(5):
            await servers.store(f"orders.{number}", b"more")
        await work(await servers.leader(), 3)
        assert failed.group.node.is_observer
        assert not failed.replica.is_current
        (last,) = {each.stream.readers.log.last_sequence for each in left}
        assert last == 75


async def broken() -> bool:
    raise OSError(errno.EIO, "broken")


async def test_an_error_while_it_leads_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as servers:
        leader, _ = await create(servers)
        agreement = leader.stream.agreement
        assert agreement is not None
        monkeypatch.setattr(leader.replica, "_do_next", broken)
        leader.replica.leads(is_leader=True)
        await eventually_within(lambda: leader.replica.failure)
        await eventually_within(lambda: not leader.replica.is_leading)
        assert await servers.leader() is not leader
        assert await servers.store("orders.1", b"more") == 71
        assert leader.stream.ingest.is_paused
        assert not leader.stream.consumers
        with pytest.raises(NotCommitted):
            await agreement.reached()
        await eventually_within(lambda: not leader.group.is_leader)


async def test_a_stream_that_steps_down_applies_nothing_again(tmp_path: Path) -> None:
    """What is undone then is not what could not be written."""
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        leader.group.transfer_leadership(other.group.node.id)
        await eventually_within(lambda: other.replica.is_leading)
        await servers.agree()
        assert not leader.group.node.is_observer
        assert leader.replica.is_current
        assert not leader.replica._is_rolled_back


@contextmanager
def no_space_for_small_files(server: Server) -> Iterator[list[int]]:
    """Refuse what a change of the configuration or of consumers writes; yield the refusals."""
    volume = server.jetstream.volume
    read, refused = volume.read, list[int]()

    async def refuse(*_: object) -> object:
        refused.append(len(refused))
        raise OSError(errno.ENOSPC, "no space")

    async def read_or_refuse(do: Callable[..., Any], *args: Any) -> Any:
        return await (refuse() if do in (write_asset, rename_removed) else read(do, *args))

    with (
        patch.object(leading, "RETRY_S", 0.05),
        patch.object(volume, "read", read_or_refuse),
        patch.object(volume, "make_with_files", refuse),
    ):
        yield refused


@pytest.mark.parametrize("change", ["creation", "update", "deletion", "configuration"])
async def test_a_leader_without_space_for_its_past_steps_down_later(
    tmp_path: Path, change: str
) -> None:
    """It has a change that nobody agreed to, and nothing is left half done."""
    async with cluster(tmp_path) as servers:
        leader, _ = await create(servers)
        stream = leader.stream
        for server in servers.all:
            if server is not leader:
                servers.cut(server)
        if change == "creation":
            other = WORKER.model_copy(update={"durable_name": "other"})
            await stream.create_consumer(other, "create")
        elif change == "update":
            await stream.create_consumer(WORKER.model_copy(update={"max_ack_pending": 7}), "update")
        elif change == "deletion":
            await stream.delete_consumer("worker")
        else:
            await stream.reconfigure(stream.config.model_copy(update={"max_msgs": 1000}))
        with no_space_for_small_files(leader) as refused:
            await eventually_within(lambda: len(refused) > 2)
            assert not leader.replica.is_leading
            assert not any(each._is_begun for each in stream.consumers.values())
            servers.network.cut.clear()
            await servers.store("orders.1", b"more")
            assert leader.replica.failure is None
        await servers.agree()
        assert list(stream.consumers) == ["worker"]
        assert stream.config.max_msgs == -1
        await work(await servers.leader(), 2)
        await servers.agree()


async def test_a_stream_that_cannot_begin_to_lead_lets_another_one_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        tried: list[int] = []

        async def full(_consumer: Consumer) -> None:
            tried.append(1)
            raise StoreFull

        monkeypatch.setattr(lifecycle, "lead", full)
        leader.group.transfer_leadership(other.group.node.id)
        await eventually_within(lambda: tried)
        await eventually_within(lambda: other.stream.readers.proposer is None)
        assert other.replica.failure is None
        monkeypatch.undo()
        await servers.store("orders.1", b"more")
        await servers.agree()
        await work(await servers.leader(), 2)
        await servers.agree()


@pytest.mark.parametrize("is_leading", [True, False])
async def test_a_replica_that_failed_holds_no_file_of_its_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_leading: bool
) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        failed = leader if is_leading else other
        consumers = failed.stream.directory / "obs"
        await eventually_within(lambda: open_files(consumers))
        monkeypatch.setattr(failed.replica, "_do_next", broken)
        failed.replica.leads(is_leader=True)
        await eventually_within(lambda: failed.replica.failure)
        await eventually_within(lambda: not open_files(consumers))
        await servers.store("orders.1", b"more")


def open_files(directory: Path) -> list[str]:
    """Return the open files of this process in that directory."""
    links = list[str]()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(each.readlink()))
    return [each for each in links if each.startswith(str(directory))]
