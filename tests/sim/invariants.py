"""What must hold after every step, whatever happens (§5 of the paper, figure 3).

They are checked against what all members together have ever shown, not against the algorithm.
"""

from typing import TYPE_CHECKING

from natsd.raft.effects import Effects
from natsd.raft.entry import Entry
from natsd.raft.messages import Message, Vote, VoteReply

if TYPE_CHECKING:
    from tests.sim.host import Host


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Invariants:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.entries: dict[tuple[int, int], tuple[int | None, Entry]] = {}
        """By index and term: term of the entry before, and the entry."""
        self.committed: dict[int, Entry] = {}
        self.commit_terms: dict[int, int] = {}
        """Term of the first member that knew an entry to be committed: its leader's."""
        self.last_committed = 1

    def observe(self, host: "Host", effects: Effects) -> None:
        """Check what a member has just done."""
        node = host.node
        assert node is not None
        if node.is_leader and self.leaders.get(node.term) != host.id:
            self.elected(host)
        if effects.entries:
            self.log_matching(host, effects.entries)
        if effects.snapshot is not None:
            self.snapshot_is_of_the_log(host, effects)
        if effects.committed:
            self.state_machine_safety(host, effects)
        if node.log.commit < host.commit_seen:
            raise Violation("commit monotonic", f"{host.id} from {host.commit_seen}")
        host.commit_seen = node.log.commit

    def elected(self, host: "Host") -> None:
        """At most one leader in a term, and it holds all that earlier leaders committed."""
        node = host.node
        assert node is not None
        other = self.leaders.setdefault(node.term, host.id)
        if other != host.id:
            raise Violation("election safety", f"{other} and {host.id} lead in term {node.term}")
        index = self.last_committed
        while index > 1 and self.commit_terms[index] >= node.term:
            index -= 1
        if index > max(1, node.log.base):
            held, entry = node.log.term_at(index), self.committed[index]
            if held != entry.term:
                raise Violation(
                    "leader completeness",
                    f"{host.id} leads in term {node.term} with {index}/{held}, not {entry.term}",
                )

    def log_matching(self, host: "Host", entries: tuple[Entry, ...]) -> None:
        """Equal index and term mean an equal entry, behind equal entries."""
        assert host.node is not None
        known = self.entries
        prev_term = host.node.log.term_at(entries[0].index - 1)
        for entry in entries:
            here = (prev_term, entry)
            there = known.setdefault((entry.index, entry.term), here)
            if there != here and None not in {there[0], prev_term}:
                raise Violation("log matching", f"{host.id} has {here}, another has {there}")
            prev_term = entry.term

    def snapshot_is_of_the_log(self, host: "Host", effects: Effects) -> None:
        snapshot = effects.snapshot
        assert snapshot is not None
        if snapshot.index > 1:
            entry = self.committed.get(snapshot.index)
            if entry is None or entry.term != snapshot.term:
                raise Violation("state machine safety", f"{host.id} installs {snapshot}")

    def state_machine_safety(self, host: "Host", effects: Effects) -> None:
        """All members apply the same entries in the same order."""
        assert host.node is not None
        expected = host.applied_next(effects)
        for entry in effects.committed:
            if entry.index != expected:
                raise Violation("state machine safety", f"{host.id} skips to {entry.index}")
            expected += 1
            known = self.committed.get(entry.index)
            if known is None:
                if entry.index != self.last_committed + 1:
                    raise Violation("state machine safety", f"{entry.index} comes too early")
                self.committed[entry.index] = entry
                self.commit_terms[entry.index] = host.node.term
                self.last_committed = entry.index
            elif known != entry:
                raise Violation("state machine safety", f"{host.id} applies {entry}, not {known}")

    def vote_sent(self, message: Message) -> None:
        """A member votes once in a term, whatever it has forgotten."""
        if isinstance(message, Vote):
            voter, candidate = message.sender, message.sender
        elif isinstance(message, VoteReply) and message.granted:
            voter, candidate = message.sender, message.receiver
        else:
            return
        other = self.votes.setdefault((voter, message.term), candidate)
        if other != candidate:
            raise Violation(
                "one vote", f"{voter} votes for {other} and {candidate} in term {message.term}"
            )
