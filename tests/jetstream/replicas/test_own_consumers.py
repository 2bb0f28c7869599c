"""Consumers that a read replica serves, when its files, its log or its stream change."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from natsd.jetstream.consumer.consumer import Consumer, Floor
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.stream import own_consumers
from natsd.jetstream.stream.own_consumers import OwnConsumers
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.replicas.test_failures import find_no_space, write_nothing
from tests.jetstream.serving import account_of, ask
from tests.waiting import eventually_within

NEXT = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.c"


class Far:
    """A leader and a read replica, which serves the consumer `c`."""

    def __init__(self, servers: Servers, leader: Server, server: Server) -> None:
        self.servers = servers
        self.leader = leader
        self.server = server

    async def make(self, **settings: object) -> None:
        """Have the leader create the consumer, and wait until the read replica serves it."""
        settings = {"metadata": {"natsd.read_replica": self.server.name}} | settings
        config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, **settings)
        made = await self.leader.stream.create_consumer(config, "create")
        if made.server == self.server.name:
            await eventually_within(
                lambda: self.is_served and self.consumer.created_ns == made.created_ns
            )
        assert not made.is_serving

    async def move(self) -> None:
        """Have the leader move the consumer to the read replica, and wait until that serves it."""
        stream = self.leader.stream
        await stream.move_consumer(stream.consumers["c"], self.server.name)
        await stream.agreed()
        await eventually_within(lambda: self.is_served)

    @property
    def consumer(self) -> Consumer:
        return self.server.stream.consumers["c"]

    @property
    def is_served(self) -> bool:
        return "c" in self.server.stream.consumers and self.consumer.is_serving

    async def take(self, number: int) -> list[bytes]:
        """Pull messages, and return their data once their acknowledgements are on disk."""
        await eventually_within(lambda: self.is_served)
        return [await self._take_one() for _ in range(number)]

    async def _take_one(self) -> bytes:
        client = account_of(self.server.jetstream).account.internal_client
        came: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()

        def take(_subject: str, reply: str | None, _headers: bytes, data: bytes) -> None:
            came.set_result((reply or "", data))

        subscription = client.subscribe("here", take)
        client.publish(NEXT, b"1", reply="here")
        async with asyncio.timeout(20):
            reply, data = await came
        client.unsubscribe(subscription)
        await ask(self.server.jetstream, reply, b"+ACK")
        return data

    async def restart(self) -> None:
        await self.servers.restart(self.server)
        self.server.replica.change_role(is_read_replica=True)

    async def store(self, first: int, last: int) -> None:
        for number in range(first, last):
            await self.servers.store("orders.new", b"%d" % number)


@asynccontextmanager
async def far(directory: Path) -> AsyncIterator[Far]:
    async with cluster(directory) as servers:
        await servers.create(subjects=["orders.>"], allow_direct=True)
        await servers.store("orders.new", b"0")
        leader = await servers.leader()
        other = next(each for each in servers.all if each is not leader)
        await servers.make_learner(leader, other)
        other.replica.change_role(is_read_replica=True)
        yield Far(servers, leader, other)


async def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The commands that made it come again, of it and of an earlier one of its name."""
    async with far(tmp_path) as site:
        await site.make()
        assert await site.take(1) == [b"0"]
        await site.restart()
        await site.store(1, 3)
        assert await site.take(1) == [b"1"]
        await site.leader.stream.delete_consumer("c")
        await site.make()
        assert await site.take(2) == [b"0", b"1"]
        await site.restart()
        assert await site.take(1) == [b"2"]
        await site.leader.stream.delete_consumer("c")
        await eventually_within(lambda: "c" not in site.server.stream.consumers)
        await site.restart()
        await site.servers.store("orders.new", b"3")
        await eventually_within(lambda: site.server.stream.readers.log.last_sequence == 4)
        assert "c" not in site.server.stream.consumers


@pytest.mark.parametrize("why", ["left behind", "without messages"])
async def test_it_goes_on_in_another_copy_of_the_stream(tmp_path: Path, why: str) -> None:
    async with far(tmp_path) as site:
        await site.make()
        assert await site.take(1) == [b"0"]
        await site.store(1, 3)
        assert await site.take(1) == [b"1"]
        if why == "left behind":
            site.servers.cut(site.server)
        await site.store(3, 123)
        for each in (site.leader, site.server)[: 1 if why == "left behind" else 2]:
            await eventually_within(lambda at=each: at.group.node.log.snapshot.index > 50)
        if why == "left behind":
            site.servers.network.cut.clear()
        else:
            await site.server.stop()
            shutil.rmtree(site.server.stream_directory / "msgs")
            await site.server.start()
            await site.servers.serve(site.server)
            site.server.replica.change_role(is_read_replica=True)
        await eventually_within(lambda: site.server.transfer.fetched)
        await eventually_within(lambda: site.server.stream.readers.log.last_sequence >= 100)
        assert await site.take(1) == [b"2"]


async def test_it_stands_still_while_the_stream_is_rolled_back(tmp_path: Path) -> None:
    async with far(tmp_path) as site:
        await site.make()
        assert await site.take(1) == [b"0"]
        await write_nothing(site.server)
        await site.store(1, 4)
        assert await site.take(2) == [b"1", b"2"]
        find_no_space(site.server)
        assert site.server.stream.readers.log.last_sequence == 1
        assert not site.is_served
        assert await site.take(1) == [b"3"]
        assert site.consumer.engine.ack_floor().stream == 4


async def test_it_delivers_nothing_that_no_majority_has(tmp_path: Path) -> None:
    async with far(tmp_path) as site:
        await site.make()
        assert await site.take(1) == [b"0"]
        for each in site.servers.all:
            if each not in (site.leader, site.server):
                site.servers.cut(each)
        lost = asyncio.create_task(ask(site.leader.jetstream, "orders.new", b"lost"))
        log = site.leader.stream.readers.log
        await eventually_within(lambda: log.last_sequence == 2)
        await eventually_within(lambda: site.server.group.node.log.last_index >= 3)
        assert site.consumer.engine.num_pending == 0
        await lost
        site.servers.network.cut.clear()
        await site.servers.store("orders.new", b"1")
        assert (await site.take(1))[0] in (b"1", b"lost")


async def test_its_configuration_follows_that_of_the_leader(tmp_path: Path) -> None:
    """Also while somebody listens where it has pushed to: the leader has checked that."""
    async with far(tmp_path) as site:
        await site.make(deliver_subject="to.here")
        client = account_of(site.server.jetstream).account.internal_client
        found: list[bytes] = []
        for subject in ("to.here", "to.there"):
            client.subscribe(subject, lambda _s, _r, _h, data: found.append(data))
        await eventually_within(lambda: found == [b"0"])
        config = site.consumer.config.model_copy(update={"deliver_subject": "to.there"})
        await site.leader.stream.create_consumer(config, "update")
        await eventually_within(lambda: site.consumer.config.deliver_subject == "to.there")
        assert site.server.replica.failure is None
        await site.leader.stream.consumers["c"].pause(2**62)
        await eventually_within(lambda: site.consumer.config.pause_until)
        await site.store(1, 2)
        await site.leader.stream.consumers["c"].pause(0)
        await eventually_within(lambda: found[-1] == b"1")


async def test_an_ordinary_follower_takes_a_change_that_its_leader_has_checked(
    tmp_path: Path,
) -> None:
    """A subscriber that the leader does not see yet does not end the replica."""
    async with cluster(tmp_path) as servers:
        await servers.create(subjects=["orders.>"])
        leader = await servers.leader()
        config = ConsumerConfig(durable_name="c", deliver_subject="to.here")
        await leader.stream.create_consumer(config, "create")
        other = next(each for each in servers.all if each is not leader)
        client = account_of(other.jetstream).account.internal_client
        client.subscribe("to.here", lambda *_: None)
        changed = leader.stream.consumers["c"].config.model_copy(
            update={"deliver_subject": "to.there"}
        )
        await leader.stream.create_consumer(changed, "update")
        await servers.agree()
        assert other.replica.failure is None


async def test_one_that_has_moved_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The commands of before the move come again, at its server and at the others."""
    async with far(tmp_path) as site:
        await site.store(1, 6)
        config = {"natsd.read_replica": "elsewhere", "natsd.read_replica_moves": "true"}
        await site.make(metadata=config)
        before = site.leader.stream.consumers["c"]
        before.note_floor(Floor("c", before.created_ns, 2))
        await site.move()
        assert await site.take(2) == [b"2", b"3"]
        await site.restart()
        assert await site.take(1) == [b"4"]
        for each in site.servers.all:
            if each is not site.server:
                await site.servers.restart(each)
                assert each.transfer.fetched == 0
        await site.servers.leader()
        for each in site.servers.all:
            await eventually_within(lambda at=each: is_at(at, site.server.name))
        assert await site.take(1) == [b"5"]


def is_at(server: Server, name: str) -> bool:
    consumer = server.stream.consumers.get("c")
    return consumer is not None and consumer.server == name


async def test_a_move_survives_snapshots_and_a_full_restart(tmp_path: Path) -> None:
    async with far(tmp_path) as site:
        config = {"natsd.read_replica": "elsewhere", "natsd.read_replica_moves": "true"}
        await site.make(metadata=config)
        await site.store(1, 123)
        for each in site.servers.all:
            await eventually_within(lambda at=each: at.group.node.log.snapshot.index > 50)
        before = site.leader.stream.consumers["c"]
        before.note_floor(Floor("c", before.created_ns, 100))
        await site.move()
        assert await site.take(1) == [b"100"]
        await site.servers.agree(but=("consumers",))  # one that is left behind fetches the stream
        await asyncio.gather(*(each.stop() for each in site.servers.all))
        for each in site.servers.all:
            await each.start()
            await site.servers.serve(each)
        site.server.replica.change_role(is_read_replica=True)
        assert await site.take(1) == [b"101"]
        assert [each.transfer.fetched for each in site.servers.all] == [0, 0, 0]


async def test_a_move_that_nobody_agreed_to_is_undone(tmp_path: Path) -> None:
    async with far(tmp_path) as site:
        config = {"natsd.read_replica": "elsewhere", "natsd.read_replica_moves": "true"}
        await site.make(metadata=config)
        leader, name = site.leader, site.server.name
        before = leader.stream.consumers["c"]
        before.note_floor(Floor("c", before.created_ns, 1))
        await leader.stream.agreed()
        site.servers.cut(leader)
        await leader.stream.move_consumer(before, name)
        assert leader.stream.consumers["c"].server == name
        await eventually_within(lambda: not leader.replica.is_leading)
        await eventually_within(lambda: is_at(leader, "elsewhere"))
        undone = leader.stream.consumers["c"]
        assert undone.created_ns == before.created_ns
        assert undone.store.tracker.floor_stream == 1
        site.servers.network.cut.clear()


async def test_its_leader_is_told_how_far_it_is(tmp_path: Path) -> None:
    told: list[Floor] = []

    async def report(floors: Sequence[Floor]) -> bool:
        told.extend(floors)
        return len(told) > 1  # the first report is lost

    async with far(tmp_path) as site:
        with patch.object(own_consumers, "REPORT_EVERY_S", 0.0):
            await site.store(1, 3)
            await site.make()
            created_ns = site.consumer.created_ns
            site.server.stream.own_consumers.report = report
            await eventually_within(lambda: told == 2 * [Floor("c", created_ns, 0)])
            assert await site.take(2) == [b"0", b"1"]
            await eventually_within(lambda: told[-1].sequence == 2)


async def test_one_whose_state_is_there_ignores_what_was_told(tmp_path: Path) -> None:
    async with far(tmp_path) as site:
        await site.store(1, 4)
        await site.make()
        assert await site.take(2) == [b"0", b"1"]
        known = site.leader.stream.consumers["c"]
        known.note_floor(Floor("c", known.created_ns, 1))
        known.note_floor(Floor("c", known.created_ns - 1, 3))  # of an earlier one
        await site.servers.agree(but=("consumers",))
        assert known.store.tracker.floor_stream == 1
        assert await site.take(1) == [b"2"]
        await site.restart()
        assert await site.take(1) == [b"3"]


async def test_one_that_is_not_used_is_removed_by_the_leader(tmp_path: Path) -> None:
    asked = []

    async def delete(name: str, created_ns: int) -> None:
        asked.append(created_ns)
        if len(asked) > 1:
            await leader.stream.delete_consumer(name)

    async with far(tmp_path) as site:
        leader = site.leader
        own: OwnConsumers = site.server.stream.own_consumers
        own.ask_to_delete = delete
        await site.make(inactive_threshold=100_000_000)
        created_ns = site.consumer.created_ns
        await eventually_within(lambda: "c" not in site.server.stream.consumers)
        assert asked == [created_ns, created_ns]
