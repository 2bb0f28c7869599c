"""Replicas of a stream: what is acknowledged is on a majority, whoever leads."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.asset_file import read_asset, write_asset
from natsd.jetstream.commands.commands import PurgeAll, Skip
from natsd.jetstream.commands.encoding import encode
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.replicas.log_entry import FIRST, command_at, count
from natsd.jetstream.replicas.manifest import decode_manifest
from natsd.jetstream.replicas.opening import INCOMPLETE
from natsd.jetstream.stream.files import StreamAsset
from natsd.jetstream.stream.publishing import count_fitting, join_commands
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import StoreReadOnly
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.serving import ask, publish
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)


def test_an_entry_has_the_commands_of_a_turn() -> None:
    commands = [Skip(7), PurgeAll(9)]
    entry = join_commands([encode(each) for each in commands])
    assert count(entry) == 2
    first, behind = command_at(entry, FIRST)
    assert [first, command_at(entry, behind)[0]] == commands


def test_an_entry_has_as_many_commands_as_fit_and_at_least_one() -> None:
    commands = [bytes(60), bytes(40), bytes(1)]
    assert [count_fitting(commands, most) for most in (1, 60, 99, 100, 101)] == [1, 1, 1, 2, 3]


async def create(servers: Servers, **settings: Any) -> Server:
    await servers.create(subjects=["orders.>"], **settings)
    return await servers.leader()


async def test_an_acknowledged_message_is_on_all_replicas(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await create(servers)
        for number in range(1, 21):
            assert await servers.store(f"orders.{number % 3}", b"%d" % number) == number
        await servers.agree()


async def test_nothing_is_acknowledged_without_a_majority(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")
        for server in servers.all:
            if server is not leader:
                servers.cut(server)
        asking = asyncio.create_task(ask(leader.jetstream, "orders.2", b"refused"))
        await eventually_within(lambda: not leader.replica.is_leading)
        answer = json.loads((await asking)[0][1])
        assert answer["error"]["err_code"] == 10008
        servers.network.cut.clear()
        servers.cut(leader)
        await servers.leader()  # otherwise the one that has it might lead again, and store it
        servers.network.cut.clear()
        await servers.agree()
        assert (await servers.leader()).stream.readers.log.last_sequence == 1


async def test_a_leader_that_was_cut_off_takes_what_the_new_one_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        first = await create(servers)
        await servers.store("orders.1", b"both")
        servers.cut(first)
        await eventually_within(lambda: first.stream.readers.proposer is not None)
        lost = asyncio.create_task(ask(first.jetstream, "orders.2", b"lost"))
        assert await servers.store("orders.2", b"kept") == 2
        servers.network.cut.clear()
        await servers.agree()
        assert (await first.stream.store.load(2)).data == b"kept"
        assert b"10008" in (await lost)[0][1]


async def test_a_leader_that_was_paused_confirms_only_its_own_entries(tmp_path: Path) -> None:
    """In one turn it learns that its entry is committed, and another leader's behind it."""
    async with cluster(tmp_path) as servers:
        first = await create(servers)
        await servers.store("orders.1", b"all")
        first.host._timer.cancel()
        servers.network.held[first.number] = []
        kept = asyncio.create_task(ask(first.jetstream, "orders.2", b"kept"))
        await eventually_within(lambda: first.group.proposals_under_way == 1)
        lost = asyncio.create_task(ask(first.jetstream, "orders.3", b"lost"))
        await eventually_within(lambda: first.stream.readers.log.last_sequence == 3)
        second = await servers.leader(but=first)
        assert (await publish(second.jetstream, "orders.4", b"new"))["seq"] == 3
        log, applied = second.group.node.log, first.group.applied
        committed = [each for each in log.live_up_to(log.commit) if each.index > applied]
        first.replica.apply([each for each in committed if each.data])
        assert json.loads((await kept)[0][1])["seq"] == 2
        assert not lost.done() and first.stream.readers.committed == 2
        lost.cancel()


async def test_what_comes_while_it_steps_down_is_not_proposed_when_it_leads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is undone, so an entry with it would shift what later entries confirm."""
    async with cluster(tmp_path) as servers:
        first = await create(servers)
        await servers.store("orders.1", b"kept")
        interrupt, late = first.transfer.interrupt, list[asyncio.Task[object]]()

        async def publish_and_interrupt() -> None:
            late.append(asyncio.create_task(ask(first.jetstream, "orders.2", b"late")))
            await eventually_within(lambda: first.stream.readers.log.last_sequence == 2)
            await interrupt()

        with monkeypatch.context() as patch:
            patch.setattr(first.transfer, "interrupt", publish_and_interrupt)
            other = next(each for each in servers.all if each is not first)
            first.group.transfer_leadership(other.group.node.id)
            second = await servers.leader(but=first)
            await eventually_within(lambda: late and late[0].done())
        second.group.transfer_leadership(first.group.node.id)
        await eventually_within(lambda: first.replica.is_leading)
        assert await servers.store("orders.3", b"kept") == 2
        await servers.agree()


async def test_a_replica_that_is_closed_gets_no_more_entries(tmp_path: Path) -> None:
    """Its stream may be closed before the log is: it could not take them."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")
        servers.network.held[leader.number] = []
        late = asyncio.create_task(ask(leader.jetstream, "orders.2"))
        await eventually_within(lambda: leader.group.proposals_under_way)
        await leader.replica.close()
        servers.network.release(leader.number)
        await leader.stream.close()
        await servers.leader(but=leader)
        assert leader.group.is_closed and leader.replica.applied == 1
        late.cancel()


@pytest.mark.parametrize("is_leader", [True, False])
async def test_a_replica_without_its_log_has_all_that_was_acknowledged(
    tmp_path: Path, is_leader: bool
) -> None:
    """A stream that is scaled to one replica goes on with these files alone."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        left = next(each for each in servers.all if (each is leader) is is_leader)
        for number in range(1, 21):
            assert await servers.store("orders.1", b"%d" % number) == number
        await eventually_within(lambda: left.replica._committed == 20)
        servers.network.held = {each.number: [] for each in servers.all}
        late = asyncio.create_task(ask(leader.jetstream, "orders.2"))
        await eventually_within(lambda: leader.group.proposals_under_way)
        await left.replica.finish()
        assert left.stream.store.durable_sequence == left.stream.readers.log.last_sequence == 20
        late.cancel()


async def test_a_replica_that_could_not_be_finished_needs_its_log_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")

        async def fail() -> None:
            raise StoreReadOnly("the disk is broken")

        with monkeypatch.context() as patch:
            patch.setattr(leader.replica, "_synced", fail)
            with pytest.raises(StoreReadOnly, match="broken"):
                await leader.replica.finish()
        with pytest.raises(StoreReadOnly, match="broken"):
            await leader.replica.finish()


async def test_entries_that_were_cut_off_do_not_keep_it_from_leading_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        first = await create(servers)
        await servers.store("orders.1", b"both")
        servers.cut(first)
        large = bytes(600 << 10)  # each is an entry of its own
        lost = [asyncio.create_task(ask(first.jetstream, "orders.2", large)) for _ in range(4)]
        await eventually_within(lambda: first.group.proposals_under_way == 3)
        second = await servers.leader(but=first)
        servers.network.cut.clear()
        await servers.agree()
        await asyncio.gather(*lost)
        second.group.transfer_leadership(first.group.node.id)
        await eventually_within(lambda: first.replica.is_leading)
        assert await servers.store("orders.2", b"kept") == 2


async def test_a_consumer_goes_on_where_it_was(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        first = await create(servers)
        for number in range(10):
            await servers.store("orders.new", b"%d" % number)
        await first.stream.create_consumer(WORKER, "create")
        assert await work(first, 4) == [b"0", b"1", b"2", b"3"]
        await servers.agree()
        servers.cut(first)
        second = await servers.leader(but=first)
        assert await work(second, 6) == [b"4", b"5", b"6", b"7", b"8", b"9"]
        servers.network.cut.clear()
        await servers.agree()


async def work(server: Server, messages: int) -> list[bytes]:
    """Fetch messages, and wait for the confirmation of each acknowledgement."""
    client = server.replica.stream.account.account.internal_client
    found: list[bytes] = []
    inbox = f"_INBOX.work.{server.number}"
    done: asyncio.Queue[tuple[str | None, bytes]] = asyncio.Queue()
    subscription = client.subscribe(
        inbox, lambda _subject, reply, _headers, data: done.put_nowait((reply, data))
    )
    subject = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"
    client.publish(subject, b'{"batch":%d}' % messages, reply=inbox)
    async with asyncio.timeout(20):
        while len(found) < messages:
            reply, data = await done.get()
            assert reply is not None
            found.append(data)
            await ask(server.jetstream, reply, b"+ACK")
    client.unsubscribe(subscription)
    return found


async def test_a_restarted_replica_goes_on(tmp_path: Path) -> None:
    """Its files are later than the last snapshot of its group: entries come again."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers, max_msgs=30)
        for number in range(70):
            await servers.store(f"orders.{number % 7}", b"%d" % number)
        other = next(each for each in servers.all if each is not leader)
        await servers.restart(other)
        for number in range(70, 90):
            await servers.store(f"orders.{number % 7}", b"%d" % number)
        await servers.agree()


async def test_all_replicas_are_restarted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await create(servers, max_msgs_per_subject=2)
        for number in range(40):
            await servers.store(f"orders.{number % 5}", b"%d" % number)
        for server in servers.all:
            await server.stop()
        for server in servers.all:
            await server.start()
            await servers.serve(server)
        assert await servers.store("orders.1") == 41
        await servers.agree()


async def test_a_replica_that_was_left_behind_fetches_the_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await leader.stream.create_consumer(WORKER, "create")
        other = next(each for each in servers.all if each is not leader)
        servers.cut(other)
        for number in range(120):
            await servers.store(f"orders.{number}", b"%d" % number + bytes(100))
        await work(leader, 5)
        await eventually_within(lambda: leader.group.node.log.snapshot.index > 50)
        servers.network.cut.clear()
        await servers.agree(lambda: other.transfer.fetched)
        await servers.store("orders.more")
        await servers.agree()
        await servers.restart(other)
        await servers.agree()


async def test_a_snapshot_is_of_the_moment_at_which_it_is_due(tmp_path: Path) -> None:
    """It is taken later, and the log goes on from the entry that was the last one then."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")
        applied = leader.replica.applied
        snapshot = leader.replica.snapshot()()
        await servers.store("orders.2")
        assert decode_manifest(await snapshot).applied == applied
        assert decode_manifest(await leader.replica.snapshot()()).applied == applied + 1


@pytest.mark.parametrize(
    "what", ["directory", "block", "a lost block", "a crash before they were replaced"]
)
async def test_files_that_lack_something_are_replaced(tmp_path: Path, what: str) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        for number in range(80):
            await servers.store(f"orders.{number % 9}", b"%d" % number + bytes(100))
        other = next(each for each in servers.all if each is not leader)
        await eventually_within(lambda: other.group.node.log.snapshot.index > 50)
        await servers.agree()
        directory = other.stream.directory
        await other.stop()
        noted = directory.parent.parent / INCOMPLETE / directory.name
        assert not noted.exists()
        if what == "directory":
            shutil.rmtree(directory)
        elif what.startswith("a crash"):
            noted.mkdir(parents=True)
        elif what == "a lost block":
            for path in directory.glob("msgs/*.blk"):
                path.unlink()
            for path in directory.glob("msgs/index.db*"):
                path.unlink()
        else:
            (block,) = directory.glob("msgs/*.blk")
            flipped = bytearray(block.read_bytes())
            flipped[flipped.index(bytes(100)) + 50] ^= 1
            block.write_bytes(flipped)
        await other.start()
        await servers.serve(other)
        await servers.agree(lambda: other.transfer.fetched)
        assert not other.stream.damage
        await eventually_within(lambda: not noted.exists())
        assert not other.group.node.is_observer
        await servers.store("orders.more")
        await servers.agree()


async def test_a_damaged_configuration_is_written_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")
        other = next(each for each in servers.all if each is not leader)
        await servers.agree()
        await other.stop()
        copies = list(other.stream_directory.glob("meta.json*"))
        before = {path: path.read_bytes() for path in copies}
        assert len(copies) == 2
        for path in copies:
            path.write_bytes(b"damaged")
        await other.start()
        await servers.serve(other)
        await servers.agree()
        assert before.keys() == set(other.stream_directory.glob("meta.json*"))
        asset = read_asset(other.jetstream.vault, other.stream_directory, StreamAsset)
        assert asset == StreamAsset(config=servers.config, created=servers.created_ns)
        assert not other.transfer.fetched


async def test_the_configuration_is_that_of_the_group(tmp_path: Path) -> None:
    """What this server is told at its start may be older."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        config = leader.stream.config.model_copy(update={"max_msgs": 1000})
        await leader.stream.reconfigure(config)
        for number in range(80):
            await servers.store(f"orders.{number}")
        await eventually_within(
            lambda: all(each.group.node.log.snapshot.index > 50 for each in servers.all)
        )
        other = next(each for each in servers.all if each is not leader)
        await servers.restart(other)
        await servers.agree()
        assert other.stream.config == config != servers.config


async def test_a_stream_of_another_time_is_replaced(tmp_path: Path) -> None:
    """Its removal was missed, and the stream of that name was made again."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await servers.store("orders.1")
        other = next(each for each in servers.all if each is not leader)
        await servers.agree()
        await other.stop()
        await other.start()
        write_asset(
            other.jetstream.vault,
            other.stream_directory,
            StreamAsset(config=servers.config, created=servers.created_ns - 1),
        )
        await servers.serve(other)
        await servers.agree(lambda: other.transfer.fetched)
        assert other.stream.created_ns == servers.created_ns


CHANGES: dict[str, Callable[[Stream], Awaitable[object]]] = {
    "create": lambda stream: stream.create_consumer(
        ConsumerConfig(durable_name="other", ack_policy=AckPolicy.EXPLICIT), "create"
    ),
    "update": lambda stream: stream.create_consumer(
        WORKER.model_copy(update={"max_ack_pending": 7}), "update"
    ),
    "delete": lambda stream: stream.delete_consumer("worker"),
    "reconfigure": lambda stream: stream.reconfigure(
        stream.config.model_copy(update={"max_msgs": 7})
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stored", [5, 80], ids=["whole log", "snapshot"])
async def test_a_leader_that_stops_forgets_what_was_not_agreed_to(
    tmp_path: Path, change: str, stored: int
) -> None:
    """The change is in its files already."""
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        await leader.stream.create_consumer(WORKER, "create")
        await leader.stream.agreed()
        for number in range(stored):
            await servers.store(f"orders.{number}", b"%d" % number)
        await work(leader, 4)
        if stored > 50:
            await eventually_within(
                lambda: all(each.group.node.log.snapshot.index > 50 for each in servers.all)
            )
        await servers.agree()
        for server in servers.all:
            if server is not leader:
                servers.cut(server)
        await CHANGES[change](leader.stream)
        assert leader.replica.is_leading
        await leader.stop()
        servers.network.cut.clear()
        await servers.leader()
        await leader.start()
        await servers.serve(leader)
        await servers.agree()
        assert list(leader.stream.consumers) == ["worker"]
        assert leader.stream.config.max_msgs == -1
        await eventually_within(lambda: not leader.group.node.is_observer)
        assert bool(leader.transfer.fetched) == (change == "delete" and stored > 50)
        await servers.restart(leader)
        await servers.agree()
