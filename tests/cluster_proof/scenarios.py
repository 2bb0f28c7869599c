"""What breaks, when, and what is awaited: one function per scenario, repeated until time is up.

A scenario may leave the cluster broken: the run makes it whole before it checks.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.cluster_proof import bit_rot, files
from tests.cluster_proof.clients import FAILURES, Refused
from tests.cluster_proof.files import MESSAGES, RAFT, SNAPSHOTS, Damage
from tests.cluster_proof.journal import now_ns
from tests.cluster_proof.load import Load
from tests.cluster_proof.publishing import STREAM
from tests.cluster_proof.reading import reading
from tests.cluster_proof.servers import Server, Servers
from tests.cluster_proof.stored import peers_of, until_settled

logger = logging.getLogger(__name__)

EVERY_S = 1.0
SERVED_S = 60.0
LEADER_S = 60.0
POLL_S = 0.02
DISK_BYTES = 384 << 20


class Proof:
    """A cluster under load, and the means to break it."""

    def __init__(self, servers: Servers, load: Load, seed: int) -> None:
        self.servers, self.load = servers, load
        self.chance = random.Random(seed)
        self.faults = 0

    async def leader(self) -> Server:
        """Return the leader of the stream, as soon as one is known that runs."""
        async with asyncio.timeout(LEADER_S):
            while True:
                try:
                    info = await self.load.client.api(f"STREAM.INFO.{STREAM}")
                    leader = self.servers[info["cluster"]["leader"]]
                    if leader.is_running:
                        return leader
                except (KeyError, Refused, *FAILURES):
                    await asyncio.sleep(POLL_S)

    async def follower(self) -> Server:
        """Return a server that runs and does not lead the stream."""
        leader = await self.leader()
        return self.chance.choice([each for each in self.servers.running if each is not leader])

    async def served(self, since_ns: int) -> float:
        """Wait for an acknowledged publish that began after a moment; return the seconds."""
        seconds = await self.load.probe.recovery_s(since_ns, SERVED_S)
        logger.info("served after %.3f s", seconds)
        return seconds

    async def recovered(self, since_ns: int) -> None:
        """Note how long it took until a publish was acknowledged after the leader was lost."""
        self.load.journal.recoveries_s.append(await self.served(since_ns))

    async def settled(self) -> None:
        """Wait until all servers are there, and all replicas have all of their stream."""
        await self.servers.until_ready()
        for stream, replicas in self.load.replicas.items():
            await until_settled(self.servers, self.load.client, stream, replicas)

    async def last(self, shortest_s: float, longest_s: float) -> None:
        """Let a fault last for a while."""
        await asyncio.sleep(self.chance.uniform(shortest_s, longest_s))

    def some_servers(self, count: int, *, among: Sequence[Server] = ()) -> list[Server]:
        return self.chance.sample(among or self.servers.all, count)

    def names_without(self, left: Server) -> list[str]:
        return [server.name for server in self.servers if server is not left]

    def cut(self, side: Sequence[Server]) -> None:
        """Cut servers off from all others: as if a cable were pulled, or connections reset."""
        drop = self.chance.random() < 0.5
        self.servers.links.cut([server.name for server in side], drop=drop)

    async def damage_one(self, patterns: Sequence[str]) -> None:
        """Kill a server, damage some of its files of a kind, start it, and wait for its repair."""
        (server,) = self.some_servers(1)
        await self.servers.kill(server)
        found = files.matching(server.store, patterns)
        for path in self.chance.sample(found, self.chance.randint(min(1, len(found)), len(found))):
            kind = self.chance.choice(list(Damage))
            logger.info("%s %s", kind.value, path.relative_to(server.store))
            files.damage(path, kind, self.chance)
        await self.servers.start(server)
        await self.settled()

    async def fill_disk_of(self, server: Server) -> None:
        """Fill a disk; the cluster goes on, or waits, until there is space again."""
        await self.servers.fill_disk(server)
        await self.last(2.0, 10.0)
        since_ns = now_ns()
        await self.servers.free_disk(server)
        await self.served(since_ns)
        if await self.servers.has_stopped_jetstream(server):  # nats-server does
            await self.servers.stop(server)
            await self.servers.start(server)
        await self.settled()

    @property
    def minority(self) -> int:
        """How many servers may be lost."""
        return (len(self.servers.all) - 1) // 2


Round = Callable[[Proof], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A round of faults, which is repeated, and what it needs."""

    name: str
    play: Round
    is_short: bool = False
    """Whether `make test` plays it."""
    servers: int = 3
    replicas: int = 3
    read_replicas: int = 0
    disk_bytes: int = 0
    """Size of each server's file system; 0: they share the machine's."""
    is_natsd: bool = False
    """Whether nats-server cannot play it."""


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(
    *,
    is_short: bool = False,
    servers: int = 3,
    replicas: int = 3,
    read_replicas: int = 0,
    disk_bytes: int = 0,
    is_natsd: bool = False,
) -> Callable[[Round], Round]:
    """Make a function a scenario, whose name is the function's with hyphens."""

    def add(play: Round) -> Round:
        name = play.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(
            name, play, is_short, servers, replicas, read_replicas, disk_bytes, is_natsd
        )
        return play

    return add


async def play(proof: Proof, chosen: Scenario, seconds: float) -> None:
    """Play rounds until the time is up, one at least, each EVERY_S after the last one or later."""
    give_up_at = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        logger.info("round %d", proof.faults + 1)
        await chosen.play(proof)
        proof.faults += 1
        if time.monotonic() > give_up_at:
            return
        await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))


# ---- processes that end


@scenario(is_short=True)
async def leader_killed(proof: Proof) -> None:
    """Kill the leader of the stream, and start it again."""
    leader, since_ns = await proof.leader(), now_ns()
    await proof.servers.kill(leader)
    await proof.servers.start(leader)
    await proof.recovered(since_ns)
    await proof.servers.until_ready(leader)


@scenario(is_short=True)
async def all_killed(proof: Proof) -> None:
    """Kill all servers at once, and start them one after the other, in any order."""
    since_ns = now_ns()
    await proof.servers.kill()
    for server in proof.some_servers(len(proof.servers.all)):
        await proof.servers.start(server)
        await proof.last(0.0, 1.0)
    await proof.served(since_ns)
    await proof.settled()


@scenario()
async def rolling_restart(proof: Proof) -> None:
    """Stop each server in order and start it again, one after the other."""
    for server in proof.servers:
        await proof.servers.stop(server)
        await proof.servers.start(server)
        await proof.settled()


# ---- networks that part


@scenario(is_short=True)
async def leader_partitioned(proof: Proof) -> None:
    """Cut the leader off; clients still reach it."""
    leader, since_ns = await proof.leader(), now_ns()
    proof.cut([leader])
    await proof.recovered(since_ns)
    await proof.last(0.0, 3.0)
    proof.servers.links.heal()
    await proof.settled()


@scenario(servers=4, read_replicas=1)
async def read_replica_partitioned(proof: Proof) -> None:
    """Cut the read replica off, perhaps with the leader; what it answers is as old as it says."""
    info = await proof.load.client.api_soon(f"STREAM.INFO.{STREAM}")
    (name,) = peers_of(info, learning=True)
    server, leader = proof.servers[name], await proof.leader()
    async with reading(server.url, proof.load.journal):
        await proof.last(0.5, 1.5)
        since_ns = now_ns()
        proof.cut(proof.chance.choice([[server], [server, leader]]))
        await proof.served(since_ns)
        await proof.last(1.0, 6.0)
        proof.servers.links.heal()
        await proof.settled()
        await proof.last(0.5, 1.5)


@scenario(servers=5, replicas=5)
async def minority_partitioned(proof: Proof) -> None:
    """Cut two of five servers off, the leader perhaps among them."""
    since_ns = now_ns()
    proof.cut(proof.some_servers(proof.minority))
    await proof.served(since_ns)
    await proof.last(0.0, 5.0)
    proof.servers.links.heal()
    await proof.settled()


@scenario()
async def all_partitioned(proof: Proof) -> None:
    """Cut all servers off from each other, so that there is no majority."""
    for server in proof.servers:
        proof.cut([server])
    await proof.last(1.0, 10.0)
    since_ns = now_ns()
    proof.servers.links.heal()
    await proof.served(since_ns)
    await proof.settled()


@scenario()
async def leader_is_not_heard(proof: Proof) -> None:
    """Hold back what the leader sends; it hears the others."""
    leader, since_ns = await proof.leader(), now_ns()
    proof.servers.links.cut_one_way([leader.name], proof.names_without(leader))
    await proof.recovered(since_ns)
    await proof.last(0.0, 3.0)
    proof.servers.links.heal()
    await proof.settled()


@scenario()
async def leader_hears_nobody(proof: Proof) -> None:
    """Hold back what is sent to the leader; the others hear it, so they elect no other."""
    leader = await proof.leader()
    proof.servers.links.cut_one_way(proof.names_without(leader), [leader.name])
    await proof.last(1.0, 10.0)
    since_ns = now_ns()
    proof.servers.links.heal()
    await proof.served(since_ns)
    await proof.settled()


# ---- processes that stand still


@scenario(is_short=True)
async def leader_paused(proof: Proof) -> None:
    """Pause the leader until there is another one; it comes back and believes to lead."""
    leader, since_ns = await proof.leader(), now_ns()
    await proof.servers.pause(leader)
    await proof.recovered(since_ns)
    await proof.last(0.0, 3.0)
    await proof.servers.resume(leader)
    await proof.settled()


# ---- files that are damaged or lost


@scenario(is_short=True)
async def messages_damaged(proof: Proof) -> None:
    """Flip bits in blocks of one replica, cut them off, or delete them."""
    await proof.damage_one(MESSAGES)


@scenario(is_natsd=True)
async def bit_rot_while_serving(proof: Proof) -> None:
    """Damage other blocks of each replica while all servers run, and read every message."""
    await bit_rot.play(proof.servers, proof.load.client, 3, proof.chance)
    await proof.settled()


@scenario()
async def snapshots_damaged(proof: Proof) -> None:
    """Damage the RAFT snapshots of one server."""
    await proof.damage_one(SNAPSHOTS)


@scenario()
async def raft_damaged(proof: Proof) -> None:
    """Damage the logs and states of RAFT of one server, the meta group's among them."""
    await proof.damage_one(RAFT)


@scenario(is_short=True)
async def server_wiped(proof: Proof) -> None:
    """Kill a server, delete all that it stored, and start it again."""
    (server,) = proof.some_servers(1)
    await proof.servers.kill(server)
    await proof.servers.wipe(server)
    await proof.servers.start(server)
    await proof.settled()


@scenario(is_natsd=True)
async def quorum_lost_for_good(proof: Proof) -> None:
    """Lose two of three servers for good, rescue the third, and give the others new disks.

    One of the two is lost first: then the others acknowledge only what both have, so the one that
    is left has all of it. One of the two may come back with its old files after all.
    """
    left, first, second = proof.some_servers(3)
    await proof.servers.kill(first)
    await proof.served(now_ns())
    await proof.last(0.0, 2.0)
    await proof.servers.kill(second, left)
    for server in proof.some_servers(proof.chance.randint(1, 2), among=(first, second)):
        await proof.servers.wipe(server)
    await proof.servers.rescue(left, (first, second))
    since_ns = now_ns()
    await proof.servers.start(left)
    await proof.served(since_ns)
    await proof.servers.start(first, second)
    await proof.settled()


# ---- disks that are full


@scenario(disk_bytes=DISK_BYTES)
async def follower_disk_full(proof: Proof) -> None:
    """Fill the disk of a follower, and free it later."""
    await proof.fill_disk_of(await proof.follower())


@scenario(disk_bytes=DISK_BYTES)
async def leader_disk_full(proof: Proof) -> None:
    """Fill the disk of the leader, and free it later."""
    await proof.fill_disk_of(await proof.leader())


# ---- changes


@scenario()
async def stepped_down(proof: Proof) -> None:
    """Ask the leader to step down."""
    since_ns = now_ns()
    await proof.load.client.api_soon(f"STREAM.LEADER.STEPDOWN.{STREAM}")
    await proof.recovered(since_ns)


@scenario(servers=5, replicas=1)
async def scaled(proof: Proof) -> None:
    """Scale the stream from one replica to three, to five and back to one."""
    for replicas in (3, 5, 1):
        await proof.load.scale(replicas)
        await proof.settled()
        await proof.load.until_progress()


# ---- everything


@scenario(servers=5)
async def everything(proof: Proof) -> None:
    """Play any other scenario that five servers with three replicas allow."""
    names = [
        name
        for name, each in SCENARIOS.items()
        if each.replicas == 3
        and not (each.disk_bytes or each.read_replicas or each.is_natsd)
        and each.play is not everything
    ]
    chosen = SCENARIOS[proof.chance.choice(names)]
    logger.info("play %s", chosen.name)
    await chosen.play(proof)


@scenario()
async def calm(proof: Proof) -> None:
    """Break nothing: shows what the load is."""
