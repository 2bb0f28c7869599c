"""Answers wait for a majority: changes through the API, double acknowledgements, deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.replicas.servers import Server, Servers, cluster
from tests.jetstream.serving import account_of, ask, publish
from tests.waiting import eventually_within

WORKER = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)
OTHER = ConsumerConfig(durable_name="other", ack_policy=AckPolicy.EXPLICIT)
PATIENT_TICKS = 40
"""A leader that is cut off leads on while several changes are made, on a busy machine, too."""
NEXT = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"

Change = Callable[[Stream], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "create": lambda stream: stream.create_consumer(OTHER, "create"),
    "update": lambda stream: stream.create_consumer(
        WORKER.model_copy(update={"max_ack_pending": 7}), "update"
    ),
    "pause": lambda stream: stream.consumer("worker").pause(1 << 62),
    "drop": lambda stream: stream.delete_consumer("worker"),
    "reconfigure": lambda stream: stream.reconfigure(
        stream.config.model_copy(update={"max_msgs": 3})
    ),
}
"""Changes that are made here before a majority has them."""
WAITING_CHANGES: dict[str, Change] = {
    "delete": lambda stream: stream.delete_message(1),
    "purge": lambda stream: stream.purge(),
    "reset": lambda stream: stream.consumer("worker").reset(1),
}
"""Changes that return when they are on disk, where nothing is that a majority has not."""


async def create(servers: Servers) -> Server:
    await servers.create(subjects=["orders.>"])
    for number in range(5):
        await servers.store("orders.new", b"%d" % number)
    leader = await servers.leader()
    await leader.stream.create_consumer(WORKER, "create")
    await leader.stream.agreed()
    return leader


def cut_off(servers: Servers, leader: Server) -> None:
    for server in servers.all:
        if server is not leader:
            servers.cut(server)


async def come_back(servers: Servers, leader: Server) -> None:
    """Join the others, and the old leader when they have another one: its entries are lost."""
    servers.network.cut.clear()
    servers.cut(leader)
    await servers.leader(but=leader)
    servers.network.cut.clear()
    await servers.agree()


async def settle() -> None:
    """Let all that may happen without a majority happen."""
    for _ in range(20):
        await asyncio.sleep(0.005)


async def change(stream: Stream, make: Change) -> None:
    """Make a change as the API's router does: its answer waits for the agreement."""
    agreement = stream.agreement
    assert agreement is not None
    await make(stream)
    await agreement.reached()


async def test_changes_are_agreed_with_a_majority(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        proposer = leader.stream.readers.proposer
        assert proposer is not None
        for make in {**WAITING_CHANGES, **CHANGES}.values():
            async with asyncio.timeout(20):
                await change(leader.stream, make)
            assert proposer.proposed == proposer.committed
        await servers.agree()


async def test_changes_that_no_majority_has_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, election_ticks=PATIENT_TICKS) as servers:
        leader = await create(servers)
        before = leader.stream.config, leader.stream.consumer("worker").config
        cut_off(servers, leader)
        proposer = leader.stream.readers.proposer
        assert proposer is not None
        changing = []
        for make in CHANGES.values():
            before_it = proposer.proposed
            changing.append(asyncio.create_task(change(leader.stream, make)))
            await eventually_within(lambda before=before_it: proposer.proposed > before)
        await settle()
        assert not any(each.done() for each in changing)
        for each in changing:
            with pytest.raises(NotCommitted):
                await each
        await eventually_within(lambda: not leader.replica.is_leading)
        await come_back(servers, leader)
        stream = (await servers.leader()).stream
        assert before == (stream.config, stream.consumer("worker").config)
        assert list(stream.consumers) == ["worker"]


async def test_removals_that_no_majority_has_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, election_ticks=PATIENT_TICKS) as servers:
        leader = await create(servers)
        cut_off(servers, leader)
        changing = []
        for make in WAITING_CHANGES.values():
            changing.append(asyncio.create_task(change(leader.stream, make)))
            await settle()
        assert not any(each.done() for each in changing)
        for each in changing:
            with pytest.raises(ApiError):
                await each
        await come_back(servers, leader)
        assert (await servers.leader()).stream.store.log.msgs == 5


async def test_a_leadership_that_is_over_agrees_to_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        agreement = leader.stream.agreement
        assert agreement is not None
        await agreement.reached()
        cut_off(servers, leader)
        await eventually_within(lambda: not leader.replica.is_leading)
        servers.network.cut.clear()
        await servers.leader()
        with pytest.raises(NotCommitted):
            await agreement.reached()


async def test_a_stream_that_closes_agrees_to_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        cut_off(servers, leader)
        changing = asyncio.create_task(change(leader.stream, CHANGES["create"]))
        await settle()
        await leader.stop()
        with pytest.raises(NotCommitted):
            await changing
        servers.network.cut.clear()
        await leader.start()
        await servers.serve(leader)


# Consumers


class Client:
    """A client of a server: the messages that it was sent, and the confirmations it got."""

    def __init__(self, server: Server) -> None:
        self.client = account_of(server.jetstream).account.internal_client
        self.messages: list[tuple[str | None, bytes]] = []
        self.confirmed = 0
        self.client.subscribe("inbox", lambda _s, reply, _h, data: self._take(reply, data))
        self.client.subscribe("confirmations", self._confirm)

    def _take(self, reply: str | None, data: bytes) -> None:
        if reply is not None and reply.startswith("$JS.ACK."):
            self.messages.append((reply, data))

    def _confirm(self, *_: object) -> None:
        self.confirmed += 1

    def acknowledge(self, kind: bytes = b"+ACK") -> None:
        """Acknowledge the last message, and ask for the confirmation of that."""
        subject, _ = self.messages[-1]
        assert subject is not None
        self.client.publish(subject, kind, reply="confirmations")


@pytest.mark.parametrize("kind", [b"+ACK", b"+TERM"])
async def test_an_acknowledgement_is_confirmed_by_a_majority(tmp_path: Path, kind: bytes) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        client = Client(leader)
        client.client.publish(NEXT, b'{"batch":2}', reply="inbox")
        await eventually_within(lambda: len(client.messages) == 2)
        client.acknowledge(kind)
        await eventually_within(lambda: client.confirmed == 1)
        await leader.stream.agreed()  # also the deliveries
        client.messages.pop()
        cut_off(servers, leader)
        client.acknowledge(kind)
        client.acknowledge(kind)  # it changes nothing, but depends on what is not committed
        await settle()
        assert client.confirmed == 1
        await eventually_within(lambda: not leader.replica.is_leading)
        await settle()
        assert client.confirmed == 1


async def test_a_message_is_delivered_when_a_majority_has_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        leader = await create(servers)
        client = Client(leader)
        client.client.publish(NEXT, b'{"batch":10}', reply="inbox")
        await eventually_within(lambda: len(client.messages) == 5)
        await leader.stream.agreed()  # otherwise they may be delivered again
        cut_off(servers, leader)
        lost = asyncio.create_task(publish(leader.jetstream, "orders.new", b"lost"))
        await settle()
        assert leader.stream.readers.log.last_sequence == 6
        assert (await leader.stream.info()).state.last_seq == 5
        assert len(client.messages) == 5
        assert (await lost)["error"]["err_code"] == 10008
        await come_back(servers, leader)
        leader = await servers.leader()
        client = Client(leader)
        client.client.publish(NEXT, b'{"batch":10}', reply="inbox")
        await settle()
        answer = asyncio.create_task(ask(leader.jetstream, "orders.new", b"kept"))
        await eventually_within(lambda: [data for _, data in client.messages] == [b"kept"])
        await answer


async def test_a_deposed_leader_refuses_nothing(tmp_path: Path) -> None:
    """It lacks what the new leader has, which may take what it would refuse."""
    async with cluster(tmp_path) as servers:
        await servers.create(subjects=["s.*"])
        await servers.store("s.a", b"1")
        old = await servers.leader()
        stale = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 9\r\n\r\n"
        refused = await publish(old.jetstream, "s.a", b"x", stale)
        assert refused["error"]["err_code"] == 10071, "a leader refuses"
        servers.cut(old)
        task = asyncio.create_task(publish(old.jetstream, "s.a", b"x", stale))
        await servers.leader(but=old)
        await servers.store("s.a", b"2")
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
