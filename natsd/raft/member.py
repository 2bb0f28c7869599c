"""What all parts of a node share: identity, term and vote, role, log, and what it asks for."""

from collections.abc import Callable
from enum import IntEnum

from natsd.raft.effects import Read
from natsd.raft.entry import NOBODY, HardState, Health
from natsd.raft.log import Log
from natsd.raft.messages import Message
from natsd.raft.options import Options


class Role(IntEnum):
    """What a member is at the moment."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class Member:
    """The shared state of one member of a group."""

    __slots__ = (
        "contact_ticks",
        "damaged",
        "draw",
        "dropped_reads",
        "has_refused",
        "has_work",
        "health",
        "id",
        "leader",
        "log",
        "messages",
        "messages_after_sync",
        "options",
        "reads",
        "role",
        "term",
        "vote",
    )

    def __init__(
        self,
        member_id: int,
        log: Log,
        hard_state: HardState,
        options: Options,
        draw: Callable[[int], int],
    ) -> None:
        assert member_id != NOBODY
        self.id = member_id
        self.log = log
        self.term = max(hard_state.term, log.last_term)
        self.vote = hard_state.vote if hard_state.term == self.term else NOBODY
        self.health = hard_state.health
        self.options = options
        self.draw = draw
        """Returns a random number from 0 up to, and without, its argument."""
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        may_have_leased = hard_state.term and options.lease_reads
        self.contact_ticks = 0 if may_have_leased else options.election_ticks
        """Ticks since a leader was heard of; with leases a restart counts, since it forgets one."""
        self.has_refused = False
        """Since then a candidate was refused because this member's log is more complete."""
        self.damaged: dict[int, tuple[Health, int]] = {}
        """Members that said they are damaged, with the last index that each holds."""
        self.messages: list[Message] = []
        self.messages_after_sync: list[Message] = []
        self.reads: list[Read] = []
        self.dropped_reads: list[int] = []
        self.has_work = True

    @property
    def hard_state(self) -> HardState:
        """Return what the member must not forget."""
        return HardState(self.term, self.vote, self.health)

    @property
    def hears_leader(self) -> bool:
        """Tell whether a leader may count on this member not to help another one to power."""
        return self.role is Role.LEADER or self.contact_ticks < self.options.election_ticks

    @property
    def may_campaign(self) -> bool:
        """Tell whether the member may become the leader.

        A voter whose removal is not committed may be the only one with that entry, which makes it
        refuse all others: it leads until the removal is committed (thesis, 4.2.2). A learner, too,
        may be the only sound member with entries of the last leader, if that one is damaged: it
        leads until they are committed.
        """
        members = self.log.membership
        is_needed = self.has_refused and self.id in members.current.learners
        is_voter = self.id in members.current.voters or (
            members.changed_at > self.log.commit and self.id in members.before.voters
        )
        return self.health is Health.SOUND and (is_voter or is_needed)

    def note_health(self, member: int, health: Health, last_index: int) -> None:
        """Note what a member says of its storage."""
        if health is Health.SOUND:
            self.damaged.pop(member, None)
        else:
            self.damaged[member] = (health, last_index)
