"""Servers with a JetStream and a RAFT host each, in one process; the test cuts their network.

async with cluster(tmp_path) as servers:
    await servers.create(subjects=["orders.>"])
    leader = await servers.leader()
    await publish(leader.jetstream, "orders.new", b"7")
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from natsd.accounts import Account
from natsd.accounts.internal_client import Handler, InternalClient
from natsd.core.network import AccountPublisher, Reactor
from natsd.core.routing import Subscription
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.replicas.opening import open_replica
from natsd.jetstream.replicas.stream_image import BuiltStream
from natsd.jetstream.replicas.stream_replica import StreamReplica
from natsd.jetstream.replicas.transfer import StreamTransfer
from natsd.jetstream.stream.stream import Stream
from natsd.raft.group import GroupLimits, RaftGroup
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.options import Options
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import member_id
from natsd.store.disk.disk import Disk, make_directories, rename_synced
from natsd.store.disk.real_disk import RealDisk
from tests.jetstream.commands.replay import state_of
from tests.jetstream.serving import ACCOUNT, DEADLINE_S, account_of, publish, tiers_of
from tests.jetstream.serving import build as build_jetstream
from tests.raft.driver.network import Link, Network
from tests.waiting import eventually_within

STREAM = "ORDERS"
GROUP = "stream"
OPTIONS = HostOptions(
    tick_s=0.05,
    group=Options(election_ticks=20, trailing_bytes_max=1000),
    limits=GroupLimits(snapshot_after_entries=50),
)


class CountedTransfer(StreamTransfer):
    """The transfers of a server, which are counted, and wait if the test says so."""

    server: Server
    fetched = 0

    async def fetch(self, stream: Stream, applied: int) -> BuiltStream:
        self.fetched += 1
        await self.server.may_fetch.wait()
        return await super().fetch(stream, applied)


class CutClient(InternalClient):
    """The client of the system account on one server, which may be cut off."""

    def __init__(self, server: Server) -> None:
        account = server.cluster.system
        publisher = AccountPublisher(server.cluster.reactor, account.sublist)
        super().__init__(server.cluster.reactor, account.sublist, publisher)
        self._server = server

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str | None = None, headers: bytes = b""
    ) -> None:
        if not self._server.is_cut:
            super().publish(subject, payload, reply=reply, headers=headers)

    def subscribe(
        self, subject: str, handler: Handler, *, queue: str | None = None
    ) -> Subscription:
        def take(subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
            if not self._server.is_cut:
                handler(subject, reply, headers, data)

        return super().subscribe(subject, take, queue=queue)


class Server:
    """One server of the cluster."""

    def __init__(self, cluster: Servers, number: int, directory: Path, disk: Disk) -> None:
        self.cluster = cluster
        self.disk = disk
        self.number = number
        self.directory = directory
        self.is_up = False
        self.may_fetch = asyncio.Event()
        self.may_fetch.set()
        self.transfer: CountedTransfer
        self.replica: StreamReplica
        self.group: RaftGroup
        self.jetstream: JetStream
        self.host: RaftHost

    async def start(self) -> None:
        """Start the server, with the replica that its files have."""
        self.jetstream = build_jetstream(self.directory / "jetstream", disk=self.disk)
        self.jetstream.server_name = self.name
        self._account = Account(ACCOUNT, self.jetstream.reactor)
        await self.jetstream.start([])
        with self._set_aside():
            await self.jetstream.configure_account(self._account, tiers_of(None))
        chance = random.Random(self.number)
        self._logs = await asyncio.to_thread(
            RaftLogs.open, self.disk, self.directory / "raft", chance.randbytes
        )
        loop = asyncio.get_running_loop()
        link = Link(self.cluster.network, self.number, 1 << 20)
        self.host = RaftHost(
            self.number, self._logs, link, chance.randrange, self.cluster.options, loop
        )
        self.host.start()

    @contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Hide the stream's files: the server would serve them as those of its own stream."""
        place, aside, disk = self.stream_directory, self.directory / "aside", self.disk
        is_there = disk.exists(place)
        if is_there:
            rename_synced(disk, place, aside)
        yield
        if is_there:
            make_directories(disk, place.parent)
            rename_synced(disk, aside, place)

    @property
    def name(self) -> str:
        """The server's name."""
        return f"n{self.number}"

    @property
    def stream_directory(self) -> Path:
        """The directory of the stream's files."""
        return self.directory / "jetstream" / "jetstream" / ACCOUNT / "streams" / STREAM

    async def serve(self, config: StreamConfig, created_ns: int, voters: list[int]) -> None:
        """Create the stream, or open what its files have, and join its group."""
        account = account_of(self.jetstream)
        assert account.files.stream(config.name) == self.stream_directory
        is_new = GROUP not in self.host.recovered
        stream, is_whole = await open_replica(account, config, created_ns, is_new=is_new)
        account.streams[config.name] = stream
        list(account.claims.claim(config.name, config.subjects))
        random_bytes = random.Random(self.number).randbytes
        self.transfer = CountedTransfer(CutClient(self), GROUP, random_bytes)
        self.transfer.server = self
        self.replica = StreamReplica(stream, self.transfer, is_whole=is_whole)
        first = [member_id(voter) for voter in voters]
        self.group = await self.host.start_group(
            GROUP, member_id(self.number), self.replica, first_voters=first
        )
        self.replica.begin(self.group)
        self.is_up = True

    async def stop(self) -> None:
        self.is_up = False
        await self.host.close()
        await self.replica.close()
        self._logs.close()
        account = account_of(self.jetstream)
        account.streams[self.replica.stream.name] = self.replica.stream
        await self.jetstream.stop()
        self._account.close()
        self.jetstream.reactor.close()

    @property
    def stream(self) -> Stream:
        return self.replica.stream

    @property
    def is_cut(self) -> bool:
        return self.number in self.cluster.network.cut


class Servers:
    """The servers of a cluster, and the one stream that they have replicas of."""

    def __init__(
        self, directory: Path, count: int, options: HostOptions, disks: Sequence[Disk] = ()
    ) -> None:
        """Prepare `count` servers; each has one of the `disks`, or else the real one."""
        self.options = options
        self.network = Network()
        self.acknowledged: dict[int, bytes] = {}
        self._ids = itertools.count()
        self.reactor = Reactor(asyncio.get_running_loop(), print)
        self.system = Account("$SYS", self.reactor)
        self.all = [
            Server(self, at, directory / str(at), disks[at - 1] if disks else RealDisk())
            for at in range(1, count + 1)
        ]
        self.config: StreamConfig
        self.created_ns = 0

    async def create(self, **settings: Any) -> None:
        self.config = StreamConfig(name=STREAM, num_replicas=len(self.all), **settings)
        account = account_of(self.all[0].jetstream)
        await account.create_stream(replace_replicas(self.config))
        complete = account.streams[STREAM]
        self.config, self.created_ns = complete.config, complete.created_ns
        await account.delete_stream(STREAM)
        for server in self.all:
            await self.serve(server)

    async def serve(self, server: Server) -> None:
        voters = [each.number for each in self.all]
        await server.serve(self.config, self.created_ns, voters)

    async def restart(self, server: Server) -> None:
        await server.stop()
        await server.start()
        await self.serve(server)

    async def leader(self, *, but: Server | None = None) -> Server:
        """Return the server that takes messages, and is not cut off."""

        def found() -> list[Server]:
            return [
                each
                for each in self.all
                if each is not but
                and each.is_up
                and each.number not in self.network.cut
                and each.replica.is_leading
                and each.group.leads
                and not each.stream.ingest.is_paused
            ]

        await eventually_within(found)
        return found()[0]

    async def make_learner(self, leader: Server, other: Server) -> None:
        """Make another server's member one that learns, as a read replica is."""

        def has_heard_all() -> bool:  # a leader removes nobody before it has heard of a majority
            lags = leader.group.lags()
            return len(lags) == len(self.all) - 1 and not any(lags.values())

        await eventually_within(has_heard_all)
        await leader.group.remove_member(other.group.node.id)
        await leader.group.add_learner(other.group.node.id)

    async def stop(self) -> None:
        for server in self.all:
            if server.is_up:
                await server.stop()
        self.system.close()
        self.reactor.close()

    async def store(self, subject: str, data: bytes = b"") -> int:
        """Publish to whoever leads until that is acknowledged; return the sequence.

        A publish that failed because the leader changed may be stored nevertheless: it is known by
        its id when it comes again.
        """
        headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % next(self._ids)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                leader = await self.leader()
                ack = await publish(leader.jetstream, subject, data, headers)
                if "error" not in ack:
                    self.acknowledged[ack["seq"]] = data
                    return int(ack["seq"])

    def cut(self, server: Server) -> None:
        self.network.cut.add(server.number)

    async def agree(
        self, check: Callable[[], object] = lambda: True, *, but: tuple[str, ...] = ()
    ) -> None:
        """Wait until all replicas have applied the same, and compare their state, `but` parts."""

        def is_level() -> bool:
            applied = {each.replica.applied for each in self.all}
            ends = {each.stream.readers.log.last_sequence for each in self.all}
            is_settled = all(each.replica._has(each.replica.applied) for each in self.all)
            is_settled &= all(proposed <= done for done, proposed in self._progress())
            return is_settled and len(applied) == len(ends) == 1 and bool(check())

        while True:
            await eventually_within(is_level)
            before = self._progress()
            states = {each.number: await state_of(each.stream) for each in self.all}
            leader = await self.leader()
            if self._progress() == before:  # nothing was delivered or expired meanwhile
                break
        expected = states[leader.number]
        stored = {each.sequence: each.data for each in expected["messages"]}
        assert all(stored[at] == data for at, data in self.acknowledged.items() if at in stored)
        assert leader.stream.readers.log.last_sequence >= max(self.acknowledged, default=0)
        for number, found in states.items():
            for part, value in expected.items():
                assert part in but or found[part] == value, (number, part, found[part], value)

    def _progress(self) -> list[tuple[int, int]]:
        """Return how many commands each server has applied, and proposed as the leader."""
        found = []
        for server in self.all:
            proposer = server.stream.readers.proposer
            proposed = 0 if proposer is None else proposer.proposed
            found.append((server.replica.applied, proposed))
        return found


def replace_replicas(config: StreamConfig) -> StreamConfig:
    """Return the configuration as one server takes it."""
    return config.model_copy(update={"num_replicas": 1})


@asynccontextmanager
async def cluster(
    directory: Path,
    count: int = 3,
    *,
    limits: GroupLimits | None = None,
    election_ticks: int = OPTIONS.group.election_ticks,
) -> AsyncIterator[Servers]:
    """Yield started servers; they are stopped at the end."""
    options = OPTIONS if limits is None else replace(OPTIONS, limits=limits)
    options = replace(options, group=replace(OPTIONS.group, election_ticks=election_ticks))
    servers = Servers(directory, count, options)
    for server in servers.all:
        await server.start()
    try:
        yield servers
    finally:
        await servers.stop()
