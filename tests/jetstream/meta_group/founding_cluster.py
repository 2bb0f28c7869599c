"""Servers that found a meta group over a network that a test or a seed controls."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

import msgspec

from natsd.jetstream.meta_group.founding import Founding, PeerView
from natsd.jetstream.meta_group.founding_record import Founded, Record

ROUNDS_MAX = 6  # in which a healed cluster must have founded its group
STEPS = {"deliver": 20, "tick": 8, "look": 4, "tell": 1, "restart": 2}
"""What happens in a simulation, and how often."""


class Crash(Exception):
    """The server is killed in the middle of a call."""


@dataclass
class Disk:
    """A server's record, which survives its crashes."""

    content: bytes = msgspec.json.encode(Record())
    writes: int = 0

    def read(self) -> Record:
        return msgspec.json.decode(self.content, type=Record)

    def write(self, record: Record) -> None:
        self.content = msgspec.json.encode(record)
        self.writes += 1


@dataclass
class Cluster:
    """Servers by name with what each expects, and the messages on their way."""

    expected: Mapping[str, int]
    disks: dict[str, Disk] = field(default_factory=dict)
    servers: dict[str, Founding] = field(default_factory=dict)  # those that are up
    told: dict[tuple[str, str], PeerView] = field(default_factory=dict)  # (to, from)
    cut: set[frozenset[str]] = field(default_factory=set)  # pairs that do not see each other
    messages: list[tuple[str, str, bytes]] = field(default_factory=list)  # from, to, bytes
    chosen: dict[str, Founded] = field(default_factory=dict)  # what each server has learned
    groups: int = 0

    def start(self, *names: str) -> None:
        for name in names:
            disk = self.disks.setdefault(name, Disk())
            self.servers[name] = self._new(name, disk.read())
            self.check(name, disk.read())

    def start_damaged(self, name: str) -> None:
        self.disks.setdefault(name, Disk())
        self.servers[name] = self._new(name, None)

    def _new(self, name: str, record: Record | None) -> Founding:
        return Founding(
            name,
            self.expected[name],
            record,
            lambda record: self.persist(name, record),
            lambda to, data: self.send(name, to, data),
            self.new_group,
        )

    def new_group(self) -> str:
        self.groups += 1
        return f"G{self.groups}"

    def kill(self, name: str) -> None:
        self.servers.pop(name, None)
        self.told = {pair: view for pair, view in self.told.items() if name not in pair}

    def persist(self, name: str, record: Record) -> None:
        self.disks[name].write(record)
        self.check(name, record)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self.messages.append((sender, receiver, data))

    def check(self, name: str, record: Record) -> None:
        """Check the promises about what is chosen."""
        before = self.chosen.get(name)
        assert before is None or record.founded == before, f"{name} forgot {before}"
        if record.founded is None:
            return
        self.chosen[name] = record.founded
        values = set(self.chosen.values())
        for one, other in combinations(values, 2):
            assert not set(one.members) & set(other.members), f"{one} and {other}"
        for each in values:
            assert len(each.members) >= max(self.expected[member] for member in each.members)

    # ---- the network

    def link(self, one: str, other: str) -> bool:
        both_up = one in self.servers and other in self.servers
        return both_up and frozenset((one, other)) not in self.cut

    def split(self, *sides: str) -> None:
        """Let servers, named by one letter each, see only those of their side."""
        pairs = [frozenset(pair) for pair in combinations(self.expected, 2)]
        self.cut = {pair for pair in pairs if not any(pair <= set(side) for side in sides)}

    def tell(self, name: str) -> None:
        """Have all that see the server know its view."""
        for other in self.servers:
            if other != name and self.link(name, other):
                self.told[other, name] = self.servers[name].view

    def visible(self, name: str) -> dict[str, PeerView]:
        """Return what the server sees of the others."""
        return {
            other: self.told[name, other]
            for other in self.servers
            if self.link(name, other) and (name, other) in self.told
        }

    def tick(self, name: str) -> None:
        self.servers[name].tick(self.visible(name))

    def deliver(self, at: int = 0) -> None:
        """Deliver one message; it is lost if the servers do not see each other."""
        sender, receiver, data = self.messages.pop(at)
        if self.link(sender, receiver):
            self.servers[receiver].receive(sender, data)

    def round(self) -> None:
        """Do what happens in the time of a tick, with all messages."""
        for name in self.servers:
            self.tell(name)
        for name in self.servers:
            self.tick(name)
        while self.messages:
            self.deliver()

    @property
    def founded(self) -> dict[str, Founded | None]:
        return {name: server.founded for name, server in self.servers.items()}


class Simulation(Cluster):
    """A cluster whose events and faults a seed chooses.

    Each server sees some of the others, not always those that see it, and may know old views of
    them. Any message may arrive at any time, or several times, or never.
    """

    def __init__(self, seed: int, expected: Mapping[str, int]) -> None:
        super().__init__(expected)
        self.chance = random.Random(seed)
        self.faults = self.chance.choice([0.0, 0.0, 0.02])  # per call of a disk or the network
        self.is_healed = False
        self.names = sorted(expected)
        self.sees = dict.fromkeys(self.names, self.names)
        self.start(*self.names)
        self.tell_all()

    def _fault(self) -> bool:
        return not self.is_healed and self.chance.random() < self.faults

    def persist(self, name: str, record: Record) -> None:
        faults = [Crash(name), OSError(f"the disk of {name} is broken")]
        if self._fault():
            raise self.chance.choice(faults)
        if self._fault():  # the write fails, but may be found after a crash
            self.disks[name].write(record)
            raise self.chance.choice(faults)
        super().persist(name, record)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        if self._fault():
            raise Crash(sender)
        super().send(sender, receiver, data)

    def step(self) -> None:
        """Do one thing; a server that crashes on it starts again."""
        try:
            self._do(self.chance.choices(list(STEPS), list(STEPS.values()))[0])
        except Crash as crash:
            self.start(str(crash))

    def _do(self, step: str) -> None:
        name = self.chance.choice(self.names)
        match step:
            case "deliver" if self.messages:
                newest = self.chance.choice([1, 2, 4, len(self.messages)])
                sender, receiver, data = self.chance.choice(self.messages[-newest:])
                self.servers[receiver].receive(sender, data)
            case "tick":
                self.tick(name)
            case "tell":
                self.tell_all()
            case "look":
                higher = [each for each in self.names if each >= name]  # it may propose to them
                others = self.chance.choice([higher, self.names])
                self.sees[name] = self.chance.sample(others, self.chance.randint(1, len(others)))
            case "restart":
                self.start(name)

    def tell_all(self) -> None:
        for name in self.names:
            self.tell(name)

    def visible(self, name: str) -> dict[str, PeerView]:
        if self.is_healed:
            return super().visible(name)
        return {other: self.told[name, other] for other in self.sees[name] if other != name}

    def heal(self) -> None:
        """Let all servers see each other; what is under way still arrives."""
        self.is_healed = True
        self.chance.shuffle(self.messages)
