"""Who belongs to a group, and how that changes: one member at a time, learners first.

A membership is in force from the moment its entry is appended, committed or not. If the entry is
cut off again, the one before it is in force. Two memberships that differ in one voter have no
disjoint majorities, which is why a leader begins no change while another is uncommitted.
"""

import struct

from natsd.raft.entry import Entry, EntryKind, Membership, Snapshot
from natsd.raft.errors import MembershipError

VERSION = 1
HEAD = struct.Struct("<BHH")
MEMBERS_MAX = 1000


def with_learner(membership: Membership, member: int) -> Membership:
    """Return the membership with a new member, which learns."""
    if member in membership.voters or member in membership.learners:
        raise MembershipError(f"{member} is a member already")
    return Membership(membership.voters, membership.learners | {member})


def with_voter(membership: Membership, member: int) -> Membership:
    """Return the membership with a learner that has become a voter."""
    if member not in membership.learners:
        raise MembershipError(f"{member} is not a learner")
    return Membership(membership.voters | {member}, membership.learners - {member})


def without(membership: Membership, member: int) -> Membership:
    """Return the membership without a member."""
    if member not in membership.voters and member not in membership.learners:
        raise MembershipError(f"{member} is not a member")
    if membership.voters == {member}:
        raise MembershipError(f"{member} is the only voter")
    return Membership(membership.voters - {member}, membership.learners - {member})


def encode_membership(membership: Membership) -> bytes:
    """Return the bytes of a membership, which are equal for equal memberships."""
    voters, learners = sorted(membership.voters), sorted(membership.learners)
    head = HEAD.pack(VERSION, len(voters), len(learners))
    return head + struct.pack(f"<{len(voters) + len(learners)}Q", *voters, *learners)


def decode_membership(data: bytes) -> Membership:
    """Return the membership; raise ValueError if these are not the bytes of one."""
    if len(data) < HEAD.size:
        raise ValueError("a membership is cut short")
    version, voter_count, learner_count = HEAD.unpack_from(data)
    count = voter_count + learner_count
    if version != VERSION or count > MEMBERS_MAX or len(data) != HEAD.size + 8 * count:
        raise ValueError("these are not the bytes of a membership")
    members = struct.unpack_from(f"<{count}Q", data, HEAD.size)
    voters, learners = frozenset(members[:voter_count]), frozenset(members[voter_count:])
    if len(voters) + len(learners) != count or voters & learners:
        raise ValueError("a membership names a member twice")
    return Membership(voters, learners)


class MembershipHistory:
    """The memberships in the log and the one in the snapshot below it; the last is in force."""

    __slots__ = ("_changes", "current")

    def __init__(self, snapshot: Snapshot) -> None:
        self._changes: list[tuple[int, Membership]] = [(snapshot.index, snapshot.membership)]
        self.current = snapshot.membership

    @property
    def changed_at(self) -> int:
        """Return the index of the entry, or of the snapshot, that holds the current membership."""
        return self._changes[-1][0]

    @property
    def before(self) -> Membership:
        """Return the membership that the current one replaced, if the log still knows it."""
        return self._changes[max(-2, -len(self._changes))][1]

    def appended(self, entries: tuple[Entry, ...]) -> bool:
        """Note the memberships among new entries; return whether there are any."""
        found = [entry for entry in entries if entry.kind is not EntryKind.NORMAL]
        for entry in found:
            self._changes.append((entry.index, decode_membership(entry.data)))
        self.current = self._changes[-1][1]
        return bool(found)

    def truncated(self, index: int) -> bool:
        """Forget memberships at `index` and behind it; return whether there were any."""
        count = len(self._changes)
        while self._changes[-1][0] >= index and len(self._changes) > 1:
            self._changes.pop()
        self.current = self._changes[-1][1]
        return len(self._changes) != count

    def at(self, index: int) -> Membership:
        """Return the membership in force at `index`, which is not below the snapshot's."""
        assert index >= self._changes[0][0]
        return next(held for at, held in reversed(self._changes) if at <= index)

    def compacted(self, index: int) -> None:
        """Forget memberships that an entry up to `index` has replaced."""
        kept = [change for change in self._changes if change[0] > index]
        self._changes = [(index, self.at(index)), *kept]
