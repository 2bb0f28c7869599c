"""One seed: a bad day, and the recovery from it.

First faults, while clients work. Then calm: everything runs and is connected. A leader must be
found, and a new command must be applied by all members. What clients saw must be linearizable.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from natsd.raft.entry import Health, first_snapshot
from natsd.raft.errors import RaftError
from tests.sim.clients import Client, Registers
from tests.sim.disk import ModelDisk, NewDisk
from tests.sim.faults import Faults
from tests.sim.host import Host
from tests.sim.invariants import Invariants, Violation
from tests.sim.knobs import TICK, draw_knobs
from tests.sim.linearizability import Undecided, is_linearizable
from tests.sim.world import World

CALM_ELECTIONS_MAX = 60
"""Election timeouts until the group must work again, beside the time to copy a log."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a seed; `violation` is empty if all held."""

    seed: int
    violation: str = ""
    detail: str = ""
    operations: int = 0
    committed: int = 0
    leaders: int = 0
    undecided: int = 0
    stopped: bool = False
    """A majority was damaged, and the group stopped."""


class Simulation:
    def __init__(
        self,
        seed: int,
        trace: bool = False,
        new_disk: NewDisk = ModelDisk,
        focus: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`focus` replaces some of the knobs that the seed draws."""
        self.seed = seed
        rng = random.Random(seed)
        knobs = replace(draw_knobs(rng), **focus)
        self.world = World(rng, knobs, trace)
        self.world.note("seed", seed, knobs)
        self.invariants = Invariants()
        self.hosts: dict[int, Host] = {}
        self.registers = Registers()
        snapshot = first_snapshot(frozenset(range(1, knobs.members + 1)))
        for member in range(1, knobs.members + 1):
            self.hosts[member] = Host(member, self.world, self.invariants, new_disk(snapshot))
        for host in self.hosts.values():
            host.start()
        self.clients = [
            Client(self.world, self.hosts, self.registers) for _ in range(knobs.clients)
        ]
        self.faults = Faults(self.world, self.hosts, self.invariants, new_disk)
        self.probes: dict[int, int] = {}
        """By term: a command proposed when all was calm."""
        self.undecided = 0
        self.stopped = False

    def run(self) -> Result:
        violation = detail = ""
        try:
            self.world.run_until(self.world.knobs.ticks * TICK)
            self.calm()
            self.recover()
            self.check_history()
        except Violation as error:
            violation, detail = error.invariant, str(error)
        except AssertionError as error:
            violation, detail = "assertion", repr(error)
        return Result(
            self.seed,
            violation,
            detail,
            sum(map(len, self.registers.history.values())),
            self.invariants.last_committed,
            len(self.invariants.leaders),
            self.undecided,
            self.stopped,
        )

    def calm(self) -> None:
        """End all faults."""
        world = self.world
        world.note("calm")
        world.is_calm = True
        world.blocked.clear()
        for host in self.hosts.values():
            host.resume(host.epoch)
            if host.node is None:
                host.start()
            assert host.node is not None
            host.node.is_observer = False
            host.node.wake()

    def recover(self) -> None:
        """Let the group find a leader, and all members apply a new command."""
        step = self.world.knobs.options.election_ticks * TICK
        elections = CALM_ELECTIONS_MAX + self.copying_time // step
        for _ in range(elections):
            self.world.run_until(self.world.now + step)
            if self.works():
                return
        if self.faults.was_damaged and self.world.knobs.unlimited_damage:
            self.stopped = True
            return
        raise Violation("liveness", f"nothing is agreed on after {elections} elections")

    @property
    def copying_time(self) -> int:
        """How long a member may take that lacks the whole log, one entry after the other."""
        knobs = self.world.knobs
        return self.invariants.last_committed * (2 * knobs.delay_max + knobs.disk_delay_max)

    def works(self) -> bool:
        """Tell whether one leader's newest entries are applied everywhere; propose one if so."""
        for client in self.clients:
            client.is_stopped = True
        leaders = [h for h in self.hosts.values() if h.node is not None and h.node.is_leader]
        if not leaders:
            return False
        leader = max(leaders, key=lambda host: host.node.term if host.node else 0)
        node = leader.node
        assert node is not None
        members = node.membership.voters | node.membership.learners
        index = self.probes.get(node.term)
        if index and all(self.has_recovered(self.hosts[member], index) for member in members):
            return True
        try:
            self.probes[node.term] = index or node.propose(b"")
        except RaftError:
            return False
        leader.carry_out()
        return False

    @staticmethod
    def has_recovered(host: Host, index: int) -> bool:
        assert host.node is not None
        health = host.node.hard_state.health
        return host.applied >= index and health is not Health.LOG_LOST

    def check_history(self) -> None:
        for client in self.clients:
            if client.token:
                client.give_up(client.token)
        for key, history in self.registers.history.items():
            try:
                if not is_linearizable(history, 0):
                    raise Violation("linearizability", f"register {key}: {history}")
            except Undecided:
                self.undecided += 1


def simulate(seed: int, new_disk: NewDisk = ModelDisk) -> Result:
    """Run one seed."""
    return Simulation(seed, new_disk=new_disk).run()
