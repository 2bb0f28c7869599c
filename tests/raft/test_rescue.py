"""A group that has lost a majority goes on with one member, with another name, in a new term."""

from __future__ import annotations

import pytest

from natsd.raft.entry import (
    NOTHING,
    Entry,
    EntryKind,
    HardState,
    Health,
    Membership,
    Snapshot,
    first_snapshot,
)
from natsd.raft.membership import decode_membership
from natsd.raft.node import Node
from natsd.raft.options import Options
from natsd.raft.rescue import NotRescuableError, rescued

VOTERS = frozenset({1, 2, 3})
ENTRIES = (
    Entry(2, 1, EntryKind.NORMAL, b"a"),
    Entry(3, 4, EntryKind.NORMAL, b"b"),
)


def begin(hard_state: HardState, snapshot: Snapshot, entries: list[Entry], member: int = 3) -> Node:
    node = Node(member, hard_state, snapshot, entries, Options(), lambda _limit: 0)
    node.campaign()
    return node


def carry_out(node: Node) -> list[Entry]:
    """Write what the node asks for until it asks for nothing; return what is committed."""
    committed: list[Entry] = []
    while node.has_effects:
        effects = node.take_effects()
        assert not effects.messages and not effects.messages_after_sync
        committed += effects.committed
        if effects.writes:
            node.persisted(effects.number)
    return committed


def test_the_survivor_leads_alone_and_commits_all_that_it_holds() -> None:
    node = begin(*rescued(HardState(4, 2), first_snapshot(VOTERS), ENTRIES, 3))
    committed = carry_out(node)
    assert node.is_leader
    assert [each.data for each in committed if each.kind is EntryKind.NORMAL] == [b"a", b"b", b""]
    assert node.membership == Membership(frozenset({3}))


def test_its_term_is_one_that_the_survivor_has_not_seen() -> None:
    hard_state, _, entries = rescued(HardState(7, 2), first_snapshot(VOTERS), ENTRIES, 3)
    assert hard_state == HardState(8, 3)
    assert (entries[-1].index, entries[-1].term) == (4, 8)
    assert decode_membership(entries[-1].data) == Membership(frozenset({3}))


def test_a_state_of_the_application_takes_the_place_of_the_log() -> None:
    hard_state, snapshot, entries = rescued(
        HardState(4, 2), first_snapshot(VOTERS), ENTRIES, 3, b"state"
    )
    assert snapshot == Snapshot(4, 5, Membership(frozenset({3})), b"state")
    assert not entries
    node = begin(hard_state, snapshot, entries)
    carry_out(node)
    assert node.is_leader


@pytest.mark.parametrize("health", [Health.LOG_LOST, Health.VOTE_LOST])
def test_a_damaged_log_is_no_basis(health: Health) -> None:
    with pytest.raises(NotRescuableError, match="damaged"):
        rescued(HardState(4, 2, health), first_snapshot(VOTERS), ENTRIES, 3)
    with pytest.raises(NotRescuableError, match="damaged"):
        rescued(HardState(4, 2), None, (), 3)


def test_a_log_that_never_had_anything_is_no_basis() -> None:
    with pytest.raises(NotRescuableError, match="empty"):
        rescued(HardState(0, 0), NOTHING, (), 3)
