"""An idle group stops ticking, and wakes."""

from natsd.raft.messages import Heartbeat, Quiesce
from tests.raft.group import Group


def quiescent(count: int = 3) -> Group:
    group = Group(count)
    leader = group.elect(1)
    group.tick_all(4)
    assert leader.quiesce()
    group.carry_out(1)
    group.deliver()
    assert all(node.is_quiescent for node in group.nodes.values())
    return group


def test_a_quiescent_group_sends_nothing_and_keeps_its_leader() -> None:
    group = quiescent()
    group.tick_all(500)
    assert group.nodes[1].is_leader
    assert group.sent == []


def test_a_proposal_wakes_all() -> None:
    group = quiescent()
    group.propose(1, b"a")
    group.deliver()
    assert not any(node.is_quiescent for node in group.nodes.values())
    assert [group.data(member) for member in group.nodes] == [[b"a"]] * 3


def test_followers_that_are_told_that_the_leader_is_gone_elect_another() -> None:
    group = quiescent()
    group.nodes.pop(1)
    group.patience[2] = 0
    for node in group.nodes.values():
        node.wake()
    group.tick_all(60)
    assert any(node.is_leader for node in group.nodes.values())


def test_a_leader_with_a_follower_that_lags_does_not_quiesce() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.propose(1, b"a")
    assert not leader.quiesce()


def test_a_follower_whose_server_is_gone_is_not_waited_for() -> None:
    group = Group(3)
    leader = group.elect(1)
    group.nodes.pop(3)
    group.propose(1, b"a")
    group.tick_all(4)
    assert not leader.quiesce()
    assert leader.quiesce(frozenset({3}))


def test_a_late_heartbeat_does_not_wake_a_follower() -> None:
    group = quiescent()
    node = group.nodes[2]
    group.step(Heartbeat(1, 2, node.term, 1, 1))
    assert node.is_quiescent


def test_a_follower_that_lacks_entries_wakes_the_leader() -> None:
    group = quiescent()
    group.nodes[2].wake()
    last_index = group.nodes[1].log.last_index
    group.step(Quiesce(1, 2, group.nodes[1].term, last_index + 1, 9))
    assert not group.nodes[2].is_quiescent
    group.deliver()
    assert not group.nodes[1].is_quiescent
