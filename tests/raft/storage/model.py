"""Random writes of some groups to RaftLogs, and what a start may find afterwards.

    history = History(chance)        makes up writes, and keeps the model's state after each
    history.run(logs, steps)         gives them to the logs
    history.check(recovered)         recovered == the model after some write that was not reported
                                     yet, or after the last that was; damage excuses its groups

The states of groups (terms, votes, snapshots) are in two files, and entries in one of them. So the
states may be found as some later write left them, whose entries are lost: no write reported them.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from natsd.raft.entry import Entry, EntryKind, HardState, Health, Membership, Snapshot
from natsd.raft.storage.raft_logs import GroupWrite, RaftLogs
from natsd.raft.storage.recovery import RecoveredGroup

MEMBERS = Membership(frozenset({1, 2, 3}))
NO_STATE = HardState(0, 0)
NO_SNAPSHOT = Snapshot(0, 0, Membership(frozenset()), b"")
BODIES = (b"", b"x", b"data" * 30, bytes(700), b"\0" * 2000, b"JBAT" * 200)


@dataclass(frozen=True)
class Group:
    """A group in the model."""

    hard_state: HardState = NO_STATE
    snapshot: Snapshot = NO_SNAPSHOT
    entries: tuple[Entry, ...] = ()

    @property
    def last(self) -> int:
        return self.snapshot.index + len(self.entries)

    def written(self, write: GroupWrite) -> "Group":
        """Return the group after a write."""
        after = self
        if write.hard_state is not None:
            after = replace(after, hard_state=write.hard_state)
        if write.snapshot is not None:
            gone = write.snapshot.index - after.snapshot.index
            kept = () if write.replaces_log else after.entries[gone:]
            after = replace(after, snapshot=write.snapshot, entries=kept)
        if write.entries:
            keep = write.entries[0].index - after.snapshot.index - 1
            after = replace(after, entries=after.entries[:keep] + tuple(write.entries))
        return after


State = dict[str, Group]


def after(state: State, writes: list[GroupWrite]) -> State:
    """Return the groups after a write."""
    state = dict(state)
    for write in writes:
        if write.removes:
            state.pop(write.group, None)
        else:
            state[write.group] = state.get(write.group, Group()).written(write)
    return state


@dataclass
class History:
    """The writes so far; `states[n]` is the model after n of them, `reported` are on disk."""

    chance: random.Random
    names: tuple[str, ...] = ("meta", "a/b", "c")
    states: list[State] = field(default_factory=lambda: [{}])
    writes: list[list[GroupWrite]] = field(default_factory=lambda: [[]])
    reported: int = 0
    written: set[tuple[str, Entry]] = field(default_factory=set)

    def run(self, logs: RaftLogs, steps: int) -> None:
        """Issue writes and take completed jobs at random; raises what the disk raises."""
        for _ in range(steps):
            self.issue(logs)
            if self.chance.random() < 0.5:
                logs.wait()
        self.settle(logs)

    def settle(self, logs: RaftLogs) -> None:
        """Wait until everything is reported."""
        while self.reported < len(self.states) - 1:
            logs.wait()

    def issue(self, logs: RaftLogs) -> None:
        """Give the logs one write of some groups."""
        writes: list[GroupWrite] = []
        state = self.states[-1]
        for name in self.chance.sample(self.names, self.chance.randint(1, len(self.names))):
            write = self.write_of(name, state.get(name))
            if write.snapshot is not None:
                self.put(logs, name, write.snapshot)
            writes.append(write)
        self.note(writes)
        logs.write(writes, self.report)
        if any(write.removes for write in writes):
            self.settle(logs)

    def note(self, writes: list[GroupWrite]) -> None:
        """Take note of a write that is being issued."""
        self.written |= {(write.group, entry) for write in writes for entry in write.entries}
        self.states.append(after(self.states[-1], writes))
        self.writes.append(writes)

    def report(self, error: Exception | None) -> None:
        assert error is None
        self.reported += 1

    def put(self, logs: RaftLogs, name: str, snapshot: Snapshot) -> None:
        """Store a snapshot; the writes before it may complete meanwhile."""
        done: list[Exception | None] = []
        logs.put_snapshot(name, snapshot, done.append)
        while not done:
            logs.wait()
        assert done == [None]

    def write_of(self, name: str, group: Group | None) -> GroupWrite:
        """Return a random write of a group."""
        if group is None:
            return GroupWrite(name, hard_state=HardState(1, 2))
        chance, term = self.chance, group.hard_state.term
        kind = chance.random()
        if kind < 0.05:
            return GroupWrite(name, removes=True)
        if kind < 0.15 and group.entries:
            kept = chance.choice(group.entries)
            snapshot = Snapshot(kept.index, kept.term, MEMBERS, chance.randbytes(40))
            return GroupWrite(name, snapshot=snapshot)
        if kind < 0.22:
            index = group.last + chance.randint(1, 5)
            snapshot = Snapshot(index, term, MEMBERS, chance.randbytes(40))
            behind = self.entries(index + 1, term) if chance.random() < 0.5 else ()
            return GroupWrite(name, None, snapshot, replaces_log=True, entries=behind)
        hard_state = None
        if chance.random() < 0.3:
            term += 1
            hard_state = HardState(term, chance.randint(0, 3))
        first = group.last + 1
        if chance.random() < 0.2:
            first = chance.randint(group.snapshot.index + 1, first)
        return GroupWrite(name, hard_state, entries=self.entries(first, term))

    def entries(self, first: int, term: int) -> tuple[Entry, ...]:
        """Return some entries from that index on."""
        return tuple(
            Entry(first + n, term, EntryKind(n % 7 == 3), self.chance.choice(BODIES) + b"%d" % n)
            for n in range(self.chance.randint(1, 6))
        )

    # ---- what a start may find

    def check(self, recovered: Mapping[str, RecoveredGroup], *, is_damaged: bool = False) -> State:
        """Check what a start has found; return the model's state that it equals."""
        for name, group in recovered.items():
            assert all((name, entry) in self.written for entry in group.entries), "invented"
            first = group.snapshot.index + 1 if group.snapshot else 1
            assert [each.index for each in group.entries] == list(
                range(first, first + len(group.entries))
            )
        hurt = {name for name, group in recovered.items() if group.hard_state.health}
        assert is_damaged or not hurt
        for number in range(len(self.states) - 1, self.reported - 1, -1):
            state = self.states[number]
            for writes in [[], *self.writes[number + 1 :]]:
                state = after(state, [replace(write, entries=()) for write in writes])
                if self.is_like(recovered, state, hurt):
                    return state
        raise AssertionError(f"no state from {self.reported} on is like what was found")

    def is_like(self, found: Mapping[str, RecoveredGroup], state: State, hurt: set[str]) -> bool:
        """Return whether the groups that are not hurt are as in the model."""
        if found.keys() != state.keys():
            return False
        for name, group in state.items():
            got = found[name]
            if got.hard_state[:2] != group.hard_state[:2]:
                return False
            if name in hurt:
                assert got.hard_state.health is Health.LOG_LOST, "one fault costs no vote"
                assert any(each.group == name for each in got.damage)
            elif got.snapshot != group.snapshot or tuple(got.entries) != group.entries:
                return False
        return True

    def continue_from(self, state: State) -> None:
        """Go on from the state that a start has found."""
        self.states, self.writes, self.reported = [state], [[]], 0
