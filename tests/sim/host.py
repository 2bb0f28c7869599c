"""A server with one member: its node, its disk, its application, and its clock.

It is the driver of the node, with everything a driver may not rely on made slow or unreliable.
"""

import struct
from collections import deque

from natsd.raft.effects import Effects
from natsd.raft.entry import Entry, Health, Snapshot
from natsd.raft.messages import Message, Vote, VoteReply
from natsd.raft.node import Node
from tests.sim.disk import Storage
from tests.sim.invariants import Invariants
from tests.sim.knobs import TICK
from tests.sim.world import World

COMMAND = struct.Struct("<BBHH")  # kind, key, expected, value
READ, WRITE, CAS = range(3)


class Asker:
    """What a host tells a client."""

    def finished(self, token: int, seen: int) -> None:
        """Take the result: the value that the register had."""

    def refused(self, token: int) -> None:
        """Take note that the operation has not happened, and will not."""


class Host:
    def __init__(self, host_id: int, world: World, invariants: Invariants, disk: Storage) -> None:
        self.id = host_id
        self.world, self.invariants = world, invariants
        self.knobs = world.knobs
        self.disk = disk
        self.tick_period = max(1, int(TICK * (1 + (world.rng.random() * 2 - 1) * self.knobs.skew)))
        self.node: Node | None = None
        self.epoch = 0
        """Counts starts and crashes: events of an earlier one do not happen."""
        self.is_paused = False
        self.held_back: list[Message] = []
        self.is_removed = False

    # Life

    def start(self) -> None:
        recovered = self.disk.recover()
        self.epoch += 1
        self.syncing: deque[tuple[int, int, list[Message]]] = deque()
        self.disk_free_at = 0
        self.registers: dict[int, int] = {}
        self.applied = recovered.snapshot.index
        self.restore(recovered.snapshot)
        self.commit_seen = 0
        self.proposed: dict[int, tuple[int, Asker, int]] = {}
        self.waiting_reads: list[tuple[int, int]] = []
        self.reading: dict[int, tuple[Asker, int]] = {}
        self.node = Node(
            self.id,
            recovered.hard_state,
            recovered.snapshot,
            recovered.entries,
            self.knobs.options,
            self.world.rng.randrange,
        )
        self.world.receive[self.id] = self.receive
        self.world.note(self.id, "starts", recovered.hard_state, recovered.snapshot.index)
        self.world.at(int(self.world.rng.random() * self.tick_period), self.tick, self.epoch)
        self.carry_out()

    def crash(self) -> None:
        self.world.note(self.id, "crashes")
        self.node = None
        self.epoch += 1
        self.is_paused = False
        self.held_back.clear()
        self.disk.crash(self.world.rng)
        self.world.receive.pop(self.id, None)

    def pause(self) -> None:
        self.world.note(self.id, "pauses")
        self.is_paused = True

    def resume(self, epoch: int) -> None:
        if self.is_paused and epoch == self.epoch:
            self.world.note(self.id, "resumes")
            self.is_paused = False
            held_back, self.held_back = self.held_back, []
            for message in held_back:
                self.receive(message)

    def is_sound(self) -> bool:
        """Tell whether the member would still vote after a crash."""
        if self.node is None:
            return self.disk.recover().hard_state.health is Health.SOUND
        return self.node.hard_state.health is Health.SOUND and not self.syncing

    # Events

    def tick(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self.world.at(self.tick_period, self.tick, epoch)
        node = self.node
        assert node is not None
        if self.is_paused or node.is_quiescent:
            return
        node.tick()
        if node.is_leader and self.knobs.quiesce and self.world.rng.random() < self.knobs.quiesce:
            node.quiesce()
        if node.has_effects:
            self.carry_out()

    def receive(self, message: Message) -> None:
        if self.is_paused:
            self.held_back.append(message)
            return
        assert self.node is not None
        self.node.step(message)
        self.carry_out()

    def synced(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        assert self.node is not None
        _, number, messages = self.syncing.popleft()
        self.disk.sync(number)
        self.node.persisted(number)
        self.send(messages)
        self.carry_out()

    def wake(self) -> None:
        if self.node is not None:
            self.node.wake()

    # The driver

    def carry_out(self) -> None:
        node = self.node
        while node is not None and node.has_effects:
            effects = node.take_effects()
            self.invariants.observe(self, effects)
            if effects.messages:
                self.send(effects.messages)
            if effects.messages_after_sync or effects.writes:
                self.persist(effects)
            if effects.snapshot is not None:
                self.restore(effects.snapshot)
            for entry in effects.committed:
                self.apply(entry)
            if effects.committed or effects.snapshot is not None:
                self.answer_waiting_reads()
            self.compact()
            for token, index in effects.reads:
                self.answer_read(token, index)
            for token in effects.dropped_reads:
                self.reading.pop(token)[0].refused(token)

    def send(self, messages: "tuple[Message, ...] | list[Message]") -> None:
        for message in messages:
            if isinstance(message, Vote | VoteReply):
                self.invariants.vote_sent(message)
            self.world.send(message)

    def persist(self, effects: Effects) -> None:
        node, number = self.node, effects.number
        assert node is not None
        if effects.writes:
            self.disk.write(number, effects.hard_state, effects.snapshot, effects.entries)
            if not self.knobs.disk_delay_max:
                self.disk.sync(number)
                node.persisted(number)
                self.send(effects.messages_after_sync)
                return
            delay = 1 + int(self.world.rng.random() * self.knobs.disk_delay_max)
            if effects.may_wait:
                delay *= 4
            self.disk_free_at = max(self.disk_free_at, self.world.now + delay)
            self.syncing.append((self.disk_free_at, number, list(effects.messages_after_sync)))
            self.world.at(self.disk_free_at - self.world.now, self.synced, self.epoch)
        elif self.syncing:
            self.syncing[-1][2].extend(effects.messages_after_sync)
        else:
            self.send(effects.messages_after_sync)

    # The application: a few registers

    def restore(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.index
        values = struct.unpack(f"<{len(snapshot.data) // 2}H", snapshot.data)
        self.registers = dict(enumerate(values))

    def applied_next(self, effects: Effects) -> int:
        return (effects.snapshot.index if effects.snapshot else self.applied) + 1

    def apply(self, entry: Entry) -> None:
        self.applied = entry.index
        seen = 0
        if entry.data and not entry.kind:
            kind, key, expected, value = COMMAND.unpack(entry.data)
            seen = self.registers.get(key, 0)
            if kind == WRITE or seen == expected:
                self.registers[key] = value
        waiting = self.proposed.pop(entry.index, None)
        if waiting is not None:
            term, asker, token = waiting
            if term == entry.term:
                asker.finished(token, seen)
            else:
                asker.refused(token)

    def answer_read(self, token: int, index: int) -> None:
        if self.applied < index:
            self.waiting_reads.append((token, index))
            return
        asker, key = self.reading.pop(token)
        asker.finished(token, self.registers.get(key, 0))

    def answer_waiting_reads(self) -> None:
        if self.waiting_reads:
            waiting, self.waiting_reads = self.waiting_reads, []
            for token, index in waiting:
                self.answer_read(token, index)

    def compact(self) -> None:
        node, after = self.node, self.knobs.compact_after
        assert node is not None
        live = self.applied - node.log.snapshot.index
        full = node.log.payload_bytes * 2 > self.knobs.options.log_bytes_max
        due = (after and live >= after) or (full and live)
        if due and self.applied <= node.log.stable:
            term = node.log.term_at(self.applied)
            assert term is not None
            keys = max(self.registers, default=-1) + 1
            data = struct.pack(f"<{keys}H", *(self.registers.get(key, 0) for key in range(keys)))
            snapshot = Snapshot(self.applied, term, node.log.membership.at(self.applied), data)
            self.disk.compact(snapshot)
            node.compact(snapshot)

    # Clients

    def propose(self, command: bytes, asker: Asker, token: int) -> None:
        """Propose a command; raises if the node does not take it."""
        node = self.node
        assert node is not None
        index = node.propose(command)
        self.proposed[index] = (node.term, asker, token)

    def read(self, key: int, asker: Asker, token: int) -> None:
        assert self.node is not None
        self.reading[token] = (asker, key)
        self.node.read(token)
        self.carry_out()
