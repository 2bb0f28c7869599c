"""One member of a group: the face of the state machine.

    node.step(message)   a message has come             node.propose(data)      leader: append
    node.tick()          time has passed                node.read(token)        linearizable read
    node.take_effects()  what is to be done now         node.persisted(number)  a sync has returned

The node has no clock, files, network or random source. All calls come from one thread. It raises on
what its own driver does wrong, and ignores messages that make no sense (any more).

    FOLLOWER ── silence ──► PRE_CANDIDATE ── would win ──► CANDIDATE ── majority ──► LEADER
        ▲──── a leader, a newer term, or a majority of refusals ────┘                   │
        └──────────────────── a newer term, no majority in reach, or removed ───────────┘
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from natsd.raft.candidacy import Candidacy, Outcome
from natsd.raft.effects import Effects, Read
from natsd.raft.entry import NOBODY, Entry, HardState, Health, Membership, Snapshot
from natsd.raft.errors import NotLeaderError
from natsd.raft.following import Following
from natsd.raft.leadership import Leadership
from natsd.raft.log import NORMAL, Log
from natsd.raft.member import Member, Role
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteReply,
    Quiesce,
    ReadReply,
    ReadRequest,
    RepairRequest,
    RepairTarget,
    TimeoutNow,
    Vote,
    VoteReply,
    Written,
)
from natsd.raft.options import Options
from natsd.raft.progress import Progress
from natsd.raft.quorum import majority
from natsd.raft.reads import OwnReads, ReadBatch
from natsd.raft.repair import NONCE_BITS, Repair
from natsd.raft.voting import answer_pre_vote, answer_vote

Some = TypeVar("Some")
FROM_LEADER = (Append, Heartbeat, InstallSnapshot, Quiesce)


class Node:
    """A member of a RAFT group."""

    __slots__ = (
        "_campaign_at_ticks",
        "_candidacy",
        "_elapsed_ticks",
        "_following",
        "_handlers",
        "_leadership",
        "_me",
        "_number",
        "_own_reads",
        "_persisted_number",
        "_quiescent",
        "_repair",
        "_saved_state",
        "_saved_writes",
        "_synced_state",
        "is_observer",
    )

    def __init__(
        self,
        member_id: int,
        hard_state: HardState,
        snapshot: Snapshot,
        entries: Sequence[Entry],
        options: Options,
        draw: Callable[[int], int],
        applied: int = 0,
    ) -> None:
        """Start from what the storage has recovered.

        The first members of a group start from `first_snapshot`, later ones from NOTHING. A member
        with damage starts with the entries before it (with NOTHING, if it is the snapshot that is
        damaged), and says so in `hard_state.health`. `applied` is the
        index up to which the application's own storage is already. `draw(n)` returns a random
        number below n.
        """
        self._me = me = Member(
            member_id, Log(snapshot, entries, applied), hard_state, options, draw
        )
        self.is_observer = False
        """An observer never begins an election; otherwise it does what other members do."""
        self._saved_state = self._synced_state = (
            hard_state if hard_state.health is Health.SOUND else HardState(0, NOBODY)
        )
        self._number = self._persisted_number = 0
        self._saved_writes: list[tuple[int, HardState]] = []
        self._leadership: Leadership | None = None
        self._candidacy: Candidacy | None = None
        self._following = Following(me)
        self._repair = Repair(me)
        self._own_reads = OwnReads(draw(1 << NONCE_BITS))
        self._quiescent = False
        self._elapsed_ticks = 0
        self._campaign_at_ticks = 0
        self._wait_for_silence()
        self._handlers: dict[type, Callable[..., None]] = {
            PreVote: self._on_pre_vote,
            PreVoteReply: self._on_pre_vote_reply,
            Vote: self._on_vote,
            VoteReply: self._on_vote_reply,
            TimeoutNow: self._on_timeout_now,
            Append: self._following.on_append,
            InstallSnapshot: self._following.on_snapshot,
            Heartbeat: self._following.on_heartbeat,
            Quiesce: self._on_quiesce,
            AppendReply: self._as_leader(Leadership.on_append_reply),
            Written: self._on_written,
            HeartbeatReply: self._as_leader(Leadership.on_heartbeat_reply),
            ReadRequest: self._as_leader(Leadership.on_read_request),
            RepairRequest: self._as_leader(Leadership.on_repair_request),
            ReadReply: self._on_read_reply,
            RepairTarget: self._on_repair_target,
        }

    # What is known

    @property
    def id(self) -> int:
        """Return this member's id."""
        return self._me.id

    @property
    def term(self) -> int:
        """Return the current term."""
        return self._me.term

    @property
    def role(self) -> Role:
        """Return what this member is at the moment."""
        return self._me.role

    @property
    def is_leader(self) -> bool:
        """Tell whether this member leads its group."""
        return self._leadership is not None

    @property
    def leader(self) -> int:
        """Return the member that leads as far as this one knows; NOBODY: it knows of none."""
        return self._me.leader

    @property
    def followers(self) -> list[Progress]:
        """Return how far the other members are; only the leader knows."""
        return [] if self._leadership is None else self._leadership.others

    @property
    def log(self) -> Log:
        """Return the log, for reading."""
        return self._me.log

    @property
    def written_index(self) -> int:
        """Return up to where a majority has written the log; only the leader knows."""
        return 0 if self._leadership is None else self._leadership.written_index

    @property
    def membership(self) -> Membership:
        """Return the members; the newest change may not be committed yet."""
        return self._me.log.membership.current

    @property
    def hard_state(self) -> HardState:
        """Return term, vote and health."""
        return self._me.hard_state

    @property
    def is_quiescent(self) -> bool:
        """Tell whether the member waits without ticking."""
        return self._quiescent

    @property
    def damaged(self) -> dict[int, tuple[Health, int]]:
        """Return the members that are known to be damaged, with the last index that each holds."""
        me = self._me
        own = {} if me.health is Health.SOUND else {me.id: (me.health, me.log.last_index)}
        return me.damaged | own

    @property
    def is_stopped_by_damage(self) -> bool:
        """Tell whether so many voters are known to be damaged that the rest is no majority."""
        voters = self.membership.voters
        sound = len(voters) - len(voters & self.damaged.keys())
        return bool(voters) and self.leader == NOBODY and sound < majority(len(voters))

    @property
    def has_effects(self) -> bool:
        """Tell whether `take_effects` may have something."""
        return self._me.has_work

    # What the driver says

    def step(self, message: Message) -> None:
        """Take a message from another member."""
        me = self._me
        assert message.receiver == me.id
        me.has_work = True
        if self._quiescent and not self._is_leftover(message):
            self.wake()
        if message.term > me.term:
            if not self._follows_newer_term(message):
                return
        elif message.term < me.term:
            self._answer_older_term(message)
            return
        elif isinstance(message, FROM_LEADER) and me.leader != message.sender:
            assert self._leadership is None, "one leader a term"
            self._follow(message.sender)
        self._handlers[type(message)](message)
        if isinstance(message, FROM_LEADER):
            me.contact_ticks = self._elapsed_ticks = 0
            me.has_refused = False
            self._repair.heard_leader()
        self._resign_if_due()

    def tick(self) -> None:
        """Take note that a tick has passed."""
        if self._quiescent:
            return
        me = self._me
        if self._leadership is not None:
            self._leadership.tick()
            me.has_work = me.has_work or bool(me.messages)
            self._resign_if_due()
            return
        me.contact_ticks += 1
        self._elapsed_ticks += 1
        if self._elapsed_ticks >= self._campaign_at_ticks:
            self._wait_for_silence()
            if me.may_campaign and not self.is_observer:
                self._ask_for_votes()

    def propose(self, data: bytes) -> int:
        """Append a command; return its index. It is committed if that index is, in this term."""
        leadership, me = self._leadership, self._me
        if leadership is None:
            raise NotLeaderError(me.leader)
        leadership.check_proposal(len(data))
        me.has_work = True
        if self._quiescent:
            self.wake()
        return me.log.append(me.term, NORMAL, data)

    def propose_all(self, datas: Sequence[bytes]) -> int:
        """Append some commands, all or none; return the index of the last one."""
        leadership = self._leadership
        if leadership is None:
            raise NotLeaderError(self._me.leader)
        leadership.check_proposal(sum(map(len, datas)))
        self._begin_work()
        return self._me.log.append_all(self._me.term, datas)

    def propose_membership(self, membership: Membership) -> int:
        """Append a membership that differs from the current one in one member; return its index."""
        if self._leadership is None:
            raise NotLeaderError(self._me.leader)
        index = self._leadership.change_membership(membership)
        self._begin_work()
        self._resign_if_due()
        return index

    def transfer_leadership(self, target: int) -> None:
        """Hand over to a voter; until that is done or given up, proposals are dropped."""
        if self._leadership is None:
            raise NotLeaderError(self._me.leader)
        self._leadership.transfer(target)
        self._begin_work()

    def read(self, token: int) -> None:
        """Ask for the index that a linearizable read must wait for; `Effects.reads` answers."""
        self._own_reads.fresh.append(token)
        self._begin_work()

    def compact(self, snapshot: Snapshot) -> None:
        """Take note of the application's snapshot, which the driver has persisted."""
        log = self._me.log
        needed_from = log.last_index + 1
        if self._leadership is not None:
            needed_from = min((p.held + 1 for p in self._leadership.others), default=needed_from)
        log.compact(snapshot, needed_from, self._me.options.trailing_bytes_max)

    def persisted(self, number: int) -> None:
        """Take note that the effects up to this number are synced."""
        assert self._persisted_number <= number <= self._number
        me, log = self._me, self._me.log
        self._persisted_number = number
        log.write_finished(number)
        while self._saved_writes and self._saved_writes[0][0] <= number:
            self._synced_state = self._saved_writes.pop(0)[1]
        if self._leadership is not None:
            commit = log.commit
            self._leadership.persisted()
            self._resign_if_due()
            me.has_work = me.has_work or log.commit > commit
        elif me.role is Role.CANDIDATE and self._synced_state == me.hard_state:
            self._record(me.id, granted=True)
            me.has_work = True
        elif self._repair.finish(self._following.verified):
            self._following.acknowledge()
            me.has_work = True

    def wrote(self, number: int) -> None:
        """Take note that the effects with this number are written, and not synced yet."""
        me = self._me
        index = me.log.write_up_to(number)
        if self._leadership is not None:
            self._leadership.wrote(me.id, index)
        elif me.leader != NOBODY and me.health is Health.SOUND:
            index = min(index, self._following.verified)
            me.messages.append(Written(me.id, me.leader, me.term, index))
        me.has_work = True

    def _on_written(self, message: Written) -> None:
        if self._leadership is not None:
            self._leadership.wrote(message.sender, message.index)

    def quiesce(self, unreachable: frozenset[int] = frozenset()) -> bool:
        """Stop ticking, with all followers, if the group is idle; return whether it is done.

        `unreachable` members are not waited for; the driver wakes the leader when they come back.
        """
        if self._leadership is None or not self._leadership.quiesce(unreachable):
            return False
        self._quiescent = self._me.has_work = True
        return True

    def wake(self) -> None:
        """Go on ticking: the leader's server is gone, or a member's is there again."""
        if self._quiescent:
            self._quiescent = False
            self._following.quiescent_round = -1
            if self._leadership is not None:
                self._leadership.wake()

    def take_effects(self) -> Effects:
        """Return what is to be done because of everything since the last call."""
        me, log = self._me, self._me.log
        self._take_reads()
        if self._leadership is not None:
            self._leadership.fill()
        self._following.send_acknowledgement()
        hard_state = self._take_hard_state()
        snapshot = self._following.take_restored()
        entries = log.take_unsaved()
        may_wait = (
            self._leadership is None
            and me.health is Health.SOUND
            and not (hard_state or snapshot)
            and log.commit >= log.last_index
        )
        if hard_state or entries or snapshot:
            self._number += 1
            log.write_begun(self._number)
            if hard_state:
                self._saved_writes.append((self._number, hard_state))
        elif me.messages_after_sync and log.is_synced:  # nothing to wait for
            me.messages += me.messages_after_sync
            me.messages_after_sync.clear()
        me.has_work = False
        return Effects(
            self._number,
            hard_state,
            entries,
            snapshot,
            take_all(me.messages),
            take_all(me.messages_after_sync),
            log.take_committed(),
            take_all(me.reads),
            take_all(me.dropped_reads),
            may_wait,
        )

    @property
    def written(self) -> tuple[HardState, list[Entry]]:
        """Return the state and the live entries that the driver was given to write."""
        return self._saved_state, self._me.log.written

    def campaign(self) -> None:
        """Ask for votes now, if this member may lead and knows of no leader."""
        me = self._me
        if me.leader == NOBODY and me.may_campaign and not self.is_observer:
            self._wait_for_silence()
            self._ask_for_votes()

    def expect_leader(self) -> None:
        """Wait for a leader a shorter time than otherwise: one that there is will be heard soon."""
        options = self._me.options
        if not options.lease_reads:
            self._campaign_at_ticks -= options.election_ticks - options.heartbeat_ticks

    def leader_is_gone(self) -> None:
        """Take note that the leader's server is out of reach: another one may be elected soon."""
        me = self._me
        if self._leadership is None and me.leader != NOBODY:
            self.wake()
            me.leader = NOBODY
            me.contact_ticks = max(me.contact_ticks, me.options.election_ticks)
            self._campaign_soon()

    def _campaign_soon(self) -> None:
        soon = self._campaign_at_ticks - 1 - self._me.draw(self._me.options.heartbeat_ticks)
        self._elapsed_ticks = max(self._elapsed_ticks, soon)

    # Terms

    def _follows_newer_term(self, message: Message) -> bool:
        """Enter a newer term unless the message is only a question; return whether to go on."""
        me = self._me
        if isinstance(message, PreVote) or (isinstance(message, PreVoteReply) and message.granted):
            return True
        if isinstance(message, Vote) and me.hears_leader and not message.is_transfer:
            return False
        self._enter(message.term)
        if isinstance(message, FROM_LEADER):
            self._follow(message.sender)
        return True

    def _answer_older_term(self, message: Message) -> None:
        """Tell a leader or a candidate of an older term which term it is."""
        me = self._me
        if isinstance(message, PreVote):
            self._on_pre_vote(message)
        elif isinstance(message, FROM_LEADER):
            me.messages.append(
                AppendReply(me.id, message.sender, me.term, False, 0, 0, 0, me.health)
            )

    def _enter(self, term: int) -> None:
        """Begin a newer term, as a follower of nobody."""
        assert term > self._me.term
        self._become_follower()
        self._me.term, self._me.vote = term, NOBODY
        self._following.new_term()
        self._wait_for_silence()

    def _become_follower(self) -> None:
        me = self._me
        if self._leadership is not None:
            me.dropped_reads += self._leadership.drop_reads()
        me.dropped_reads += self._own_reads.drop()
        self._leadership = self._candidacy = None
        me.role, me.leader = Role.FOLLOWER, NOBODY
        self.wake()

    def _follow(self, leader: int) -> None:
        self._become_follower()
        self._me.leader = leader

    def _resign_if_due(self) -> None:
        if self._leadership is not None and self._leadership.resigned:
            self._become_follower()
            self._wait_for_silence()
            self._me.has_work = True

    def _wait_for_silence(self) -> None:
        """Begin to wait for a leader, for a random time."""
        ticks = self._me.options.election_ticks
        self._elapsed_ticks = 0
        self._campaign_at_ticks = ticks + self._me.draw(ticks)

    # Elections

    def _ask_for_votes(self) -> None:
        self._become_follower()
        self._candidacy = Candidacy(self._me)
        self._candidacy.ask()
        self._begin_work()
        self._record(self._me.id, granted=True)

    def _campaign(self, is_transfer: bool) -> None:
        self._become_follower()
        self._candidacy = Candidacy(self._me)
        self._candidacy.campaign(is_transfer)
        self._following.new_term()
        self._wait_for_silence()
        self._begin_work()

    def _record(self, voter: int, granted: bool) -> None:
        """Count an answer, and go where the election leads."""
        assert self._candidacy is not None
        outcome = self._candidacy.record(voter, granted)
        if outcome is Outcome.LOST:
            self._become_follower()
        elif outcome is Outcome.WON:
            if self._me.role is Role.PRE_CANDIDATE:
                self._campaign(is_transfer=False)
            else:
                self._lead()

    def _lead(self) -> None:
        me = self._me
        self._candidacy = None
        me.role, me.leader = Role.LEADER, me.id
        me.damaged.clear()
        self._leadership = Leadership(me)

    def _on_pre_vote_reply(self, reply: PreVoteReply) -> None:
        me = self._me
        me.note_health(reply.sender, reply.health, reply.last_index)
        if me.role is Role.PRE_CANDIDATE and (reply.term == me.term + 1 or not reply.granted):
            self._record(reply.sender, reply.granted)

    def _on_pre_vote(self, asked: PreVote) -> None:
        """Answer; a candidate that lacks entries of this member will vote for it."""
        me = self._me
        answer_pre_vote(me, asked)
        is_covered = me.log.is_covered_by(asked.last_index, asked.last_term)
        if not (is_covered or me.hears_leader or me.role is Role.CANDIDATE):
            self._campaign_soon()

    def _on_vote(self, asked: Vote) -> None:
        if answer_vote(self._me, asked):
            self._wait_for_silence()

    def _on_vote_reply(self, reply: VoteReply) -> None:
        if self._me.role is Role.CANDIDATE:
            self._record(reply.sender, reply.granted)

    def _on_timeout_now(self, told: TimeoutNow) -> None:
        if self._me.may_campaign and not self.is_observer:
            self._campaign(is_transfer=True)

    def _take_hard_state(self) -> HardState | None:
        """Return the hard state if it has changed since it was last taken."""
        me, saved = self._me, self._saved_state
        if me.term == saved.term and me.vote == saved.vote and me.health is saved.health:
            return None
        self._saved_state = me.hard_state
        return self._saved_state

    # Presence, reads, repair

    def _is_leftover(self, message: Message) -> bool:
        """Tell whether a message to a quiescent member is older than its quiescence."""
        if isinstance(message, HeartbeatReply):
            return message.term == self._me.term and message.health is Health.SOUND
        return (
            isinstance(message, Heartbeat)
            and message.term == self._me.term
            and message.round <= self._following.quiescent_round
            and message.commit <= self._me.log.commit
        ) or isinstance(message, Quiesce)

    def _on_quiesce(self, told: Quiesce) -> None:
        self._following.on_quiesce(told)
        self._quiescent = self._following.quiescent_round >= 0

    def _take_reads(self) -> None:
        """Pass this member's fresh reads to the leader."""
        reads, me = self._own_reads, self._me
        if not reads.fresh:
            return
        if self._leadership is not None:
            self._leadership.reads.fresh.append(ReadBatch(me.id, reads.take_batch()))
        elif me.leader != NOBODY:
            batch = reads.wait_for_leader()
            me.messages.append(ReadRequest(me.id, me.leader, me.term, batch))
        else:
            me.dropped_reads += reads.take_batch()

    def _on_read_reply(self, reply: ReadReply) -> None:
        answered = self._own_reads.answered(reply.batch)
        self._me.reads += [Read(token, reply.index) for token in answered]

    def _on_repair_target(self, told: RepairTarget) -> None:
        self._repair.on_target(told)
        if self._repair.finish(self._following.verified):
            self._following.acknowledge()

    def _as_leader(self, handle: Callable[..., None]) -> Callable[..., None]:
        def as_leader(message: Message) -> None:
            if self._leadership is not None:
                handle(self._leadership, message)

        return as_leader

    def _begin_work(self) -> None:
        self._me.has_work = True
        self.wake()


def take_all(some: list[Some]) -> tuple[Some, ...]:
    """Empty a list; return what was in it."""
    if not some:
        return ()
    taken = tuple(some)
    some.clear()
    return taken
