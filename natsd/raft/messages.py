"""What the members of a group send to each other.

    elections     PreVote ⇄ PreVoteReply, Vote ⇄ VoteReply, TimeoutNow
    replication   Append ⇄ AppendReply, InstallSnapshot ⇄ AppendReply, Written
    presence      Heartbeat ⇄ HeartbeatReply, Quiesce
    reads         ReadRequest ⇄ ReadReply
    repair        RepairRequest ⇄ RepairTarget

Messages may be lost, doubled, delayed and reordered. All begin with sender, receiver and the
sender's term. A driver merges the heartbeats of all groups to one server: each is a few numbers,
and says nothing that depends on what else is in the frame.
"""

from typing import NamedTuple

from natsd.raft.entry import Entry, Health, Snapshot


class PreVote(NamedTuple):
    """A question: would the receiver vote for the sender? Neither side's term changes."""

    sender: int
    receiver: int
    term: int
    """Term of the election that the sender would begin: one more than its own."""
    last_index: int
    last_term: int


class PreVoteReply(NamedTuple):
    """The answer to PreVote."""

    sender: int
    receiver: int
    term: int
    """The PreVote's term if granted, otherwise the higher one of the two members' terms."""
    granted: bool
    health: Health
    last_index: int
    """Last entry that the sender holds, for the report of a group that has lost a majority."""


class Vote(NamedTuple):
    """A candidate asks for a vote in its term."""

    sender: int
    receiver: int
    term: int
    last_index: int
    last_term: int
    is_transfer: bool
    """The leader itself asked for this election: it does not wait for the leader to fall silent."""


class VoteReply(NamedTuple):
    """The answer to Vote."""

    sender: int
    receiver: int
    term: int
    granted: bool


class TimeoutNow(NamedTuple):
    """A leader hands over: the receiver begins an election at once."""

    sender: int
    receiver: int
    term: int


class Append(NamedTuple):
    """Entries to append behind `prev_index`; none: a probe whether the follower holds that one."""

    sender: int
    receiver: int
    term: int
    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]


class InstallSnapshot(NamedTuple):
    """The leader's snapshot, for a follower whose next entry is no longer in the leader's log."""

    sender: int
    receiver: int
    term: int
    snapshot: Snapshot


class AppendReply(NamedTuple):
    """The answer to Append and InstallSnapshot; also to any message of a leader of an old term."""

    sender: int
    receiver: int
    term: int
    accepted: bool
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs
    """Accepted: the follower holds the leader's log up to here, synced. Refused: `prev_index`."""
    hint_index: int
    """Refused: last index at which the follower's log may agree with the leader's."""
    hint_term: int
    """Refused: term of the follower's entry there."""
    health: Health


class Written(NamedTuple):
    """The sender has written the leader's log up to here, and has not synced all of it yet.

    Nothing depends on it but answers of the application that may be lost (`RaftGroup.is_early`).
    """

    sender: int
    receiver: int
    term: int
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs


class Heartbeat(NamedTuple):
    """The leader is there."""

    sender: int
    receiver: int
    term: int
    commit: int
    """Commit index, but not more than what this follower is known to hold."""
    round: int
    """Number to be returned, for reads and leases; 0: the leader only tells the commit index."""


class HeartbeatReply(NamedTuple):
    """The answer to a Heartbeat that has a round."""

    sender: int
    receiver: int
    term: int
    round: int
    health: Health


class Quiesce(NamedTuple):
    """The group is idle and the receiver holds all of it: stop ticking until something happens."""

    sender: int
    receiver: int
    term: int
    commit: int
    """The leader's last index, all of which is committed."""
    round: int
    """Newest round of heartbeats; older ones that arrive late do not wake the follower."""


class ReadRequest(NamedTuple):
    """A follower asks for the index that its reads must wait for."""

    sender: int
    receiver: int
    term: int
    batch: int


class ReadReply(NamedTuple):
    """The answer to ReadRequest."""

    sender: int
    receiver: int
    term: int
    batch: int
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs


class RepairRequest(NamedTuple):
    """A damaged member asks up to where it must hold the leader's log to be sound again."""

    sender: int
    receiver: int
    term: int
    nonce: int
    """Random number that stands for this start of the damaged member."""
    last_index: int


class RepairTarget(NamedTuple):
    """The answer to RepairRequest."""

    sender: int
    receiver: int
    term: int
    nonce: int
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs


Message = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | TimeoutNow
    | Append
    | InstallSnapshot
    | AppendReply
    | Written
    | Heartbeat
    | HeartbeatReply
    | Quiesce
    | ReadRequest
    | ReadReply
    | RepairRequest
    | RepairTarget
)
