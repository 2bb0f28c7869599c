"""One group as its application sees it: proposals, reads, members; the host drives it.

    group.submit(data, done)          done(result) when applied, done(error) when that is refused
    await group.propose(data)         the same, as a coroutine
    await group.read_barrier()        the state that is read now is no older than this call
    await group.change_members(…)     one member at a time

Promise
- The result of a proposal is given only after its entry was committed and applied here.
- `ProposalLostError`: another entry took its place; it has not happened, and will not.
  `ProposalUncertainError`: it is not known whether it has.
- A read barrier ends: it is passed, or dropped if no leader says in time what is committed.
- At most `proposals_max` proposals, and `proposal_bytes_max` bytes of them, are under way; more are
  refused with `TooManyProposalsError`, and nothing has happened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from natsd.raft.effects import Effects
from natsd.raft.entry import Entry, Membership, Snapshot
from natsd.raft.errors import RaftError
from natsd.raft.log import payload_bytes
from natsd.raft.membership import with_learner, with_voter, without
from natsd.raft.messages import Message
from natsd.raft.node import Node
from natsd.raft.state_machine import StateMachine

LEADER_S: Final = 2.0
"""A read is dropped when the leader has not answered for so long: what it says may be lost."""

Done = Callable[[object], None]
"""Called with the result of a proposal, or with the RaftError why there is none."""


class ProposalLostError(RaftError):
    """Another leader's entry took the place of the proposal: it has not happened, and will not."""


class ProposalUncertainError(RaftError):
    """The group stops, or a snapshot came over it: the proposal may have happened."""


class TooManyProposalsError(RaftError):
    """So many proposals are under way that this one is refused; nothing has happened."""


class ReadDroppedError(RaftError):
    """The leadership has changed while the read waited, or no leader answers: ask again."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Bounds of one group."""

    proposals_max: int = 16384
    proposal_bytes_max: int = 32 << 20
    snapshot_after_bytes: int = 16 << 20
    """Applied payload behind the last snapshot after which the next one is taken."""
    snapshot_after_entries: int = 200_000
    snapshot_bytes_max: int = 48 << 20
    """A follower gets a snapshot in one message (message_codec.pyx); a larger one is not taken."""


class _Proposal(NamedTuple):
    place: int
    term: int
    size: int
    done: Done


class RaftGroup:
    """A member of one group on this server."""

    def __init__(
        self,
        touch: Callable[[RaftGroup], None],
        name: str,
        node: Node,
        machine: StateMachine,
        limits: GroupLimits,
    ) -> None:
        self.name = name
        self.encoded_name = name.encode("utf-8", "surrogateescape")
        self.node = node
        self.limits = limits
        self._touch = touch
        self._machine = machine
        self.applied = node.log.handed_out
        self._applied_term = node.log.snapshot.term
        self._proposals: deque[_Proposal] = deque()
        self._proposal_bytes = 0
        self._reads: dict[int, asyncio.Future[None]] = {}
        self._next_read = 0
        self._waiting_reads: list[tuple[int, asyncio.Future[None]]] = []
        self._bytes_behind_snapshot = 0
        self._bytes_in_snapshot = 0
        self.unsynced: deque[tuple[int, list[Message]]] = deque()
        """Numbers of effects that are being written, each with what is to be sent then."""
        self.is_held = False
        """A snapshot is being stored: no effects are taken meanwhile."""
        self.is_snapshotting = False
        self.is_dirty = False
        self.idle_ticks = 0
        self.last_index_seen = 0
        self.is_closed = False
        self._is_told_to_lead = False
        self.is_early = False
        """Tell the leader what is written, before it is synced; all members must do so."""
        self.on_progress: Callable[[], None] | None = None
        """Called when something may have been written, synced or committed."""

    # ---- what is known

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the group."""
        return self.node.is_leader

    @property
    def leader(self) -> int:
        """Member that leads as far as this one knows; NOBODY: it knows of none."""
        return self.node.leader

    @property
    def membership(self) -> Membership:
        """The members; the newest change may not be committed yet."""
        return self.node.membership

    @property
    def proposals_under_way(self) -> int:
        """Number of proposals without a result."""
        return len(self._proposals)

    def lags(self) -> dict[int, int]:
        """Return how many committed entries each other member lacks; only the leader knows."""
        commit = self.node.log.commit
        return {each.member: max(commit - each.match, 0) for each in self.node.followers}

    # ---- what the application asks for

    def submit(self, data: bytes, done: Done) -> None:
        """Propose a command; `done` is called once, later.

        Raises NotLeaderError, ProposalDroppedError or TooManyProposalsError; then nothing has
        happened, and `done` is not called.
        """
        size = len(data)
        limits = self.limits
        if (
            len(self._proposals) >= limits.proposals_max
            or self._proposal_bytes + size > limits.proposal_bytes_max
        ):
            raise TooManyProposalsError(f"{len(self._proposals)} proposals are under way")
        node = self.node
        place, proposals = node.propose(data), self._proposals
        if proposals and proposals[-1].place >= place:
            self._drop_cut_off(place)
        proposals.append(_Proposal(place, node.term, size, done))
        self._proposal_bytes += size
        if not self.is_dirty:
            self._touch(self)

    def _drop_cut_off(self, place: int) -> None:
        """Answer proposals of an earlier leadership whose entries this log has lost since."""
        lost = []
        while self._proposals and self._proposals[-1].place >= place:
            lost.append(self._proposals.pop())
        for proposal in reversed(lost):
            self._proposal_bytes -= proposal.size
            proposal.done(ProposalUncertainError("the entry was cut off the log"))

    async def propose(self, data: bytes) -> object:
        """Propose a command and return its result once it is applied.

        Raises what `submit` raises, ProposalLostError and ProposalUncertainError.
        """
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.submit(data, _into(answer))
        return await answer

    async def read_barrier(self) -> None:
        """Wait until this member has applied everything that was committed before the call.

        Raises ReadDroppedError if no leader answers within LEADER_S, or the leader changes. To
        apply what is committed may take any time.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._next_read += 1
        token = self._next_read
        self._reads[token] = answer
        self.node.read(token)
        self._touch(self)
        give_up = loop.call_later(LEADER_S, self._drop_unanswered, token)
        try:
            await answer
        finally:
            give_up.cancel()
            answer.cancel()
            self._reads.pop(token, None)

    async def change_members(self, membership: Membership) -> None:
        """Change the members by one, and wait until that is applied here.

        Raises NotLeaderError, MembershipError, ProposalLostError and ProposalUncertainError.
        """
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        place = self.node.propose_membership(membership)
        self._drop_cut_off(place)
        self._proposals.append(_Proposal(place, self.node.term, 0, _into(answer)))
        self._touch(self)
        await answer

    async def add_learner(self, member: int) -> None:
        """Add a member that learns."""
        await self.change_members(with_learner(self.membership, member))

    async def promote(self, member: int) -> None:
        """Make a learner a voter."""
        await self.change_members(with_voter(self.membership, member))

    async def remove_member(self, member: int) -> None:
        """Remove a member."""
        await self.change_members(without(self.membership, member))

    def transfer_leadership(self, target: int) -> None:
        """Hand over to a voter. Raises NotLeaderError and TransferError."""
        self.node.transfer_leadership(target)
        self._touch(self)

    # ---- what the host tells

    def fetch(self, snapshot: Snapshot) -> Callable[[], Awaitable[None]] | None:
        """Get what the leader's snapshot stands for; None: there is nothing to wait for."""
        return self._machine.fetch(snapshot.data)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the application's state; proposals up to the snapshot are uncertain."""
        self._machine.restore(snapshot.data)
        self.applied = snapshot.index
        self._applied_term = snapshot.term
        self._bytes_behind_snapshot = self._bytes_in_snapshot = 0
        while self._proposals and self._proposals[0].place <= snapshot.index:
            self._finish_first(ProposalUncertainError("a snapshot took its place"))

    def apply(self, effects: Effects) -> None:
        """Apply committed entries, and answer proposals and reads."""
        if effects.committed:
            self._apply(effects.committed)
        for token, index in effects.reads:
            if token in self._reads:
                self._waiting_reads.append((index, self._reads.pop(token)))
        for token in effects.dropped_reads:
            if token in self._reads:
                self._refuse_read(self._reads.pop(token), "the leadership has changed")
        if self._waiting_reads:
            self._answer_reads()

    @property
    def leads(self) -> bool:
        """Whether this member leads, and has applied all entries of earlier leaders."""
        return self.node.is_leader and self._applied_term == self.node.term and not self.is_closed

    @property
    def has_news_of_leading(self) -> bool:
        """Whether the application is to be told that this member leads, or no more."""
        return self.leads is not self._is_told_to_lead

    def tell_leading(self) -> None:
        """Tell the application whether this member leads, if that has changed."""
        if self.has_news_of_leading:
            self._is_told_to_lead = not self._is_told_to_lead
            self._machine.leads(is_leader=self._is_told_to_lead)

    def _apply(self, entries: Sequence[Entry]) -> None:
        # A place without a command has no result; the entries are consecutive.
        commands = [each for each in entries if each[3] and not each[2]]
        results = iter(self._machine.apply(commands)) if commands else iter(())
        first, last = entries[0].index, entries[-1].index
        assert first == self.applied + 1, "entries are applied in order"
        self.applied, self._applied_term = last, entries[-1].term
        self._bytes_behind_snapshot += payload_bytes(entries)
        proposals = self._proposals
        if not proposals or proposals[0].place > last:
            return
        for place, term, kind, data in entries:
            result = next(results) if data and not kind else None
            while proposals and proposals[0].place <= place:
                if proposals[0].place == place and proposals[0].term == term:
                    self._finish_first(result)
                else:
                    self._finish_first(ProposalLostError("another entry took its place"))

    def _finish_first(self, result: object) -> None:
        proposal = self._proposals.popleft()
        self._proposal_bytes -= proposal.size
        proposal.done(result)

    def _answer_reads(self) -> None:
        waiting, self._waiting_reads = self._waiting_reads, []
        for index, answer in waiting:
            if index > self.applied:
                self._waiting_reads.append((index, answer))
            elif not answer.done():
                answer.set_result(None)

    def _drop_unanswered(self, token: int) -> None:
        """Drop a read of which the leader has not said yet for which index it must wait."""
        if token in self._reads:
            self._refuse_read(self._reads.pop(token), "no leader answers")

    @staticmethod
    def _refuse_read(answer: asyncio.Future[None], why: str) -> None:
        if not answer.done():
            answer.set_exception(ReadDroppedError(why))

    @property
    def wants_turn(self) -> bool:
        """Whether anything is to be done now that a write is synced."""
        is_watched = self.on_progress is not None
        return self.node.has_effects or is_watched or self._is_snapshot_due

    @property
    def _is_snapshot_due(self) -> bool:
        log = self.node.log
        behind = self.applied - log.snapshot.index
        is_due = (
            self._bytes_behind_snapshot > self.limits.snapshot_after_bytes
            or behind > self.limits.snapshot_after_entries
        )
        return is_due and not self.is_snapshotting and self.applied <= log.stable and behind > 0

    def due_snapshot(self) -> tuple[Snapshot, bytes | Callable[[], Awaitable[bytes]]] | None:
        """Return a new snapshot if it is time for one, without its data and with it."""
        if not self._is_snapshot_due:
            return None
        log = self.node.log
        self._bytes_in_snapshot = self._bytes_behind_snapshot
        membership = log.membership.at(self.applied)
        snapshot = Snapshot(self.applied, self._applied_term, membership, b"")
        return snapshot, self._machine.snapshot()

    def snapshot_ends(self) -> None:
        """Note that the snapshot that was due is taken, or cannot be; the next one may be taken."""
        self._bytes_behind_snapshot -= self._bytes_in_snapshot
        self._bytes_in_snapshot = 0
        self.is_snapshotting = False

    def close(self) -> None:
        """Refuse what is under way."""
        self.is_closed = True
        self.tell_leading()
        while self._proposals:
            self._finish_first(ProposalUncertainError("the group stops"))
        for answer in [*self._reads.values(), *(answer for _, answer in self._waiting_reads)]:
            self._refuse_read(answer, "the group stops")
        self._reads.clear()
        self._waiting_reads.clear()


def _into(answer: asyncio.Future[object]) -> Done:
    def done(result: object) -> None:
        if answer.done():
            return
        if isinstance(result, RaftError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    return done
