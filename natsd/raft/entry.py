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

    index: int
    term: int
    kind: EntryKind
    data: bytes


class HardState(NamedTuple):
    """What a member must not forget: it is synced before a message that depends on it is sent."""

    term: int
    vote: int
    """Member that got this member's vote in `term`; NOBODY: none."""


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
