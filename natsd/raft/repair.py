"""How a member whose storage has lost something becomes sound again.

A majority may have counted on what a damaged member lost. Therefore it does not vote, does not
campaign, and its acknowledgements do not count. It says so in each answer (`Health`), and persists
it, since a crash during the repair leaves a log without visible damage.

LOG_LOST: the log may be shorter than what the member acknowledged; term and vote are intact.

    damaged member                         leader of the current term
      RepairRequest(nonce, last index) ──►   target := its own last index, now
                                       ◄── RepairTarget(nonce, target)
                                       ◄── Append or InstallSnapshot, as to any follower
      has synced the leader's log up to the target
      health := SOUND, synced; from then on its answers say so, and it counts

Why this is safe. Let an entry e have become, or yet become, committed with the help of an
acknowledgement that the member sent before the damage, in term t; let T be the leader's term.
  t > T   The member knows a term of at least t, because its term is intact; it takes nothing of T.
  t = T   e was in this leader's log when the leader sent it, which is before the leader sees the
          request; a leader never shortens its log. So the target is not below e.
  t < T   The leader was elected by a majority, which shares a member with the one that commits e.
          If that is an undamaged one, it held e when it voted, because it takes no entries of t
          once it knows T. If it is the damaged one, it gave its vote before the damage, since it
          gives none afterwards, and so held e when it compared the logs. Hence the leader's log
          has e.
In all cases the member holds e again when it reaches the target. Until then nobody without e is
elected with its help. The nonce is drawn at the start of the process: a target that was meant for
an earlier start does not cover what the member has acknowledged since, and does not count.

VOTE_LOST: the member may have voted in a term that it does not know of, and the candidate may
count that vote at any time later. No repair under the same member id can be safe. The member takes
entries, asks for a target only to make the leader look at its log anew, and waits until it is
removed and comes back under another id, as a learner.

If a majority of the voters is damaged, nobody is elected and the group stops. Each member that
asked for votes knows who is damaged, and up to where each of them holds the log (`Node.damaged`).
"""

from natsd.raft.entry import Health
from natsd.raft.member import Member
from natsd.raft.messages import RepairRequest, RepairTarget

NONCE_BITS = 62


class Repair:
    """The repair of this member, if it is damaged."""

    __slots__ = ("_me", "_nonce", "_target", "_target_term")

    def __init__(self, me: Member) -> None:
        self._me = me
        self._nonce = 1 + me.draw(1 << NONCE_BITS)
        self._target = 0
        self._target_term = 0

    def heard_leader(self) -> None:
        """Ask the leader for the target, unless it is known."""
        me = self._me
        if me.health is not Health.SOUND and self._target_term != me.term:
            me.messages.append(
                RepairRequest(me.id, me.leader, me.term, self._nonce, me.log.last_index)
            )

    def on_target(self, told: RepairTarget) -> None:
        """Take the target from the leader of the current term."""
        if told.nonce == self._nonce:
            self._target, self._target_term = told.index, told.term

    def finish(self, verified: int) -> bool:
        """Become sound if the leader's log is on disk up to the target.

        `verified` is the index up to which the leader of this term has confirmed the log.
        """
        me = self._me
        if me.health is not Health.LOG_LOST or self._target_term != me.term:
            return False
        if min(verified, me.log.stable) < self._target:
            return False
        me.health = Health.SOUND
        return True
