"""Hosts in one process, joined by a network that the test can cut; logs on simulated disks."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from natsd.raft.entry import Entry
from natsd.raft.group import GroupLimits, RaftGroup
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.options import Options
from natsd.raft.state_machine import StateMachine
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import Receive, Transport, member_id
from tests.store.faulty_disk import FaultyDisk

ROOT = Path("/raft")
OPTIONS = HostOptions(tick_s=0.03, group=Options(), quiesce_ticks=20)


class Register(StateMachine):
    """A state machine that keeps the last command, and counts them."""

    def __init__(self) -> None:
        self.value, self.count = b"", 0
        self.applied: list[bytes] = []
        self.is_leader = False

    def leads(self, *, is_leader: bool) -> None:
        assert is_leader is not self.is_leader
        self.is_leader = is_leader

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        results: list[object] = []
        for each in entries:
            self.value, self.count = each.data, self.count + 1
            self.applied.append(each.data)
            results.append(self.count)
        return results

    def snapshot(self) -> bytes:
        return b"%d:%s" % (self.count, self.value)

    def restore(self, data: bytes) -> None:
        count, _, self.value = data.partition(b":")
        self.count = int(count or b"0")
        self.applied.clear()


class FarRegister(Register):
    """A register whose snapshots say only how many commands they stand for: the state is elsewhere.

    `states` has the states that may be fetched, by count; they are there when `is_open` is set.
    """

    states: ClassVar[dict[int, bytes]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.fetched: list[int] = []

    def snapshot(self) -> Callable[[], Awaitable[bytes]]:  # type: ignore[override]  # bytes at once
        return partial(self.keep, self.count, super().snapshot())

    async def keep(self, count: int, state: bytes) -> bytes:
        await self.is_open.wait()
        self.states[count] = state
        return b"%d" % count

    def fetch(self, data: bytes) -> Callable[[], Awaitable[None]]:
        return partial(self.note_fetched, int(data))

    async def note_fetched(self, count: int) -> None:
        await self.is_open.wait()
        self.fetched.append(count)

    def restore(self, data: bytes) -> None:
        super().restore(self.states[int(data)] if data else b"")


class Link:
    """The transport of one host."""

    def __init__(self, network: "Network", server: int, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.network, self.server = network, server
        self.receive: Receive | None = None

    def send(self, server: int, frame: bytes) -> None:
        assert len(frame) <= self.frame_bytes_max
        asyncio.get_running_loop().call_soon(self.network.deliver, self.server, server, frame)

    def is_reachable(self, server: int) -> bool:
        return True

    def listen(self, receive: Receive) -> None:
        self.receive = receive
        self.network.links[self.server] = self

    def close(self) -> None:
        self.network.links.pop(self.server, None)


@dataclass
class Network:
    """All links; servers in `cut` get and send nothing; what is sent to those in `held` waits."""

    links: dict[int, Link] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    held: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    frames: int = 0

    def deliver(self, sender: int, receiver: int, frame: bytes) -> None:
        link = self.links.get(receiver)
        if link is None or link.receive is None or {sender, receiver} & self.cut:
            return
        if receiver in self.held:
            self.held[receiver].append((sender, frame))
            return
        self.frames += 1
        link.receive(frame)

    def release(self, server: int) -> None:
        """Deliver what has waited for a server, all at once."""
        for sender, frame in self.held.pop(server):
            self.deliver(sender, server, frame)


@dataclass
class Server:
    """One server with its disk, its host, and the register of each group."""

    number: int
    disk: FaultyDisk
    host: RaftHost
    logs: RaftLogs
    registers: dict[str, Register] = field(default_factory=dict)

    async def start_group(
        self, name: str, voters: Sequence[int] = (), register: Register | None = None
    ) -> RaftGroup:
        self.registers[name] = register = register or Register()
        first = [member_id(each) for each in voters]
        return await self.host.start_group(
            name, member_id(self.number), register, first_voters=first
        )

    async def crash(self, seed: int = 0) -> FaultyDisk:
        """Lose power: return the disk as the next start finds it."""
        disk = self.disk.crash(seed)
        await self.host.close()
        return disk


def start_server(
    network: Network,
    number: int,
    disk: FaultyDisk | None = None,
    options: HostOptions = OPTIONS,
    frame_bytes_max: int = 1 << 16,
    transport: Transport | None = None,
) -> Server:
    """Start a server on its disk."""
    disk = disk or FaultyDisk(number)
    chance = random.Random(number)
    logs = RaftLogs.open(disk, ROOT, chance.randbytes, segment_bytes_max=1 << 16)
    link = transport or Link(network, number, frame_bytes_max)
    host = RaftHost(number, logs, link, chance.randrange, options, asyncio.get_running_loop())
    host.start()
    return Server(number, disk, host, logs)


LIMITS = GroupLimits(
    proposals_max=100,
    proposal_bytes_max=20_000,
    snapshot_after_entries=50,
    snapshot_bytes_max=15_000,
)
