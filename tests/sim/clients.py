"""Clients that write, read, and compare-and-set a few registers, one operation at a time.

What they saw and when is the history that must be linearizable. A client that waits too long gives
up: the operation may still happen, at any time.
"""

from natsd.raft.errors import RaftError
from natsd.raft.node import Node
from tests.sim.host import CAS, COMMAND, READ, WRITE, Asker, Host
from tests.sim.knobs import TICK
from tests.sim.linearizability import FOREVER, Operation
from tests.sim.world import World

KIND_NAMES = {READ: "read", WRITE: "write", CAS: "cas"}


class Registers:
    """What all clients share: the history, and the values that may be there."""

    def __init__(self) -> None:
        self.history: dict[int, list[Operation]] = {}
        self.next_value = 1
        self.last_seen: dict[int, int] = {}
        self.next_token = 1


class Client(Asker):
    def __init__(self, world: World, hosts: dict[int, Host], shared: Registers) -> None:
        self.world, self.hosts, self.shared = world, hosts, shared
        self.token = 0
        self.kind = self.key = self.expected = self.value = 0
        self.called_at = 0
        self.host_id = min(hosts)
        self.patience = world.knobs.options.election_ticks * TICK * 2
        self.is_stopped = False
        self.finished_count = 0
        world.at(int(world.rng.random() * 10 * TICK), self.begin)

    def begin(self, _: object = None) -> None:
        """Begin an operation, if the server that this client knows takes it."""
        if self.is_stopped:
            return
        rng, shared = self.world.rng, self.shared
        host = self.hosts.get(self.host_id)
        if host is None or host.node is None or host.is_paused or rng.random() < 0.05:
            host = self.hosts[rng.choice(list(self.hosts))]
            self.host_id = host.id
        node = host.node
        if node is None or host.is_paused:
            self.world.at(TICK, self.begin)
            return
        self.key = rng.randrange(self.world.knobs.keys)
        self.kind = rng.choice((READ, WRITE, CAS))
        self.token = shared.next_token
        shared.next_token += 1
        self.called_at = self.world.stamp()
        if self.kind == READ:
            if rng.random() < 0.5:
                host = self.any_running(host)
            self.world.at(self.patience, self.give_up, self.token)
            host.read(self.key, self, self.token)
        else:
            self.propose(host, node)

    def any_running(self, host: Host) -> Host:
        """Return any server, since followers answer reads too, or one that believes it leads."""
        running = [h for h in self.hosts.values() if h.node is not None and not h.is_paused]
        leaders = [h for h in running if h.node is not None and h.node.is_leader]
        chosen = leaders if self.world.rng.random() < 0.5 else running
        return self.world.rng.choice(chosen) if chosen else host

    def propose(self, host: Host, node: Node) -> None:
        shared = self.shared
        self.value, self.expected = shared.next_value, shared.last_seen.get(self.key, 0)
        command = COMMAND.pack(self.kind, self.key, self.expected, self.value)
        try:
            host.propose(command, self, self.token)
        except RaftError:
            self.token = 0
            if node.leader in self.hosts:
                self.host_id = node.leader
            else:
                self.host_id = self.world.rng.choice(list(self.hosts))
            self.world.at(TICK, self.begin)
            return
        shared.next_value += 1
        self.world.at(self.patience, self.give_up, self.token)
        host.carry_out()

    def finished(self, token: int, seen: int) -> None:
        if token != self.token:
            return
        self.finished_count += 1
        self.note(self.world.stamp(), seen)
        self.shared.last_seen[self.key] = seen if self.kind == READ else self.value
        self.rest()

    def refused(self, token: int) -> None:
        if token == self.token:
            self.rest()

    def give_up(self, token: int) -> None:
        if token == self.token:
            if self.kind != READ:
                self.note(FOREVER, 0)
            self.host_id = self.world.rng.choice(list(self.hosts))
            self.rest()

    def note(self, returned_at: int, seen: int) -> None:
        value = seen if self.kind == READ else self.value
        kind = KIND_NAMES[self.kind]
        operation = Operation(self.called_at, returned_at, kind, self.expected, value, seen)
        self.shared.history.setdefault(self.key, []).append(operation)

    def rest(self) -> None:
        self.token = 0
        self.world.at(int(self.world.rng.random() * 4 * TICK), self.begin)
