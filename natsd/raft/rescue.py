"""Rescue: a group that has lost a majority of its voters for good goes on with one member.

    log of the survivor     … 11 12 13            group G, voters a b c
    rescued                 … 11 12 13 │ 14       group H, voter c
                                         └ the membership {c}, in a term that G has not had here
    rescued, with a state   (14)                  a snapshot in the place of all entries

RAFT has no such step: it gives up that what is committed stays. What a majority had committed, and
the survivor has not received, is lost. What the survivor holds counts as committed from now on.

Promise
- The rescued group has another name. Messages name their group, so members of the old one, however
  many of them come back, are strangers to it: they neither vote in it nor append to its log.
- A damaged log is not rescued: it may lack entries that this member has acknowledged.
"""

from collections.abc import Sequence

from natsd.raft.entry import Entry, EntryKind, HardState, Health, Membership, Snapshot
from natsd.raft.errors import RaftError
from natsd.raft.membership import encode_membership


class NotRescuableError(RaftError):
    """The log of this member is no basis for a group; the text is one line."""


def why_not_rescuable(hard_state: HardState, snapshot: Snapshot | None) -> str:
    """Return why a group cannot go on with this log; empty: it can."""
    if snapshot is None or hard_state.health is not Health.SOUND:
        return "its log here is damaged"
    if not snapshot.index:
        return "its log here is empty"
    return ""


def rescued(
    hard_state: HardState,
    snapshot: Snapshot | None,
    entries: Sequence[Entry],
    member: int,
    state: bytes | None = None,
) -> tuple[HardState, Snapshot, list[Entry]]:
    """Return what `member` starts the rescued group from, as hard state, snapshot and entries.

    With a `state` of the application, that replaces the log. Raises NotRescuableError.
    """
    reason = why_not_rescuable(hard_state, snapshot)
    if reason:
        raise NotRescuableError(reason)
    assert snapshot is not None
    last = entries[-1] if entries else snapshot
    term, index = max(hard_state.term, last.term) + 1, last.index + 1
    alone = Membership(frozenset({member}))
    if state is not None:
        return HardState(term, member), Snapshot(index, term, alone, state), []
    added = Entry(index, term, EntryKind.MEMBERSHIP, encode_membership(alone))
    return HardState(term, member), snapshot, [*entries, added]
