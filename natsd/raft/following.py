"""What a follower does with the messages of its leader."""

from natsd.raft.entry import NOBODY, Health, Snapshot
from natsd.raft.member import Member
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Quiesce,
)


class Following:
    """The follower's side of replication."""

    __slots__ = ("_acknowledge", "_me", "quiescent_round", "restored", "verified")

    def __init__(self, me: Member) -> None:
        self._me = me
        self._acknowledge = False
        self.verified = 0
        """The log agrees with that of this term's leader up to here."""
        self.restored = False
        """A snapshot was installed that the driver has not been given yet."""
        self.quiescent_round = -1
        """Newest round of heartbeats when the group fell quiescent; -1: the group is awake."""

    def new_term(self) -> None:
        """Forget what concerns the leader of an earlier term."""
        self._acknowledge = False
        self.verified = 0
        self.quiescent_round = -1

    def on_append(self, sent: Append) -> None:
        """Append the leader's entries if the log agrees with the leader's before them."""
        log = self._me.log
        prev_index, entries = sent.prev_index, sent.entries
        if prev_index < log.commit:  # the committed prefix agrees with any leader's log
            entries = entries[log.commit - prev_index :]
            prev_index = log.commit
        elif log.term_at(prev_index) != sent.prev_term:
            self._refuse(sent)
            return
        elif prev_index == log.last_index and self._is_full:
            return  # as if it were lost: it is sent again
        log.merge(prev_index, entries)
        self._agrees_up_to(prev_index + len(entries))
        log.commit_to(min(sent.commit, self.verified))

    def on_snapshot(self, sent: InstallSnapshot) -> None:
        """Replace the log by the leader's snapshot, unless the log holds as much already."""
        log, snapshot = self._me.log, sent.snapshot
        if snapshot.index > log.commit:
            if log.term_at(snapshot.index) == snapshot.term:
                log.commit_to(snapshot.index)
            else:
                log.restore(snapshot)
                self.restored = True
        self._agrees_up_to(log.commit)

    def on_heartbeat(self, sent: Heartbeat) -> None:
        """Take the commit index, and answer."""
        me = self._me
        me.log.commit_to(min(sent.commit, self._known_to_leader))
        if sent.round:
            me.messages.append(HeartbeatReply(me.id, sent.sender, me.term, sent.round, me.health))

    def on_quiesce(self, sent: Quiesce) -> None:
        """Stop ticking if this member holds all that the leader does; otherwise wake it."""
        me = self._me
        me.log.commit_to(min(sent.commit, self._known_to_leader))
        if me.log.last_index == sent.commit and me.health is Health.SOUND:
            self.quiescent_round = sent.round
        else:
            self.acknowledge()

    def take_restored(self) -> Snapshot | None:
        """Return the snapshot that was installed since the last call."""
        if not self.restored:
            return None
        self.restored = False
        return self._me.log.snapshot

    def acknowledge(self) -> None:
        """Acknowledge again what the leader knows already, because the health has changed."""
        self._acknowledge = True

    def send_acknowledgement(self) -> None:
        """Acknowledge with one message what all Appends since the last one brought."""
        me = self._me
        due, self._acknowledge = self._acknowledge, False
        if due and me.leader != NOBODY:
            me.messages_after_sync.append(
                AppendReply(me.id, me.leader, me.term, True, self.verified, 0, 0, me.health)
            )

    @property
    def _known_to_leader(self) -> int:
        """Return how much of the log may agree with what the leader believes of this member.

        A damaged member may hold other entries now than those which it acknowledged.
        """
        me = self._me
        return me.log.last_index if me.health is Health.SOUND else self.verified

    @property
    def _is_full(self) -> bool:
        """Tell whether the application lags so far that the log takes nothing more.

        A leader's log without what is committed has at most `log_bytes_max`, so some of this one's
        is committed, and will be compacted when the application has applied it.
        """
        return self._me.log.payload_bytes >= 2 * self._me.options.log_bytes_max

    def _agrees_up_to(self, index: int) -> None:
        self.verified = max(self.verified, index)
        self._acknowledge = True

    def _refuse(self, sent: Append) -> None:
        """Say where the logs may agree: the leader skips whole terms that differ."""
        me, log = self._me, self._me.log
        hint = log.last_with_term_up_to(min(sent.prev_index, log.last_index), sent.prev_term)
        hint = max(hint, log.commit)
        me.messages.append(
            AppendReply(
                me.id,
                sent.sender,
                me.term,
                False,
                sent.prev_index,
                hint,
                log.term_at(hint) or 0,
                me.health,
            )
        )
