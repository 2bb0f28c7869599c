"""What a leader does: replication, commit, presence, reads, handing over, changes of members.

It lives from the election until the member steps down. `resigned` says that it must: it cannot
reach a majority, or it was removed and the removal is committed.

Sent at the end of a turn (`fill`), so that all that was proposed in a turn travels together.
"""

from natsd.raft.effects import Read
from natsd.raft.entry import NOBODY, EntryKind, Health, Membership
from natsd.raft.errors import MembershipError, ProposalDroppedError, TransferError
from natsd.raft.member import Member
from natsd.raft.membership import encode_membership
from natsd.raft.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Quiesce,
    ReadReply,
    ReadRequest,
    RepairRequest,
    RepairTarget,
    TimeoutNow,
)
from natsd.raft.progress import Progress, Sending, Window
from natsd.raft.quorum import majority, majority_index
from natsd.raft.reads import ReadBatch, ReadRounds
from natsd.raft.replication import send_next


class Leadership:
    """The leadership of this member in one term."""

    __slots__ = (
        "_elapsed_ticks",
        "_first_index",
        "_heartbeat_elapsed_ticks",
        "_may_hold_lease",
        "_me",
        "_quorum_elapsed_ticks",
        "_race_index",
        "_transfer_elapsed_ticks",
        "others",
        "progress",
        "reads",
        "resigned",
        "transfer_target",
        "voters",
    )

    def __init__(self, me: Member) -> None:
        self._me = me
        self.resigned = False
        self.progress: dict[int, Progress] = {}
        self.others: list[Progress] = []
        """The progress of all members but this one."""
        self.voters: list[Progress] = []
        """The progress of the voters."""
        self.reads = ReadRounds()
        self.transfer_target = NOBODY
        self._may_hold_lease = me.options.lease_reads
        self._elapsed_ticks = 0
        self._heartbeat_elapsed_ticks = 0
        self._quorum_elapsed_ticks = 0
        self._transfer_elapsed_ticks = 0
        self._race_index = 0
        self._follow_membership()
        self._first_index = me.log.append(me.term, EntryKind.NORMAL, b"")

    # Proposals

    def check_proposal(self, size_bytes: int) -> None:
        """Refuse a proposal that the log has no room for, or while the leadership changes."""
        if self.transfer_target != NOBODY:
            raise ProposalDroppedError("the leadership is being transferred")
        if self._me.log.payload_bytes + size_bytes > self._me.options.log_bytes_max:
            raise ProposalDroppedError("the log is full until it is compacted")

    def change_membership(self, new: Membership) -> int:
        """Append a membership that differs in one member; return its index."""
        log = self._me.log
        self.check_change(log.membership.current, new)
        self.check_proposal(0)
        index = log.append(self._me.term, EntryKind.MEMBERSHIP, encode_membership(new))
        log.membership.appended(log.slice(index, index, 0)[0])
        self._follow_membership()
        self.advance_commit()
        return index

    def check_change(self, old: Membership, new: Membership) -> None:
        """Refuse a change of more than one member, a second change, or a voter that lacks much."""
        log = self._me.log
        if log.commit < max(self._first_index, log.membership.changed_at):
            raise MembershipError("an earlier change, or the leader's term, is not committed yet")
        if not new.voters or new.voters & new.learners:
            raise MembershipError("a group has voters, and a learner is not one of them")
        changed = (old.voters ^ new.voters) | (old.learners ^ new.learners)
        if len(changed) != 1:
            raise MembershipError("a change concerns one member")
        sound = [m for m in new.voters if self._is_sound(m)]
        if len(sound) < majority(len(new.voters)):
            raise MembershipError("too few of the voters that remain are known to be sound")
        for member in new.voters - old.voters:
            progress = self.progress.get(member)
            lag_max = self._me.options.promotion_lag_max
            if progress is None or member not in old.learners:
                raise MembershipError("a new member begins as a learner")
            if progress.health is not Health.SOUND or progress.match < log.last_index - lag_max:
                raise MembershipError(f"{member} has not caught up")

    def _is_sound(self, member: int) -> bool:
        """Tell whether a member is sound as far as it has said since this leadership began."""
        progress = self.progress.get(member)
        return progress is not None and progress.health is Health.SOUND and progress.match > 0

    def _follow_membership(self) -> None:
        me = self._me
        membership = me.log.membership.current
        members = membership.voters | membership.learners | {me.id}
        for member in self.progress.keys() - members:
            del self.progress[member]
        for member in sorted(members - self.progress.keys()):
            window = Window(me.options.in_flight_max, me.options.in_flight_bytes_max)
            self.progress[member] = Progress(member, me.log.last_index + 1, window)
        self.progress[me.id].match = me.log.stable
        self.others = [each for each in self.progress.values() if each.member != me.id]
        self.voters = [
            each for member, each in self.progress.items() if member in membership.voters
        ]
        self._race()

    # Commit

    def persisted(self) -> None:
        """Count this member's own log as far as it is synced."""
        self.progress[self._me.id].match = self._me.log.stable
        self.advance_commit()

    def advance_commit(self) -> None:
        """Commit what a majority holds, if it ends in an entry of this term.

        An entry of an earlier term is committed by one of this term behind it, never by counting
        (§5.4.2: another leader could still replace it).
        """
        me, log = self._me, self._me.log
        index = majority_index([progress.match for progress in self.voters])
        if index > log.commit and log.term_at(index) == me.term:
            log.commit_to(index)
            if 0 < self._race_index <= index:
                self._defer_the_slow(index)
            if log.commit >= log.membership.changed_at and me.id not in self._voter_ids:
                self._hand_over_and_resign()

    def _race(self) -> None:
        """Send everything to all members at once, until the next new entry is committed."""
        self._race_index = self._me.log.last_index + 1
        for progress in self.others:
            progress.is_deferred = False

    def _defer_the_slow(self, index: int) -> None:
        """Send entries first to the voters that made the majority for this one.

        The other members get them, and that they are committed, with one message later. They need
        not sync them at once then (`Effects.may_wait`). Each tick is another race, so that a voter
        that has become slow or silent holds commits up no longer.
        Source: the thrifty replication of EPaxos (Moraru, Andersen, Kaminsky 2013).
        """
        self._race_index = 0
        voters = self._voter_ids
        for progress in self.others:
            progress.is_deferred = progress.match < index or progress.member not in voters

    @property
    def written_index(self) -> int:
        """Return up to where a majority has written the log, synced or not."""
        return majority_index([max(each.match, each.written) for each in self.voters])

    def wrote(self, member: int, index: int) -> None:
        """Take note of what a member has written."""
        progress = self.progress.get(member)
        if progress is not None and progress.health is Health.SOUND:
            progress.written = max(progress.written, index)

    @property
    def _voter_ids(self) -> frozenset[int]:
        return self._me.log.membership.current.voters

    def _hand_over_and_resign(self) -> None:
        self.resigned = True
        best = max(self.voters, key=lambda progress: progress.match)
        self._me.messages.append(TimeoutNow(self._me.id, best.member, self._me.term))

    # Answers

    def on_append_reply(self, reply: AppendReply) -> None:
        """Take note of what a follower holds, or of where its log may agree."""
        progress = self._heard(reply.sender)
        if progress is None:
            return
        self._note_health(progress, reply.health)
        if reply.accepted:
            progress.accepted(reply.index)
            if reply.health is Health.SOUND and reply.index > progress.match:
                progress.match = reply.index
                if reply.index > self._me.log.commit:
                    self.advance_commit()
            return
        if reply.health is not Health.SOUND:
            progress.held = 0  # an acknowledgement from before the damage may have come late
        if not progress.is_stale_refusal(reply.index):
            agreeing = self._me.log.last_with_term_up_to(reply.hint_index, reply.hint_term)
            progress.held = min(progress.held, agreeing)  # otherwise it has lost some, unnoticed
            progress.probe(min(reply.index, agreeing + 1))

    def on_heartbeat_reply(self, reply: HeartbeatReply) -> None:
        """Count the answer for reads and the lease, and send again what may be lost."""
        me = self._me
        progress = self._heard(reply.sender)
        if progress is None:
            return
        self._note_health(progress, reply.health)
        progress.is_paused = False
        if progress.sending is Sending.REPLICATE and progress.held < progress.next - 1:
            send_next(me, progress, is_probe=True)
        if reply.health is Health.SOUND and reply.round > progress.round:
            progress.round = reply.round
            self._confirm_rounds()

    def on_repair_request(self, request: RepairRequest) -> None:
        """Tell a damaged member up to where it must hold this leader's log."""
        progress = self._heard(request.sender)
        if progress is None:
            return
        if progress.repair_nonce != request.nonce:
            own_last = self._me.log.last_index
            progress.lost(min(request.last_index, own_last), request.nonce, own_last)
        self._me.messages.append(
            RepairTarget(
                self._me.id, request.sender, self._me.term, request.nonce, progress.repair_target
            )
        )

    def _heard(self, member: int) -> Progress | None:
        progress = self.progress.get(member)
        if progress is not None:
            progress.is_active = True
        return progress

    def _note_health(self, progress: Progress, health: Health) -> None:
        if progress.health is not health:
            progress.health = health
            self._me.note_health(progress.member, health, progress.held)

    # Time

    def tick(self) -> None:
        """Send heartbeats, look for a majority, and give up what takes too long."""
        options = self._me.options
        self._race()
        self._elapsed_ticks += 1
        self._heartbeat_elapsed_ticks += 1
        self._quorum_elapsed_ticks += 1
        if self._quorum_elapsed_ticks >= options.election_ticks:
            self._quorum_elapsed_ticks = 0
            self._check_quorum()
        if self.transfer_target != NOBODY:
            self._transfer_elapsed_ticks += 1
            if self._transfer_elapsed_ticks >= options.election_ticks:
                self.transfer_target = NOBODY
        if self._heartbeat_elapsed_ticks >= options.heartbeat_ticks:
            self._heartbeat_elapsed_ticks = 0
            self._send_heartbeats()
            self._give_up_snapshots()

    def _check_quorum(self) -> None:
        voters = self.voters
        active = [p for p in voters if p.is_active or p.member == self._me.id]
        if len(active) < majority(len(voters)):
            self.resigned = True
        for progress in voters:
            progress.is_active = False

    def _send_heartbeats(self) -> None:
        me = self._me
        number = self.reads.begin_round(self._elapsed_ticks)
        for progress in self.others:
            progress.commit_told = min(me.log.commit, progress.held)
            me.messages.append(
                Heartbeat(me.id, progress.member, me.term, progress.commit_told, number)
            )
        self._confirm_rounds()

    def _give_up_snapshots(self) -> None:
        for progress in self.others:
            if progress.sending is Sending.SNAPSHOT:
                progress.snapshot_ticks += self._me.options.heartbeat_ticks
                if progress.snapshot_ticks >= self._me.options.snapshot_ticks:
                    progress.probe(progress.held + 1)

    # Reads

    def on_read_request(self, request: ReadRequest) -> None:
        """Take a follower's reads."""
        self.reads.fresh.append(ReadBatch(request.sender, (request.batch,)))

    def _begin_reads(self) -> None:
        """Answer the fresh reads under the lease, or begin a round for them."""
        log, reads = self._me.log, self.reads
        if not reads.fresh or log.commit < self._first_index:
            return
        lease_ticks = self._me.options.lease_ticks
        if self._may_hold_lease and reads.holds_lease(self._elapsed_ticks, lease_ticks):
            self._answer_reads(log.commit, reads.fresh)
            reads.fresh = []
        else:
            self._send_heartbeats()
            reads.wait_for_round(log.commit)
            self._confirm_rounds()

    def _confirm_rounds(self) -> None:
        me_id, newest = self._me.id, self.reads.round
        rounds = [newest if p.member == me_id else p.round for p in self.voters]
        for index, freed in self.reads.confirm(majority_index(rounds)):
            self._answer_reads(index, freed)

    def _answer_reads(self, index: int, batches: list[ReadBatch]) -> None:
        me = self._me
        for member, tokens in batches:
            if member == me.id:
                me.reads += [Read(token, index) for token in tokens]
            else:
                me.messages.append(ReadReply(me.id, member, me.term, tokens[0], index))

    def drop_reads(self) -> list[int]:
        """Return the tokens of this member's own reads that wait."""
        own = [read for read in self.reads.drop() if read.member == self._me.id]
        return [token for read in own for token in read.tokens]

    # Handing over

    def transfer(self, target: int) -> None:
        """Hand over to a voter as soon as it holds the whole log."""
        progress = self.progress.get(target)
        if progress is None or target not in self._voter_ids or target == self._me.id:
            raise TransferError(f"{target} is not another voter")
        if progress.health is not Health.SOUND:
            raise TransferError(f"{target} is damaged")
        self.transfer_target = target
        self._transfer_elapsed_ticks = 0

    def _hand_over(self) -> None:
        """Tell the target to begin an election if it holds the whole log."""
        me = self._me
        progress = self.progress.get(self.transfer_target)
        if progress is not None and progress.match == me.log.last_index and not progress.is_paused:
            progress.is_paused = True  # once per heartbeat
            self._may_hold_lease = False
            me.messages.append(TimeoutNow(me.id, progress.member, me.term))

    # Quiescence

    def quiesce(self, unreachable: frozenset[int]) -> bool:
        """Tell all followers to stop ticking if they hold everything; return whether it is done."""
        me, log = self._me, self._me.log
        reached = [p for p in self.others if p.member not in unreachable]
        if (
            log.commit != log.last_index
            or log.stable != log.last_index
            or self.transfer_target != NOBODY
            or not self.reads.is_idle
            or any(p.match != log.last_index or p.health is not Health.SOUND for p in reached)
            or sum(p.member in self._voter_ids for p in [*reached, self.progress[me.id]])
            < majority(len(self._voter_ids))
        ):
            return False
        self.reads.end_lease()
        for progress in reached:
            me.messages.append(
                Quiesce(me.id, progress.member, me.term, log.commit, self.reads.round)
            )
        return True

    def wake(self) -> None:
        """Go on ticking: nobody was heard of in the meantime, and that is no sign of absence."""
        self._race()
        self._quorum_elapsed_ticks = 0
        self._heartbeat_elapsed_ticks = self._me.options.heartbeat_ticks
        for progress in self.progress.values():
            progress.is_active = True

    # End of a turn

    def fill(self) -> None:
        """Add what is due to the messages of this turn."""
        if self.transfer_target != NOBODY:
            self._hand_over()
        for progress in self.others:
            send_next(self._me, progress)
        self._begin_reads()
