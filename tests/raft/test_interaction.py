"""Whole conversations, to be read: who says what to whom, in order."""

from textwrap import dedent

from natsd.raft.entry import NOBODY, NOTHING, HardState, Health, first_snapshot
from tests.raft.group import Group, between, entries_of


def expect(group: Group, text: str) -> None:
    assert group.take_lines() == dedent(text).strip()


def test_an_election_and_a_proposal() -> None:
    group = Group(3)
    group.tick(1, 10)
    group.deliver()
    expect(
        group,
        """
        1 → 2  PreVote term=2 last_index=1 last_term=1
        1 → 3  PreVote term=2 last_index=1 last_term=1
        2 → 1  PreVoteReply term=2 granted=True health=SOUND last_index=1
        3 → 1  PreVoteReply term=2 granted=True health=SOUND last_index=1
        1 → 2  Vote term=2 last_index=1 last_term=1 is_transfer=False
        1 → 3  Vote term=2 last_index=1 last_term=1 is_transfer=False
        2 → 1  VoteReply term=2 granted=True
        3 → 1  VoteReply term=2 granted=True
        1 → 2  Append term=2 prev_index=1 prev_term=1 commit=1 [2/2]
        1 → 3  Append term=2 prev_index=1 prev_term=1 commit=1 [2/2]
        2 → 1  AppendReply term=2 accepted=True index=2 hint_index=0 hint_term=0 health=SOUND
        3 → 1  AppendReply term=2 accepted=True index=2 hint_index=0 hint_term=0 health=SOUND
        1 → 2  Heartbeat term=2 commit=2 round=0
        1 → 3  Heartbeat term=2 commit=2 round=0
        """,
    )
    group.propose(1, b"a", b"b")
    group.deliver(between(1, 2))
    expect(
        group,
        """
        1 → 2  Append term=2 prev_index=2 prev_term=2 commit=2 [3/2 4/2]
        2 → 1  AppendReply term=2 accepted=True index=4 hint_index=0 hint_term=0 health=SOUND
        1 → 2  Heartbeat term=2 commit=4 round=0
        """,
    )


def test_a_leader_hands_over() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.take_lines()
    leader.transfer_leadership(2)
    group.carry_out(1)
    group.deliver()
    expect(
        group,
        """
        1 → 2  TimeoutNow term=3
        2 → 1  Vote term=4 last_index=2 last_term=3 is_transfer=True
        2 → 3  Vote term=4 last_index=2 last_term=3 is_transfer=True
        1 → 2  VoteReply term=4 granted=True
        3 → 2  VoteReply term=4 granted=True
        2 → 1  Append term=4 prev_index=2 prev_term=3 commit=2 [3/4]
        2 → 3  Append term=4 prev_index=2 prev_term=3 commit=2 [3/4]
        1 → 2  AppendReply term=4 accepted=True index=3 hint_index=0 hint_term=0 health=SOUND
        3 → 2  AppendReply term=4 accepted=True index=3 hint_index=0 hint_term=0 health=SOUND
        2 → 1  Heartbeat term=4 commit=3 round=0
        2 → 3  Heartbeat term=4 commit=3 round=0
        """,
    )


def test_a_damaged_member_is_repaired() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.take_lines()
    lost = group.nodes[3].hard_state._replace(health=Health.LOG_LOST)
    group.start(3, lost, NOTHING)
    group.tick(1, 2)
    group.deliver(between(1, 3))
    expect(
        group,
        """
        1 → 3  Heartbeat term=3 commit=3 round=1
        3 → 1  HeartbeatReply term=3 round=1 health=LOG_LOST
        3 → 1  RepairRequest term=3 nonce=10 last_index=0
        1 → 3  RepairTarget term=3 nonce=10 index=3
        1 → 3  InstallSnapshot term=3 snapshot=1/1
        3 → 1  AppendReply term=3 accepted=True index=1 hint_index=0 hint_term=0 health=LOG_LOST
        1 → 3  Append term=3 prev_index=1 prev_term=1 commit=3 [2/3 3/3]
        3 → 1  AppendReply term=3 accepted=True index=3 hint_index=0 hint_term=0 health=LOG_LOST
        3 → 1  AppendReply term=3 accepted=True index=3 hint_index=0 hint_term=0 health=SOUND
        """,
    )


def test_a_conflicting_log_is_overwritten() -> None:
    start = first_snapshot(frozenset({1, 2}))
    group = Group(2)
    group.start(1, HardState(3, NOBODY), start, entries_of(2, 3))
    group.start(2, HardState(2, NOBODY), start, entries_of(2, 2, 2, 2))
    group.elect(1)
    lines = group.take_lines().splitlines()
    group.lines = [line for line in lines if "Append" in line]
    expect(
        group,
        """
        1 → 2  Append term=4 prev_index=3 prev_term=3 commit=1 [4/4]
        2 → 1  AppendReply term=4 accepted=False index=3 hint_index=3 hint_term=2 health=SOUND
        1 → 2  Append term=4 prev_index=2 prev_term=2 commit=1 [3/3 4/4]
        2 → 1  AppendReply term=4 accepted=True index=4 hint_index=0 hint_term=0 health=SOUND
        """,
    )
