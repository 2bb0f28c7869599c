"""A damaged member does no harm, and becomes sound again (natsd/raft/repair.py)."""

import pytest

from natsd.raft.entry import NOTHING, HardState, Health
from natsd.raft.errors import MembershipError
from natsd.raft.membership import without
from natsd.raft.messages import PreVote, PreVoteReply, RepairRequest, Vote, VoteReply
from tests.raft.group import Group, between


def damaged(group: Group, member: int, health: Health = Health.LOG_LOST) -> None:
    """Restart a member that has lost its whole log."""
    node = group.nodes[member]
    group.start(member, node.hard_state._replace(health=health), NOTHING)


def test_a_damaged_member_neither_votes_nor_campaigns() -> None:
    group = Group(3)
    group.elect(1)
    damaged(group, 3)
    group.tick(3, 40)
    assert not group.sent
    group.step(PreVote(2, 3, 9, 99, 8))
    group.step(Vote(2, 3, 9, 99, 8, True))
    assert [reply.granted for reply in group.take(PreVoteReply)] == [False]
    assert [reply.granted for reply in group.take(VoteReply)] == [False]


def test_a_damaged_member_does_not_count_until_it_holds_the_leaders_log() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.nodes.pop(2)
    damaged(group, 3)
    group.propose(1, b"b")
    group.deliver(lambda message: not isinstance(message, RepairRequest))
    assert group.data(1) == [b"a"]
    group.tick_all(6)
    assert group.nodes[3].hard_state.health is Health.SOUND
    assert group.data(1) == [b"a", b"b"]
    assert leader.damaged == {}


def test_a_member_that_crashes_during_its_repair_is_still_damaged() -> None:
    group = Group(3)
    group.elect(1)
    damaged(group, 3)
    node = group.nodes[3]
    assert node.hard_state.health is Health.LOG_LOST
    assert group.restart(3).hard_state.health is Health.LOG_LOST


def test_a_target_for_an_earlier_start_does_not_count() -> None:
    group = Group(3)
    leader = group.elect(1)
    damaged(group, 3)
    group.step(RepairRequest(3, 1, leader.term, 12345, 0))
    group.deliver(lambda message: not isinstance(message, RepairRequest))
    assert group.nodes[3].hard_state.health is Health.LOG_LOST


def test_a_member_that_lost_its_vote_is_never_sound_again() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.start(3, HardState(0, 0, Health.VOTE_LOST))
    group.propose(1, b"a")
    group.tick_all(10)
    assert group.nodes[3].hard_state.health is Health.VOTE_LOST
    assert group.data(3) == [b"a"]
    assert leader.damaged[3][0] is Health.VOTE_LOST
    with pytest.raises(MembershipError):  # the rest would be one sound member of two
        leader.propose_membership(without(leader.membership, 2))
    group.change(1, without(leader.membership, 3))
    group.deliver()
    assert leader.membership.voters == {1, 2}


def test_a_group_with_a_damaged_majority_stops_and_says_so() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    last_index = group.nodes[2].log.last_index
    damaged(group, 1)
    damaged(group, 3)
    group.tick_all(40)
    survivor = group.nodes[2]
    assert not any(node.is_leader for node in group.nodes.values())
    assert survivor.is_stopped_by_damage
    assert survivor.damaged == {1: (Health.LOG_LOST, 0), 3: (Health.LOG_LOST, 0)}
    assert survivor.log.last_index == last_index


def test_a_leader_repairs_a_member_while_the_other_is_away() -> None:
    group = Group(3)
    group.elect(1)
    damaged(group, 3)
    for _ in range(6):
        group.tick_all()
        group.deliver(between(1, 3))
    assert group.nodes[3].hard_state.health is Health.SOUND


def test_a_member_that_does_not_know_that_its_log_is_shorter_gets_the_entries_again() -> None:
    """Its storage cannot tell each loss from a torn write; the leader knows better."""
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b", b"c")
    group.deliver()
    kept = group.nodes[3]
    entries = kept.log.slice(2, kept.log.last_index, 1 << 30)[0][:-2]
    group.start(3, kept.hard_state, kept.log.snapshot, entries)
    group.propose(1, b"d")
    group.tick_all(10)
    assert group.data(3) == [b"a", b"b", b"c", b"d"]
