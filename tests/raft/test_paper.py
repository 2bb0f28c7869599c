"""One test for each passage of the paper, and of the thesis, that says what must hold.

Section numbers are those of "In Search of an Understandable Consensus Algorithm", the extended
version; "thesis" is "Consensus: Bridging Theory and Practice".
"""

import pytest

from natsd.raft.entry import NOBODY, HardState, Health, Snapshot, first_snapshot
from natsd.raft.errors import MembershipError, NotLeaderError, ProposalDroppedError
from natsd.raft.member import Role
from natsd.raft.membership import with_learner, with_voter, without
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    InstallSnapshot,
    PreVote,
    TimeoutNow,
    Vote,
    VoteReply,
)
from natsd.raft.node import Node
from tests.raft.group import OPTIONS, Group, between, entries_of

START = first_snapshot(frozenset({1, 2, 3}))

# §5.1 Terms


def test_5_1_a_member_takes_over_a_newer_term() -> None:
    group = Group(3)
    group.step(Heartbeat(2, 1, 7, 0, 1))
    assert (group.nodes[1].term, group.nodes[1].leader) == (7, 2)


def test_5_1_a_leader_of_an_older_term_steps_down() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.step(AppendReply(2, 1, leader.term + 1, False, 0, 0, 0, Health.SOUND))
    assert leader.role is Role.FOLLOWER


def test_5_1_messages_of_an_older_term_are_refused() -> None:
    group = Group(3)
    group.step(Heartbeat(2, 1, 7, 0, 1))
    group.sent.clear()
    group.step(Append(3, 1, 6, 1, 1, 1, tuple(entries_of(6))))
    assert group.nodes[1].log.last_index == 1
    (reply,) = group.take(AppendReply)
    assert (reply.accepted, reply.term) == (False, 7)


# §5.2 Elections


def test_5_2_a_follower_that_hears_nothing_begins_an_election() -> None:
    group = Group(3)
    group.tick(1, 9)
    assert not group.sent
    group.tick(1)
    assert {message.receiver for message in group.take(PreVote)} == {2, 3}


def test_5_2_timeouts_are_drawn_between_one_and_two_election_timeouts() -> None:
    group = Group(1)
    group.patience[1] = 9
    node = group.restart(1)
    group.tick(1, 18)
    assert node.role is Role.FOLLOWER
    group.tick(1)
    assert node.is_leader


def test_5_2_heartbeats_keep_followers_quiet() -> None:
    group = Group(3)
    leader = group.elect(1)
    term = leader.term
    group.tick_all(100)
    assert leader.is_leader
    assert leader.term == term


def test_5_2_a_member_votes_once_in_a_term_first_come_first_served() -> None:
    group = Group(3)
    group.step(Vote(2, 1, 5, 9, 4, False))
    group.step(Vote(3, 1, 5, 9, 4, False))
    assert [reply.granted for reply in group.take(VoteReply)] == [True, False]


def test_5_2_a_vote_survives_a_restart() -> None:
    group = Group(3)
    group.step(Vote(2, 1, 5, 9, 4, False))
    group.sent.clear()
    group.restart(1)
    group.step(Vote(3, 1, 5, 9, 4, False))
    assert [reply.granted for reply in group.take(VoteReply)] == [False]


def test_5_2_a_vote_is_sent_after_it_is_synced() -> None:
    group = Group(3)
    group.syncs = False
    group.step(Vote(2, 1, 5, 9, 4, False))
    assert not group.take(VoteReply)
    group.sync(1)
    assert [reply.granted for reply in group.take(VoteReply)] == [True]


def test_5_2_a_candidate_follows_a_leader_of_its_term() -> None:
    group = Group(3)
    group.tick(1, 10)
    group.deliver(lambda message: not isinstance(message, Vote))
    candidate = group.nodes[1]
    assert candidate.role is Role.FOLLOWER or candidate.term > 0
    group.step(Heartbeat(2, 1, candidate.term, 0, 1))
    assert (candidate.role, candidate.leader) == (Role.FOLLOWER, 2)


# §5.3 Replication


def test_5_3_an_entry_is_committed_when_a_majority_holds_it() -> None:
    group = Group(5)
    leader = group.elect(1)
    group.propose(1, b"a")
    group.deliver(between(1, 2))
    assert group.data(1) == []
    group.tick_all(4)
    assert [group.data(member) for member in group.nodes] == [[b"a"]] * 5
    assert leader.log.commit == leader.log.last_index


def test_5_3_followers_refuse_entries_behind_a_gap_or_a_conflict() -> None:
    group = Group(3)
    group.start(1, HardState(2, NOBODY), START, entries_of(2, 2))
    for prev_index, prev_term in [(4, 2), (3, 1)]:
        group.step(Append(2, 1, 3, prev_index, prev_term, 1, ()))
        (reply,) = group.take(AppendReply)
        assert (reply.accepted, reply.index) == (False, prev_index)
    group.step(Append(2, 1, 3, 3, 2, 1, ()))
    assert group.take(AppendReply)[-1].accepted


FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("case", FIGURE_7)
def test_5_3_figure_7_a_leader_makes_a_followers_log_its_own(case: str) -> None:
    group = Group(3)
    own = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    group.start(1, HardState(7, NOBODY), START, entries_of(*own))
    group.start(2, HardState(7, NOBODY), START, entries_of(*FIGURE_7[case]))
    group.start(3, HardState(7, NOBODY), START, entries_of(*own))
    leader = group.elect(1)
    group.tick_all(10)
    follower = group.nodes[2].log
    assert follower.last_index == leader.log.last_index
    indexes = range(1, leader.log.last_index + 1)
    assert [follower.term_at(i) for i in indexes] == [leader.log.term_at(i) for i in indexes]


def test_5_3_a_refusal_skips_a_whole_term() -> None:
    group = Group(3)
    group.start(1, HardState(3, NOBODY), START, entries_of(*[2] * 500, *[3] * 2))
    group.start(2, HardState(2, NOBODY), START, entries_of(*[2] * 100, *[1] * 0))
    group.start(3, HardState(3, NOBODY), START, entries_of(*[2] * 500, *[3] * 2))
    group.elect(1)
    group.tick_all(3)
    refusals = [line for line in group.lines if "accepted=False" in line and "2 → 1" in line]
    assert len(refusals) == 1


def test_5_3_an_old_append_does_not_shorten_the_log() -> None:
    group = Group(3)
    group.step(Append(2, 1, 2, 1, 1, 1, tuple(entries_of(2, 2, 2))))
    group.step(Append(2, 1, 2, 1, 1, 1, tuple(entries_of(2))))
    assert group.nodes[1].log.last_index == 4


def test_5_3_an_acknowledgement_is_sent_after_the_sync() -> None:
    group = Group(3)
    group.syncs = False
    group.step(Append(2, 1, 2, 1, 1, 1, tuple(entries_of(2))))
    assert not group.take(AppendReply)
    group.sync(1)
    assert [(r.accepted, r.index) for r in group.take(AppendReply)] == [(True, 2)]


# §5.4 Safety


def test_5_4_1_a_member_votes_only_for_a_log_as_complete_as_its_own() -> None:
    for last_index, last_term, granted in [
        (4, 2, False),
        (9, 1, False),
        (5, 2, True),
        (2, 3, True),
    ]:
        group = Group(3)
        group.start(1, HardState(2, NOBODY), START, entries_of(2, 2, 2, 2))
        group.tick(1, 10)
        group.sent.clear()
        group.step(Vote(2, 1, 9, last_index, last_term, False))
        assert [reply.granted for reply in group.take(VoteReply)] == [granted]


def test_5_4_2_figure_8_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    group = Group(3)
    group.start(1, HardState(2, NOBODY), START, entries_of(2))
    group.tick(1, 10)
    group.deliver(lambda message: not isinstance(message, Append))
    leader = group.nodes[1]
    assert leader.is_leader
    group.step(AppendReply(2, 1, leader.term, True, 2, 0, 0, Health.SOUND))
    assert leader.log.commit == 1  # entry 2, of term 2, is on a majority
    group.step(AppendReply(2, 1, leader.term, True, 3, 0, 0, Health.SOUND))
    assert leader.log.commit == 3  # entry 3 is of the leader's term, and commits entry 2 too


# §6 Membership


def test_6_a_new_member_learns_before_it_votes() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.start(4)
    with pytest.raises(MembershipError):
        leader.propose_membership(
            type(leader.membership)(leader.membership.voters | {4}, frozenset())
        )
    group.change(1, with_learner(leader.membership, 4))
    with pytest.raises(MembershipError):  # the first change is not committed yet
        leader.propose_membership(with_voter(leader.membership, 4))
    group.tick_all(4)
    assert group.nodes[4].membership.learners == {4}
    group.change(1, with_voter(leader.membership, 4))
    group.tick_all(4)
    assert group.nodes[4].membership.voters == {1, 2, 3, 4}
    assert group.data(4) == [b"a"]


def test_6_a_learner_does_not_count_for_a_majority() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.start(4)
    group.change(1, with_learner(leader.membership, 4))
    group.tick_all(4)
    group.propose(1, b"a")
    group.deliver(between(1, 4))
    assert group.data(1) == []


def test_6_a_leader_that_is_removed_steps_down_when_that_is_committed() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.change(1, without(leader.membership, 1))
    roles = [leader.role]  # it does not count itself, and leads until the change is committed
    group.deliver()
    roles.append(leader.role)
    assert roles == [Role.LEADER, Role.FOLLOWER]
    group.tick_all(30)
    assert group.nodes[2].is_leader or group.nodes[3].is_leader


def test_thesis_4_2_2_a_removed_member_leads_until_its_removal_is_committed() -> None:
    group = Group(4)
    leader = group.elect(1)
    group.change(1, without(leader.membership, 1))
    group.sent.clear()  # member 1 alone holds the removal, and so refuses all others
    group.restart(1)
    group.nodes.pop(2)
    group.patience[3] = 9
    group.tick_all(60)
    assert group.nodes[3].membership.voters == {2, 3, 4}
    assert group.nodes[3].is_leader or group.nodes[4].is_leader


def test_6_a_change_that_is_overwritten_is_undone() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.change(1, with_learner(leader.membership, 4))
    group.sent.clear()
    group.nodes.pop(1)
    group.elect(2)
    group.nodes[1] = leader
    assert leader.membership.learners == {4}
    group.tick_all(6)
    assert leader.membership.learners == frozenset()


# §7 Snapshots


def test_7_a_follower_behind_the_log_gets_the_snapshot() -> None:
    group = Group(3, trailing_bytes_max=0)
    leader = group.elect(1)
    group.propose(1, b"a", b"b")
    group.deliver(between(1, 2))
    commit, term = leader.log.commit, leader.term
    leader.compact(type(START)(commit, term, leader.membership, b"state"))
    group.tick_all(4)
    assert group.snapshots[3].data == b"state"
    group.propose(1, b"c")
    group.tick_all(4)
    assert group.data(3) == [b"c"]


def test_7_a_snapshot_that_the_log_covers_changes_nothing() -> None:
    group = Group(3)
    group.step(Append(2, 1, 2, 1, 1, 1, tuple(entries_of(2, 2, 2))))
    group.step(InstallSnapshot(2, 1, 2, type(START)(3, 2, START.membership, b"")))
    assert 1 not in group.snapshots
    assert (group.nodes[1].log.last_index, group.nodes[1].log.commit) == (4, 3)


# §8 Clients


def test_8_a_leader_begins_its_term_with_an_empty_entry() -> None:
    group = Group(3)
    leader = group.elect(1)
    assert [(entry.term, entry.data) for entry in group.applied[2]] == [(leader.term, b"")]


def test_8_a_read_waits_until_a_majority_has_confirmed_the_leader() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.read(7)
    group.carry_out(1)
    assert group.reads[1] == []
    group.deliver()
    assert group.reads[1] == [(7, leader.log.commit)]


def test_8_a_read_at_a_deposed_leader_is_dropped() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.read(7)
    group.carry_out(1)
    group.sent.clear()
    group.step(Heartbeat(2, 1, leader.term + 1, 0, 1))
    assert (group.reads[1], group.dropped[1]) == ([], [7])


def test_8_a_follower_asks_the_leader_for_the_index_of_a_read() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.nodes[2].read(7)
    group.carry_out(2)
    group.deliver()
    assert group.reads[2] == [(7, leader.log.commit)]


def test_8_only_the_leader_takes_proposals_and_others_name_it() -> None:
    group = Group(3)
    group.elect(1)
    with pytest.raises(NotLeaderError) as refusal:
        group.nodes[2].propose(b"a")
    assert refusal.value.leader == 1


# The thesis


def test_thesis_3_10_leadership_is_transferred_to_a_member_that_holds_the_log() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.propose(1, b"a")
    leader.transfer_leadership(3)
    with pytest.raises(ProposalDroppedError):
        leader.propose(b"b")
    group.carry_out(1)
    group.deliver()
    assert group.nodes[3].is_leader
    assert group.data(3) == [b"a"]


def test_thesis_3_10_a_transfer_that_takes_too_long_is_given_up() -> None:
    group = Group(3)
    leader = group.elect(1)
    leader.transfer_leadership(3)
    group.carry_out(1)
    for _ in range(10):
        group.tick(1)
        group.deliver(lambda message: not isinstance(message, TimeoutNow))
    leader.propose(b"a")


def test_thesis_6_2_a_leader_without_a_majority_steps_down() -> None:
    group = Group(3)
    leader = group.elect(1)
    for _ in range(20):
        group.tick(1)
        group.deliver(lambda _: False)
    assert not leader.is_leader


def test_thesis_6_4_1_a_lease_answers_reads_at_once_until_it_ends() -> None:
    group = Group(3, lease_reads=True)
    leader = group.elect(1)
    group.tick_all(2)
    for token in range(9):
        leader.read(token)
        group.carry_out(1)
        group.sent.clear()
        group.tick(1)
    assert 4 < len(group.reads[1]) < 9


def test_thesis_9_6_a_member_that_was_cut_off_does_not_depose_the_leader() -> None:
    group = Group(3)
    leader = group.elect(1)
    term = leader.term
    for _ in range(100):
        for member in group.nodes:
            group.tick(member)
        group.deliver(between(1, 2))
    assert group.nodes[3].term == term
    group.tick_all(10)
    assert leader.is_leader
    assert leader.term == term


def test_thesis_10_2_1_a_leader_sends_entries_while_it_writes_them() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.syncs = False
    group.propose(1, b"a")
    assert len(group.take(Append)) == 1  # the other follower is not needed for a majority
    assert leader.log.stable < leader.log.last_index


def test_thesis_10_2_1_an_entry_may_be_committed_before_the_leader_has_synced_it() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.syncs = False
    group.tick(1)
    group.propose(1, b"a")
    for member in (2, 3):
        group.deliver()
        group.sync(member)
    group.deliver()
    assert group.data(1) == [b"a"]
    assert leader.log.stable < leader.log.commit


def test_a_follower_whose_application_lags_takes_no_more_entries() -> None:
    """Its log is bounded; once it is compacted, the leader's next heartbeat brings the rest."""
    group = Group(3, log_bytes_max=1000)
    leader = group.elect(1)
    for number in range(40):
        group.propose(1, b"%02d" % number + bytes(98))
        group.deliver()
        compact(leader)
        compact(group.nodes[2])
        group.tick_all()
    lagging = group.nodes[3].log
    assert 2000 <= lagging.payload_bytes < 2200
    assert len(group.data(2)) == 40
    for _ in range(10):
        compact(group.nodes[3])
        group.tick_all(3)
    assert group.data(3) == group.data(2)


def compact(node: Node) -> None:
    """Let the log go of what the member has applied."""
    log = node.log
    if log.handed_out > log.snapshot.index:
        term = log.term_at(log.handed_out)
        assert term is not None
        node.compact(Snapshot(log.handed_out, term, node.membership, b"state"))


def test_a_member_that_refuses_a_candidate_for_its_log_campaigns_soon() -> None:
    """The candidate is there, and cannot win; its vote makes the other one the leader."""
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver(lambda message: message.receiver == 2)
    group.nodes.pop(1)
    group.tick(2, 11)  # the other one has missed the leader for longer
    group.tick(3, 19)
    group.deliver()
    assert not group.nodes[2].is_leader
    group.tick_all(OPTIONS.heartbeat_ticks)
    assert group.nodes[2].is_leader
