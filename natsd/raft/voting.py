"""An election, from the voter's side.

A member votes for a candidate whose log is at least as complete as its own, once in a term, and not
while it hears a leader. A damaged member does not vote: its log may be shorter than what it has
acknowledged.
"""

from natsd.raft.entry import NOBODY, Health
from natsd.raft.member import Member
from natsd.raft.messages import PreVote, PreVoteReply, Vote, VoteReply


def answer_pre_vote(me: Member, asked: PreVote) -> None:
    """Say whether this member would vote for the sender."""
    is_covered = me.log.is_covered_by(asked.last_index, asked.last_term)
    granted = (
        me.health is Health.SOUND
        and not me.hears_leader
        and (asked.term > me.term or (asked.term == me.term and me.vote in {NOBODY, asked.sender}))
        and is_covered
    )
    me.has_refused = me.has_refused or not is_covered
    term = asked.term if granted else max(me.term, asked.term - 1)
    me.messages.append(
        PreVoteReply(me.id, asked.sender, term, granted, me.health, me.log.last_index)
    )


def answer_vote(me: Member, asked: Vote) -> bool:
    """Vote for the sender or refuse, in this member's term; return whether it got the vote."""
    assert asked.term == me.term
    granted = (
        me.health is Health.SOUND
        and (me.vote == asked.sender or (me.vote == NOBODY and me.leader == NOBODY))
        and me.log.is_covered_by(asked.last_index, asked.last_term)
    )
    reply = VoteReply(me.id, asked.sender, me.term, granted)
    if granted:
        me.vote = asked.sender
        me.messages_after_sync.append(reply)
    else:
        me.messages.append(reply)
    return granted
