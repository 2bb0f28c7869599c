"""Founding: the servers of a new cluster agree on one meta group and its first members.

    proposer   Prepare(ballot) ─▶ all ─▶ Promise(ballot, last vote)     the promise is on disk
               Accept(ballot, value) ─▶ all ─▶ Accepted(ballot)         the vote is on disk
               Chosen(value) ─▶ all                                     the value is on disk

This is Paxos for a single value. "All" are the servers that the proposer sees: there must be at
least as many as any of them expects, and every one of them must answer. The server with the lowest
name proposes; `tick` sends again what was not answered. A ballot that was refused, and one begun
with other servers than are now visible, is followed by a higher one.

Promise
- The proposer takes the value of the highest vote that it hears of; only if there is none it makes
  a new one, with the servers it sees as members. So if any two ballots have a server in common,
  only one value is ever chosen.
- The proposer waits until it sees all members of every value that it hears of. So a server is a
  member of one chosen value at most, and two groups can both be founded only if two disjoint sets
  of servers, each as large as expected, did not see each other.
- A server that has heard of a group, member or not, keeps to that group for good, and takes part in
  no other founding. Nobody proposes if a visible server knows of a group. Only a rescue of the
  group (rescue_order.py) supersedes it: then the server keeps to the rescued one.
- What an answer says is on disk before it is sent. A server whose record is damaged answers
  nothing: founding with it waits.
- Messages may be lost, doubled and reordered. Once all servers are up and see each other, a few
  ticks are enough.

There is no clock, network or randomness here; all calls come from one thread, and `send` must not
call back. Source: Lamport, "Paxos Made Simple". nats-server agrees on nothing here: each server
counts for itself how many members the meta group has (`bootstrapRaftNode` in server/raft.go).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from natsd.jetstream.meta_group.founding_messages import (
    Accept,
    Accepted,
    Chosen,
    MalformedFounding,
    Message,
    Prepare,
    Promise,
    Refused,
    decode,
    encode,
)
from natsd.jetstream.meta_group.founding_record import Ballot, Founded, Record, Vote

_logger = logging.getLogger(__name__)


class PeerView(Struct, frozen=True):
    """What a server tells the others about itself, regularly and when it changes."""

    expected: int  # number of servers without which it founds nothing
    founded: Founded | None = None  # the group that it belongs to or will join


@dataclass(slots=True)
class _Proposal:
    """A ballot of this server, which waits for answers."""

    ballot: Ballot
    servers: frozenset[str]  # all of them must answer
    promises: dict[str, Vote | None]
    accepted: set[str] = field(default_factory=set)
    value: Founded | None = None  # None: not all have promised
    absent: frozenset[str] = frozenset()  # members of earlier values, that are not in `servers`

    @property
    def waits_for(self) -> frozenset[str]:
        """Names of the servers without which the ballot does not go on."""
        if self.absent:
            return self.absent
        return self.servers - (self.promises.keys() if self.value is None else self.accepted)


class Founding:
    """One server's part in the founding.

    `record` is what it has written last; None: it is damaged. `persist` returns once the record is
    on disk, or raises OSError. `send` takes the name of a server and bytes for its `receive`, which
    may be lost. `new_group` returns an id that no group has had.
    """

    def __init__(
        self,
        me: str,
        expected: int,
        record: Record | None,
        persist: Callable[[Record], None],
        send: Callable[[str, bytes], None],
        new_group: Callable[[], str],
    ) -> None:
        assert expected > 0
        self.is_damaged = record is None
        self._me = me
        self.expected = expected
        """Number of servers without which this one founds nothing; it may change."""
        self._record = record or Record()
        self._persist = persist
        self._send_bytes = send
        self._new_group = new_group
        self._proposal: _Proposal | None = None
        self._number = 0  # highest one that refused a ballot of this server
        self._others = set[str]()  # groups besides the one that this server keeps to

    @property
    def founded(self) -> Founded | None:
        """The meta group of the cluster, which this server founds or joins; None: not known yet."""
        return self._record.founded

    @property
    def is_founder(self) -> bool:
        """Whether this server begins as a member of the group; if not, it joins the group.

        It does if it has voted for the group: all members have. One of that name without a vote has
        lost its disk, and with it what it may have promised as a member.
        """
        founded, vote = self.founded, self._record.vote
        has_voted = vote is not None and vote.value == founded
        return has_voted and founded is not None and self._me in founded.members

    @property
    def view(self) -> PeerView:
        """What the others must be told about this server, regularly and when it changes."""
        return PeerView(self.expected, self.founded)

    @property
    def waits_for(self) -> frozenset[str]:
        """Names of the servers for which this server's own proposal waits; empty: it has none."""
        return self._proposal.waits_for if self._proposal is not None else frozenset()

    def tick(self, visible: Mapping[str, PeerView]) -> None:
        """Propose if that is this server's turn; send again what was not answered.

        `visible` are the other servers by name, as they described themselves last.
        """
        knowing = [view.founded for view in visible.values() if view.founded is not None]
        for each in sorted(knowing, key=lambda each: each.group):
            self._learn(each)
        servers = frozenset(visible) | {self._me}
        expected = max([self.expected, *(view.expected for view in visible.values())])
        is_waiting = len(servers) < expected or min(servers) != self._me
        if self.founded is not None or knowing or self.is_damaged or is_waiting:
            self._proposal = None
        elif self._proposal is None or self._proposal.servers != servers:
            self._propose(servers)
        else:
            self._ask(self._proposal)
            self._go_on(self._proposal)

    def receive(self, sender: str, data: bytes) -> None:
        """Take a message; one that is not understood is logged."""
        try:
            message = decode(data)
        except MalformedFounding as error:
            _logger.warning(
                "JetStream: a message of %s on the meta group is ignored: %s", sender, error
            )
            return
        match message:
            case Prepare():
                self._prepare(sender, message.ballot)
            case Accept():
                self._accept(sender, message.vote)
            case Promise() | Accepted():
                self._count(sender, message)
            case Refused():
                self._step_back(message)
            case Chosen():
                self._learn(message.value)

    def supersede(self, value: Founded) -> bool:
        """Keep to the rescue of this server's group from now on; return whether that is on disk."""
        self._proposal = None
        record = replace(self._record, founded=value)
        if self.is_damaged:
            self._record = record  # in memory: the file is left to the operator
            return True
        return self._save(record)

    # ---- as a proposer

    def _propose(self, servers: frozenset[str]) -> None:
        self._proposal = None
        number = max(self._number, self._record.promised.number) + 1
        ballot = Ballot(number, self._me)
        # The promise keeps this server from using the ballot again after a restart.
        if self._save(replace(self._record, promised=ballot)):
            self._proposal = _Proposal(ballot, servers, {self._me: self._record.vote})
            self._ask(self._proposal)
            self._go_on(self._proposal)

    def _ask(self, proposal: _Proposal) -> None:
        """Send the ballot to those that have not answered."""
        if proposal.absent:
            return
        message: Message = Prepare(proposal.ballot)
        if proposal.value is not None:
            message = Accept(Vote(proposal.ballot, proposal.value))
        for name in sorted(proposal.waits_for):
            self._send(name, message)

    def _count(self, sender: str, answer: Promise | Accepted) -> None:
        proposal = self._proposal
        if proposal is None or proposal.ballot != answer.ballot or sender not in proposal.servers:
            return
        if isinstance(answer, Accepted):
            proposal.accepted.add(sender)
        elif proposal.value is None:
            proposal.promises[sender] = answer.vote
        self._go_on(proposal)

    def _go_on(self, proposal: _Proposal) -> None:
        """Begin the next phase if all have answered; if the disk fails, the next tick tries it."""
        if proposal.value is None and not proposal.waits_for:
            value = self._value(proposal)
            vote = Vote(proposal.ballot, value) if value is not None else None
            if vote is None or not self._save(replace(self._record, vote=vote)):
                return
            proposal.value = value
            proposal.accepted.add(self._me)
            self._ask(proposal)
        if proposal.value is not None and not proposal.waits_for:
            self._learn(proposal.value)
            if self.founded is not None:
                for name in sorted(proposal.servers - {self._me}):
                    self._send(name, Chosen(self.founded))

    def _value(self, proposal: _Proposal) -> Founded | None:
        """Return what the ballot is to choose; None: members of earlier values are absent."""
        votes = [vote for vote in proposal.promises.values() if vote is not None]
        if not votes:
            return Founded(self._new_group(), tuple(sorted(proposal.servers)))
        members = frozenset(name for vote in votes for name in vote.value.members)
        proposal.absent = members - proposal.servers
        if proposal.absent:
            _logger.warning(
                "JetStream: the meta group waits for %s, which had begun to found it",
                ", ".join(sorted(proposal.absent)),
            )
            return None
        return max(votes, key=lambda vote: vote.ballot).value

    def _step_back(self, refused: Refused) -> None:
        self._number = max(self._number, refused.promised.number)
        if self._proposal is not None and self._proposal.ballot == refused.ballot:
            self._proposal = None  # the next tick has a higher one

    # ---- as an acceptor

    def _prepare(self, sender: str, ballot: Ballot) -> None:
        record = replace(self._record, promised=ballot)
        if self._may_answer(sender, ballot) and self._give_way(record):
            self._send(sender, Promise(ballot, record.vote))

    def _accept(self, sender: str, vote: Vote) -> None:
        record = replace(self._record, promised=vote.ballot, vote=vote)
        if self._may_answer(sender, vote.ballot) and self._give_way(record):
            self._send(sender, Accepted(vote.ballot))

    def _may_answer(self, sender: str, ballot: Ballot) -> bool:
        """Return whether to agree to the ballot; if not, tell the sender why."""
        if self.founded is not None:
            self._send(sender, Chosen(self.founded))
        elif ballot < self._record.promised:
            self._send(sender, Refused(ballot, self._record.promised))
        else:
            return not self.is_damaged
        return False

    def _give_way(self, record: Record) -> bool:
        """Save what another server's ballot asks for, and end the own one."""
        self._proposal = None
        return record == self._record or self._save(record)

    # ---- as a learner

    def _learn(self, value: Founded) -> None:
        known = self.founded
        if known is None:
            record = replace(self._record, founded=value)
            if self.is_damaged:
                self._record = record  # in memory: the file is left to the operator
            elif not self._save(record):
                return
            self._proposal = None
            _logger.info("JetStream: meta group %s of %s", value.group, ", ".join(value.members))
        elif known.group in value.supersedes:
            self.supersede(value)
        elif known.group != value.group and value.group not in (*self._others, *known.supersedes):
            self._others.add(value.group)
            _logger.error(
                "JetStream: the cluster has two meta groups, %s of %s and %s of %s;"
                " remove the JetStream directories of all servers of one of them",
                *(known.group, ", ".join(known.members)),
                *(value.group, ", ".join(value.members)),
            )

    def _save(self, record: Record) -> bool:
        """Return whether the record is on disk; if not, it does not count."""
        try:
            self._persist(record)
        except OSError as error:
            _logger.warning("JetStream: the founding of the meta group waits: %s", error)
            return False
        self._record = record
        return True

    def _send(self, name: str, message: Message) -> None:
        self._send_bytes(name, encode(message))
