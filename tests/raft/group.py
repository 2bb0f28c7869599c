"""A group of nodes in a test, whose messages, syncs and ticks happen when the test says so."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from natsd.raft.effects import Effects
from natsd.raft.entry import (
    NOBODY,
    NOTHING,
    Entry,
    EntryKind,
    HardState,
    Membership,
    Snapshot,
    first_snapshot,
)
from natsd.raft.messages import Message
from natsd.raft.node import Node
from natsd.raft.options import Options
from tests.sim.world import describe

OPTIONS = Options(election_ticks=10, heartbeat_ticks=2)


class Group:
    """Members 1 to n. Election timeouts are ten ticks, unless `patience` adds to them."""

    def __init__(self, count: int, **options: Any) -> None:
        self.options = replace(OPTIONS, **options)
        self.nodes: dict[int, Node] = {}
        self.patience = dict.fromkeys(range(1, 10), 0)
        self.sent: list[Message] = []
        self.unsynced: dict[int, list[Effects]] = {}
        self.applied: dict[int, list[Entry]] = {}
        self.reads: dict[int, list[tuple[int, int]]] = {}
        self.dropped: dict[int, list[int]] = {}
        self.snapshots: dict[int, Snapshot] = {}
        self.lines: list[str] = []
        self.syncs = True
        for member in range(1, count + 1):
            self.start(member, snapshot=first_snapshot(frozenset(range(1, count + 1))))

    def start(
        self,
        member: int,
        hard_state: HardState | None = None,
        snapshot: Snapshot = NOTHING,
        entries: Iterable[Entry] = (),
    ) -> Node:
        """Start a member; without a hard state it has never run."""
        self.unsynced[member], self.applied[member] = [], []
        self.reads[member], self.dropped[member] = [], []
        node = self.nodes[member] = Node(
            member,
            hard_state or HardState(0, NOBODY),
            snapshot,
            tuple(entries),
            self.options,
            lambda below: min(self.patience[member], below - 1),
        )
        self.carry_out(member)
        return node

    def restart(self, member: int, **changes: Any) -> Node:
        """Start a member again from all that it has synced."""
        node = self.nodes[member]
        log = node.log
        kept = [log.term_at(i) for i in range(log.snapshot.index + 1, log.stable + 1)]
        entries = log.slice(log.snapshot.index + 1, log.last_index, 1 << 30)[0][: len(kept)]
        hard_state = node.hard_state._replace(**changes)
        return self.start(member, hard_state, log.snapshot, entries)

    # Time

    def tick(self, member: int, count: int = 1) -> None:
        for _ in range(count):
            self.nodes[member].tick()
            self.carry_out(member)

    def tick_all(self, count: int = 1) -> None:
        for _ in range(count):
            for member in list(self.nodes):
                self.tick(member)
            self.deliver()

    # Messages

    def carry_out(self, member: int) -> None:
        node = self.nodes[member]
        while node.has_effects:
            effects = node.take_effects()
            self.sent += effects.messages
            self.applied[member] += effects.committed
            self.reads[member] += effects.reads
            self.dropped[member] += effects.dropped_reads
            if effects.snapshot is not None:
                self.snapshots[member] = effects.snapshot
            if effects.writes or effects.messages_after_sync:
                self.unsynced[member].append(effects)
            if self.syncs:
                self.sync(member)

    def sync(self, member: int) -> None:
        while self.unsynced[member]:
            effects = self.unsynced[member].pop(0)
            if effects.writes:
                self.nodes[member].persisted(effects.number)
            self.sent += effects.messages_after_sync
        if self.nodes[member].has_effects:
            self.carry_out(member)

    def deliver(self, when: Callable[[Message], bool] = lambda _: True) -> None:
        """Deliver messages, and those that they cause, until there are none; lose the others."""
        while self.sent:
            message = self.sent.pop(0)
            if when(message) and message.receiver in self.nodes:
                self.step(message)

    def step(self, message: Message) -> None:
        self.lines.append(f"{message.sender} → {message.receiver}  {describe(message)}")
        self.nodes[message.receiver].step(message)
        self.carry_out(message.receiver)

    def take(self, kind: type) -> list[Any]:
        """Take the messages of a kind out of the network."""
        taken = [message for message in self.sent if isinstance(message, kind)]
        self.sent = [message for message in self.sent if not isinstance(message, kind)]
        return taken

    # Shortcuts

    def elect(self, member: int) -> Node:
        """Let a member win an election."""
        node = self.nodes[member]
        for other in self.nodes:  # nobody hears a leader any more
            if other != member and not self.nodes[other].is_leader:
                self.patience[other] = 9
        self.patience[member] = 0
        for _ in range(60):
            if node.is_leader:
                break
            self.tick_all()
        assert node.is_leader
        self.deliver()
        return node

    def propose(self, member: int, *datas: bytes) -> None:
        for data in datas:
            self.nodes[member].propose(data)
        self.carry_out(member)

    def change(self, member: int, membership: Membership) -> None:
        self.nodes[member].propose_membership(membership)
        self.carry_out(member)

    def data(self, member: int) -> list[bytes]:
        """Return the commands that a member has applied."""
        return [entry.data for entry in self.applied[member] if entry.data and not entry.kind]

    def take_lines(self) -> str:
        lines, self.lines = self.lines, []
        return "\n".join(lines)


def between(*members: int) -> Callable[[Message], bool]:
    """Return a filter that lets messages between some members pass."""
    return lambda message: message.sender in members and message.receiver in members


def entries_of(*terms: int, first: int = 2) -> list[Entry]:
    """Return entries with these terms, from index `first` on."""
    return [
        Entry(index, term, EntryKind.NORMAL, b"%d" % index)
        for index, term in enumerate(terms, first)
    ]
