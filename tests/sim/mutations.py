"""Bugs planted on purpose: a simulator that does not find them proves nothing.

Each is the kind of mistake that an implementation of RAFT has made, or could make. Patches replace
functions of the real code while the simulator runs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import natsd.raft.node as node_module
from natsd.raft.effects import Effects
from natsd.raft.entry import NOBODY, Entry, HardState, Health, Membership, Snapshot
from natsd.raft.following import Following
from natsd.raft.leadership import Leadership
from natsd.raft.log import Log
from natsd.raft.member import Member
from natsd.raft.membership import MembershipHistory
from natsd.raft.messages import (
    Append,
    AppendReply,
    PreVote,
    PreVoteReply,
    RepairTarget,
    Vote,
    VoteReply,
)
from natsd.raft.node import Node
from natsd.raft.options import Options
from natsd.raft.quorum import majority_index
from natsd.raft.repair import Repair
from tests.sim.knobs import KINDS
from tests.sim.simulation import Result, Simulation

SEEDS_MAX = 1000

Patches = list[tuple[Any, str, Any]]
"""Owner, attribute, replacement."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A planted bug."""

    says: str
    make: Callable[[], Patches]
    focus: dict[str, Any]
    """Knobs that make the faults likely which this bug needs."""


MUTATIONS: dict[str, Mutation] = {}


def mutation(says: str, **focus: Any) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """Register a bug."""

    def register(make: Callable[[], Patches]) -> Callable[[], Patches]:
        MUTATIONS[make.__name__] = Mutation(says, make, focus)
        return make

    return register


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug while the block runs."""
    with ExitStack() as stack:
        for owner, attribute, replacement in MUTATIONS[name].make():
            is_property = isinstance(vars(owner).get(attribute), property)
            made = property(replacement) if is_property else replacement
            stack.enter_context(patch.object(owner, attribute, made))
        yield


def hunt(name: str, seeds_max: int = SEEDS_MAX) -> tuple[Result | None, int]:
    """Run seeds until one catches the bug; return its result, and how many seeds were run."""
    with planted(name):
        for seed in range(seeds_max):
            result = Simulation(seed, focus=MUTATIONS[name].focus).run()
            if result.violation:
                return result, seed + 1
    return None, seeds_max


def only(*kinds: str) -> dict[str, float]:
    """Return the weights of some kinds of faults, all others being off."""
    return {kind: KINDS[kind] for kind in kinds}


CRASHES: dict[str, Any] = {
    "members": 3,
    "disk_delay_max": 400,
    "fault_every": 300,
    "faults": only("crash", "crash_leader", "crash_all", "isolate_leader", "heal"),
}
STALE_LEADERS: dict[str, Any] = {
    "members": 3,
    "clients": 5,
    "keys": 1,
    "ticks": 300,
    "delay_max": 10,
    "disk_delay_max": 0,
    "straggle": 0.0,
    "loss": 0.0,
    "quiesce": 0.0,
    "skew": 0.5,
    "options": Options(heartbeat_ticks=1),
    "fault_every": 1000,
    "faults": only("isolate_leader", "heal"),
}
CHANGES: dict[str, Any] = {
    "members": 3,
    "clients": 5,
    "ticks": 300,
    "delay_max": 10,
    "disk_delay_max": 0,
    "straggle": 0.0,
    "loss": 0.0,
    "options": Options(election_ticks=5, heartbeat_ticks=1),
    "fault_every": 600,
    "faults": only("partition", "add"),
}
FIGURE_8: dict[str, Any] = {
    "members": 3,
    "clients": 5,
    "ticks": 300,
    "fault_every": 500,
    "delay_max": 100,
    "straggle": 0.0,
    "disk_delay_max": 0,
    "options": Options(election_ticks=5, heartbeat_ticks=1, append_bytes_max=4, in_flight_max=1),
    "faults": only("isolate_leader"),
    "quiesce": 0.0,
}
LAGGARDS: dict[str, Any] = {
    "members": 3,
    "ticks": 300,
    "fault_every": 600,
    "compact_after": 5,
    "options": Options(trailing_bytes_max=0, snapshot_ticks=20),
    "faults": only("isolate_leader", "heal"),
}
MANY_CHANGES: dict[str, Any] = {
    "members": 5,
    "clients": 1,
    "ticks": 150,
    "options": Options(election_ticks=10, heartbeat_ticks=2),
    "fault_every": 150,
    "faults": only("partition", "add", "promote", "remove"),
}
DAMAGE: dict[str, Any] = {
    "members": 3,
    "fault_every": 1500,
    "ticks": 300,
    "delay_max": 50,
    "faults": only("last_copy", "heal"),
}


# Elections


def voting(vote: Callable[[Member, Vote | PreVote], bool]) -> Patches:
    """Return patches that let `vote` decide on votes, and on pre-votes outside of a lease."""

    def answer_vote(me: Member, asked: Vote) -> bool:
        granted = vote(me, asked)
        if granted:
            me.vote = asked.sender
        me.messages_after_sync.append(VoteReply(me.id, asked.sender, me.term, granted))
        return granted

    def answer_pre_vote(me: Member, asked: PreVote) -> None:
        granted = not me.hears_leader and asked.term > me.term and vote(me, asked)
        term = asked.term if granted else me.term
        me.messages.append(PreVoteReply(me.id, asked.sender, term, granted, me.health, 0))

    return [
        (node_module, "answer_vote", answer_vote),
        (node_module, "answer_pre_vote", answer_pre_vote),
    ]


def has_vote_left(me: Member, asked: Vote | PreVote) -> bool:
    return isinstance(asked, PreVote) or me.vote in {NOBODY, asked.sender}


def is_complete(me: Member, asked: Vote | PreVote) -> bool:
    return me.log.is_covered_by(asked.last_index, asked.last_term)


@mutation("votes twice in a term")
def vote_twice() -> Patches:
    return voting(lambda me, asked: me.health is Health.SOUND and is_complete(me, asked))


@mutation("votes without comparing the logs")
def vote_for_short_log() -> Patches:
    return voting(lambda me, asked: me.health is Health.SOUND and has_vote_left(me, asked))


# Syncs


def early(*kinds: type) -> Patches:
    """Return patches that send some kinds of messages without waiting for the sync."""
    take_effects = Node.take_effects

    def take_early(self: Node) -> Effects:
        effects = take_effects(self)
        now = [m for m in effects.messages_after_sync if isinstance(m, kinds)]
        later = [m for m in effects.messages_after_sync if not isinstance(m, kinds)]
        return effects._replace(
            messages=(*effects.messages, *now), messages_after_sync=tuple(later)
        )

    return [(Node, "take_effects", take_early)]


@mutation("acknowledges entries before they are synced", **CRASHES)
def acknowledge_before_sync() -> Patches:
    return early(AppendReply)


@mutation("votes before the vote is synced", **CRASHES)
def vote_before_sync() -> Patches:
    return early(Vote, VoteReply)


@mutation(
    "counts the leader's own entries before they are synced",
    **(CRASHES | {"disk_delay_max": 400, "down_max": 100, "faults": only("crash_leader")}),
)
def count_unsynced() -> Patches:
    def advance_commit(self: Leadership) -> None:
        self.progress[self._me.id].match = self._me.log.last_index
        original(self)

    original = Leadership.advance_commit
    return [(Leadership, "advance_commit", advance_commit)]


# The log


@mutation("acknowledges without checking the term of the entry before")
def ignore_previous_term() -> Patches:
    def on_append(self: Following, sent: Append) -> None:
        log = self._me.log
        prev_index, entries = sent.prev_index, sent.entries
        if prev_index < log.commit:
            entries = entries[log.commit - prev_index :]
            prev_index = log.commit
        elif prev_index > log.last_index:
            self._refuse(sent)
            return
        log.merge(prev_index, entries)
        self._agrees_up_to(prev_index + len(entries))
        log.commit_to(min(sent.commit, self.verified))

    return [(Following, "on_append", on_append)]


@mutation("keeps a suffix that conflicts with the leader's entries")
def keep_conflicting_suffix() -> Patches:
    def merge(self: Log, prev_index: int, entries: tuple[Entry, ...]) -> bool:
        added = entries[max(0, self.last_index - prev_index) :]
        self._entries += added
        self._set_last()
        return self.membership.appended(added)

    return [(Log, "merge", merge)]


@mutation("cuts the log off behind each Append, even an old one")
def truncate_on_old_append() -> Patches:
    original = Log.merge

    def merge(self: Log, prev_index: int, entries: tuple[Entry, ...]) -> bool:
        end = prev_index + len(entries)
        changed = self.commit <= end < self.last_index and self.truncate(end + 1)
        return original(self, prev_index, entries) or changed

    return [(Log, "merge", merge)]


@mutation("keeps the conflicting tail when it installs a snapshot", **LAGGARDS)
def keep_tail_behind_snapshot() -> Patches:
    original = Log.restore

    def restore(self: Log, snapshot: Snapshot) -> None:
        tail = [entry for entry in self._entries if entry.index > snapshot.index]
        original(self, snapshot)
        self._entries = tail
        self.membership = MembershipHistory(snapshot)
        self.membership.appended(tuple(tail))
        self._set_last()

    return [(Log, "restore", restore)]


# Commit


@mutation("commits entries of an earlier term by counting", **FIGURE_8)
def commit_old_terms() -> Patches:
    def advance_commit(self: Leadership) -> None:
        log = self._me.log
        index = majority_index([progress.match for progress in self.voters])
        if index > log.commit:
            log.commit_to(index)

    return [(Leadership, "advance_commit", advance_commit)]


@mutation("waits for ever for the voters that were fast once")
def never_race_again() -> Patches:
    race = Leadership._race

    def race_once(self: Leadership) -> None:
        if not self._elapsed_ticks:
            race(self)

    return [(Leadership, "_race", race_once)]


@mutation("applies entries before they are committed")
def apply_before_commit() -> Patches:
    def take_committed(self: Log) -> tuple[Entry, ...]:
        begin, end = self.handed_out - self._base, self.last_index - self._base
        self.handed_out = self.last_index
        return tuple(self._entries[begin:end])

    return [(Log, "take_committed", take_committed)]


@mutation(
    "takes the leader's commit index for entries that may differ from the leader's", **FIGURE_8
)
def commit_beyond_match() -> Patches:
    def on_append(self: Following, sent: Append) -> None:
        original(self, sent)
        log = self._me.log
        log.commit_to(min(sent.commit, log.last_index))

    original = Following.on_append
    return [(Following, "on_append", on_append)]


# Members


@mutation("counts learners for the majority", **CHANGES)
def count_learners() -> Patches:
    follow_membership = Leadership._follow_membership

    def follow_all(self: Leadership) -> None:
        follow_membership(self)
        self.voters = list(self.progress.values())

    return [(Leadership, "_follow_membership", follow_all)]


@mutation(
    "changes members while an earlier change is uncommitted",
    **(CHANGES | MANY_CHANGES),
)
def two_changes_at_once() -> Patches:
    def check_change(self: Leadership, old: Membership, new: Membership) -> None:
        assert old != new

    return [(Leadership, "check_change", check_change)]


# Reads


@mutation("serves reads without asking a majority", **STALE_LEADERS)
def read_without_majority() -> Patches:
    def begin_reads(self: Leadership) -> None:
        if self.reads.fresh and self._me.log.commit >= self._first_index:
            self._answer_reads(self._me.log.commit, self.reads.fresh)
            self.reads.fresh = []

    return [(Leadership, "_begin_reads", begin_reads)]


@mutation("serves reads before it has committed an entry of its own term")
def read_before_own_commit() -> Patches:
    def begin_reads(self: Leadership) -> None:
        if self.reads.fresh:
            self._send_heartbeats()
            self.reads.wait_for_round(self._me.log.commit)
            self._confirm_rounds()

    return [(Leadership, "_begin_reads", begin_reads)]


@mutation(
    "holds its lease twice as long as voters are patient",
    **(
        STALE_LEADERS
        | {
            "options": Options(heartbeat_ticks=1, lease_reads=True),
            "skew": 0.045,
            "clients": 8,
            "fault_every": 700,
        }
    ),
)
def lease_too_long() -> Patches:
    return [(Options, "lease_ticks", lambda self: 2 * self.election_ticks)]


# Damage


@mutation("votes although its log is damaged", **DAMAGE)
def vote_when_damaged() -> Patches:
    return voting(lambda me, asked: has_vote_left(me, asked) and is_complete(me, asked))


@mutation("forgets in a restart that its log is damaged", **DAMAGE)
def forget_damage() -> Patches:
    original = Node._take_hard_state

    def take_hard_state(self: Node) -> HardState | None:
        taken = original(self)
        return taken._replace(health=Health.SOUND) if taken else None

    return [(Node, "_take_hard_state", take_hard_state)]


@mutation("calls its log repaired before it has the leader's entries", **DAMAGE)
def repair_at_once() -> Patches:
    def on_target(self: Repair, told: RepairTarget) -> None:
        self._target, self._target_term = 0, told.term

    return [(Repair, "on_target", on_target)]
