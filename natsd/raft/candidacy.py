"""An election, from the candidate's side: first the question, then the votes.

A candidate asks in a pre-vote whether it would win, without a new term, so that a member that was
cut off does not depose a leader when it comes back. Only then it enters a new term and asks for
votes. Requests for votes are sent when the candidate's own vote is synced, and that vote counts
from then on: a restart may shorten an unsynced log, on whose length others would have voted.
"""

from enum import IntEnum

from natsd.raft.member import Member, Role
from natsd.raft.messages import PreVote, Vote
from natsd.raft.quorum import majority


class Outcome(IntEnum):
    """How an election stands."""

    OPEN = 0
    WON = 1
    LOST = 2


class Candidacy:
    """One election, or the question before it."""

    __slots__ = ("_granted", "_me", "_refused", "_voters")

    def __init__(self, me: Member) -> None:
        self._me = me
        self._voters = me.log.membership.current.voters
        self._granted: set[int] = set()
        self._refused: set[int] = set()

    def ask(self) -> None:
        """Ask the other voters whether they would vote for this member."""
        me = self._me
        me.role = Role.PRE_CANDIDATE
        for voter in sorted(self._voters - {me.id}):
            me.messages.append(
                PreVote(me.id, voter, me.term + 1, me.log.last_index, me.log.last_term)
            )

    def campaign(self, is_transfer: bool) -> None:
        """Enter a new term, and ask for votes in it."""
        me = self._me
        me.role = Role.CANDIDATE
        me.term += 1
        me.vote = me.id
        last_index, last_term = me.log.last_index, me.log.last_term
        for voter in sorted(self._voters - {me.id}):
            me.messages_after_sync.append(
                Vote(me.id, voter, me.term, last_index, last_term, is_transfer)
            )

    def record(self, voter: int, granted: bool) -> Outcome:
        """Count a voter's answer."""
        if voter in self._voters:
            (self._granted if granted else self._refused).add(voter)
        needed = majority(len(self._voters))
        if len(self._granted) >= needed:
            return Outcome.WON
        if len(self._voters) - len(self._refused - self._granted) < needed:
            return Outcome.LOST
        return Outcome.OPEN
