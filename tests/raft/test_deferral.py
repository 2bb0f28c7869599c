"""Entries go first to the voters that a majority needs, and to the others when committed."""

from natsd.raft.entry import Membership
from natsd.raft.messages import Append, Message
from tests.raft.group import Group


def receivers(messages: list[Append]) -> set[int]:
    return {message.receiver for message in messages}


def but_2(message: Message) -> bool:
    return message.receiver != 2


def raced() -> Group:
    """Three members; member 2 has answered the leader's newest entry before member 3."""
    group = Group(3)
    group.elect(1)
    group.tick(1)
    group.propose(1, b"raced for")
    group.deliver()
    return group


def test_the_first_entry_after_a_tick_goes_to_all() -> None:
    group = raced()
    group.tick(1)
    group.propose(1, b"a")
    assert receivers(group.take(Append)) == {2, 3}


def test_the_next_ones_go_to_those_that_answered_first() -> None:
    group = raced()
    group.propose(1, b"a")
    group.propose(1, b"b")
    assert receivers(group.take(Append)) == {2}


def test_the_other_one_gets_them_and_their_commit_with_one_message() -> None:
    group = raced()
    group.propose(1, b"a")
    lines = len(group.lines)
    group.deliver()
    assert [group.data(member)[1:] for member in group.nodes] == [[b"a"]] * 3
    to_3 = [line for line in group.lines[lines:] if line.startswith("1 → 3")]
    assert len(to_3) == 1


def test_the_one_that_answered_first_has_become_silent() -> None:
    group = raced()
    group.propose(1, b"a")
    group.deliver(but_2)
    assert group.data(1) == [b"raced for"]
    group.tick(1)
    group.deliver(but_2)
    assert group.data(1) == [b"raced for", b"a"]
    group.propose(1, b"b")
    group.deliver(but_2)
    group.propose(1, b"c")
    assert receivers(group.take(Append)) == {3}


def test_what_was_sent_before_the_tick_decides_nothing() -> None:
    """Otherwise a slow voter, which always has something under way, would win each race."""
    group = raced()
    group.propose(1, b"before the tick")
    early = group.take(Append)
    group.tick(1)
    group.propose(1, b"after the tick")
    late = group.take(Append)
    group.sent.clear()
    for message in early:  # member 2 is slow
        group.step(message)
    group.deliver()
    for message in late:
        if message.receiver == 3:
            group.step(message)
    group.deliver(but_2)
    assert group.data(1)[1:] == [b"before the tick", b"after the tick"]
    group.propose(1, b"a")
    assert receivers(group.take(Append)) == {3}


def test_a_quiescent_group_that_wakes_asks_all_of_them() -> None:
    group = raced()
    group.tick_all(4)
    leader = group.nodes[1]
    assert leader.quiesce()
    group.carry_out(1)
    group.deliver()
    group.propose(1, b"a")
    assert receivers(group.take(Append)) == {2, 3}


def test_a_learner_waits_also_if_it_is_fast() -> None:
    group = raced()
    group.start(4)
    group.change(1, Membership(frozenset({1, 2, 3}), frozenset({4})))
    group.deliver()
    group.tick_all(4)
    group.tick(1)
    group.propose(1, b"raced for again")
    group.deliver()
    group.propose(1, b"a")
    assert receivers(group.take(Append)) == {2}


def test_a_member_that_is_removed_is_not_waited_for() -> None:
    group = raced()
    group.change(1, Membership(frozenset({1, 3})))
    group.deliver(but_2)
    group.propose(1, b"a")
    group.deliver(but_2)
    assert group.data(1)[1:] == [b"a"]


def test_a_sync_that_nobody_waits_for_may_wait() -> None:
    """Member 3 gets its entry when it is committed, so it has time to sync it."""
    group = raced()
    group.syncs = False
    group.propose(1, b"a")
    group.sync(1)
    group.deliver(lambda message: message.receiver == 2)
    (effects,) = group.unsynced[2]
    assert effects.entries
    assert not effects.may_wait
    group.sync(2)
    group.deliver()
    (effects,) = group.unsynced[3]
    assert effects.entries
    assert effects.may_wait
