"""Direct gets: each replica answers them from what it has applied, once it lacks nothing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from natsd.jetstream.models.stream import StreamSource
from natsd.raft import group
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.serving import ask
from tests.waiting import eventually_within

GET = "$JS.API.DIRECT.GET.{}.orders.new"
SILENCE_S = 0.1


async def get(server: Server, of: str = "ORDERS") -> bytes | None:
    """Return the last message of orders.new that this server has; None: it does not answer."""
    try:
        async with asyncio.timeout(SILENCE_S):
            ((headers, data),) = await ask(server.jetstream, GET.format(of))
    except TimeoutError:
        return None
    return headers if headers.startswith(b"NATS/1.0 404") else data


async def shows(server: Server, data: bytes | None, of: str = "ORDERS") -> None:
    """Wait until the server answers so."""
    async with asyncio.timeout(20):
        while await get(server, of) != data:  # noqa: ASYNC110 - it asks
            await asyncio.sleep(0.01)


async def create(servers: Servers) -> tuple[Server, Server]:
    """Return the leader, and another server."""
    await servers.create(subjects=["orders.>"], allow_direct=True)
    await servers.store("orders.new", b"one")
    leader = await servers.leader()
    return leader, next(each for each in servers.all if each is not leader)


async def test_each_replica_answers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await create(servers)
        for server in servers.all:
            await shows(server, b"one")
        await servers.store("orders.new", b"two")
        for server in servers.all:
            await shows(server, b"two")


async def test_a_replica_follows_the_configuration(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await shows(other, b"one")
        config = leader.stream.config
        await leader.stream.reconfigure(config.model_copy(update={"allow_direct": False}))
        for server in servers.all:
            await shows(server, None)
        await leader.stream.reconfigure(config)
        for server in servers.all:
            await shows(server, b"one")


async def test_nothing_is_shown_that_no_majority_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, _ = await create(servers)
        for server in servers.all:
            await shows(server, b"one")
        for server in servers.all:
            if server is not leader:
                servers.cut(server)
        lost = asyncio.create_task(ask(leader.jetstream, "orders.new", b"lost"))
        await eventually_within(lambda: leader.stream.readers.log.last_sequence == 2)
        for server in servers.all:
            # The leader waits for what came last, and the others do not know of it.
            assert await get(server) == (None if server is leader else b"one")
        await lost
        await eventually_within(lambda: not leader.replica.is_leading)
        await shows(leader, b"one")


async def test_a_leader_that_steps_down_answers_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await shows(other, b"one")
        leader.group.transfer_leadership(other.group.node.id)
        silent = 0
        while not (other.replica.is_leading and not leader.replica.is_leading):
            silent += await get(other) is None
        assert silent == 0
        for server in servers.all:
            await shows(server, b"one")


async def test_a_replica_alone_answers_nothing_after_a_restart(tmp_path: Path) -> None:
    """It may lack any number of messages: it answers once it has what the others have."""
    async with cluster(tmp_path) as servers:
        _, other = await create(servers)
        await shows(other, b"one")
        await other.stop()
        await servers.store("orders.new", b"two")
        servers.cut(other)
        await other.start()
        await servers.serve(other)
        for _ in range(5):
            assert await get(other) is None
        servers.network.cut.clear()
        await shows(other, b"two")


async def test_a_question_to_the_leader_that_is_lost_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica asks what is committed, and frames may be lost."""
    monkeypatch.setattr(group, "LEADER_S", 0.2)
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await shows(other, b"one")
        await other.stop()
        deliver = servers.network.deliver

        def lose(sender: int, receiver: int, frame: bytes) -> None:
            if (sender, receiver) != (other.number, leader.number):
                deliver(sender, receiver, frame)

        monkeypatch.setattr(servers.network, "deliver", lose)
        await other.start()
        await servers.serve(other)
        await eventually_within(lambda: other.group.node._own_reads._waiting)  # it is asked
        monkeypatch.setattr(servers.network, "deliver", deliver)
        await shows(other, b"one")


@pytest.mark.parametrize("why", ["wiped", "left behind"])
async def test_a_replica_that_lacks_something_answers_nothing(tmp_path: Path, why: str) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await shows(other, b"one")
        if why == "wiped":
            await other.stop()
        else:
            servers.cut(other)
        for _ in range(120):
            await servers.store("orders.new", b"two" + bytes(100))
        await eventually_within(lambda: leader.group.node.log.snapshot.index > 50)
        other.may_fetch.clear()
        if why == "wiped":
            shutil.rmtree(other.stream_directory)
            await other.start()
            await servers.serve(other)
        servers.network.cut.clear()
        await eventually_within(lambda: other.transfer.fetched)
        assert await get(other) is None
        other.may_fetch.set()
        await shows(other, b"two" + bytes(100))


async def test_a_mirror_answers_for_its_origin(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        await servers.create(
            mirror=StreamSource(name="ORIGIN"), mirror_direct=True, allow_direct=False
        )
        leader = await servers.leader()
        other = next(each for each in servers.all if each is not leader)
        await shows(other, b"NATS/1.0 404 Message Not Found\r\n\r\n", "ORIGIN")
        assert await get(other) is None
        config = leader.stream.config.model_copy(update={"mirror_direct": False})
        await leader.stream.reconfigure(config)
        await shows(other, None, "ORIGIN")


async def age_s(server: Server) -> float | None:
    """Return how old an answer of this server says to be; None: it does not say, or answer."""
    try:
        async with asyncio.timeout(SILENCE_S):
            ((headers, _),) = await ask(server.jetstream, GET.format("ORDERS"))
    except TimeoutError:
        return None
    _, found, rest = headers.partition(b"Natsd-Staleness: ")
    return float(rest.partition(b"s")[0]) if found else None


async def says_its_age(server: Server, *, says: bool = True) -> None:
    async with asyncio.timeout(20):
        while (await age_s(server) is not None) is not says:  # noqa: ASYNC110 - it asks
            await asyncio.sleep(0.01)


async def test_a_replica_becomes_a_read_replica_and_a_replica_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await shows(other, b"one")
        assert await age_s(other) is None
        member = other.group.node.id
        await servers.make_learner(leader, other)
        other.replica.change_role(is_read_replica=True)
        await says_its_age(other)
        await servers.store("orders.new", b"two")
        await shows(other, b"two")
        assert other.group.node.is_observer
        other.replica.change_role(is_read_replica=False)
        await eventually_within(
            lambda: leader.group.lags()[member] == 0 and not other.group.node.is_observer
        )
        await leader.group.promote(member)
        await says_its_age(other, says=False)
        await shows(other, b"two")
        leader.group.transfer_leadership(member)
        assert await servers.leader(but=leader) is other


async def test_a_read_replica_that_is_cut_off_goes_on_and_ages(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await servers.make_learner(leader, other)
        other.replica.change_role(is_read_replica=True)
        await says_its_age(other)
        servers.cut(other)
        await servers.store("orders.new", b"two")
        async with asyncio.timeout(20):
            while (await age_s(other) or 0) < 1.5:  # noqa: ASYNC110 - it asks
                await asyncio.sleep(0.01)
        assert await get(other) == b"one"
        servers.network.cut.clear()
        await shows(other, b"two")


async def test_one_whose_files_are_lost_gets_the_stream_from_another_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader, other = await create(servers)
        await servers.make_learner(leader, other)
        for _ in range(60):  # so that the log has let go of the first ones
            await servers.store("orders.old")
        await other.stop()
        shutil.rmtree(other.stream_directory)
        await other.start()
        await servers.serve(other)
        other.replica.change_role(is_read_replica=True)
        await shows(other, b"one")
        await says_its_age(other)
        assert other.transfer.fetched
