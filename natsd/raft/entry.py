"""What a RAFT group persists: entries, the hard state, the membership, and snapshots.

index     1        2        3        4              the snapshot stands for all entries up to
        ┌────────┬────────┬────────┬────────┐       its index; the log holds those behind it
term    │ 1      │ 1      │ 2      │ 2      │
        └────────┴────────┴────────┴────────┘
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

NOBODY = 0
"""The member id that no member has: no vote, no known leader."""


class EntryKind(IntEnum):
    """What an entry contains."""

    NORMAL = 0
    """A command of the application; empty: the entry with which a leader begins its term."""
    MEMBERSHIP = 1
    """An encoded `Membership`, which is in force from the moment it is appended."""


class Entry(NamedTuple):
    """One entry of the log."""

    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs
    term: int
    kind: EntryKind
    data: bytes


class Health(IntEnum):
    """What the storage has lost of what the member promised to keep (see `natsd.raft.repair`)."""

    SOUND = 0
    LOG_LOST = 1
    """Entries that the member acknowledged may be lost; its term and vote are not."""
    VOTE_LOST = 2
    """The term and the vote may be lost; the member never votes again under this member id."""


class HardState(NamedTuple):
    """What a member must not forget: it is synced before a message that depends on it is sent."""

    term: int
    vote: int
    """Member that got this member's vote in `term`; NOBODY: none."""
    health: Health = Health.SOUND
    """Persisted like the term: a member that crashes during its repair is not sound afterwards."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of a group. Learners get the log, and neither vote nor count for a majority."""

    voters: frozenset[int]
    learners: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The application's state after applying all entries up to `index`."""

    index: int
    term: int
    """Term of the entry at `index`."""
    membership: Membership
    data: bytes


NOTHING = Snapshot(0, 0, Membership(frozenset()), b"")
"""What a member starts from that joins a group, or whose snapshot is lost."""


def first_snapshot(voters: frozenset[int], data: bytes = b"") -> Snapshot:
    """Return what all first members of a new group start from.

    It counts as entry 1 of term 1: a member that joins later, and holds nothing, gets it first, and
    with it the membership.
    """
    return Snapshot(1, 1, Membership(voters), data)
