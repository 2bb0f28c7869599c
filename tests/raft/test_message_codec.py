"""Messages come back from their bytes, and bytes that are no message are refused."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.raft.entry import Entry, EntryKind, Health, Membership, Snapshot
from natsd.raft.frames import KINDS, MalformedMessageError, MessageEncoder, decode
from natsd.raft.membership import encode_membership
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteReply,
    Quiesce,
    ReadReply,
    ReadRequest,
    RepairRequest,
    RepairTarget,
    TimeoutNow,
    Vote,
    VoteReply,
    Written,
)

HEAD = struct.Struct("<BBQQQ")

numbers = st.integers(0, 2**64 - 1)
indexes = st.integers(0, 2**62)
members = st.integers(1, 2**64 - 1)
health = st.sampled_from(Health)
memberships = st.builds(
    lambda voters, learners: Membership(voters, learners - voters),
    st.frozensets(members, max_size=5),
    st.frozensets(members, max_size=3),
)
snapshots = st.builds(Snapshot, indexes, indexes, memberships, st.binary(max_size=50))


@st.composite
def appends(draw: st.DrawFn) -> Append:
    prev_index, prev_term = draw(indexes), draw(st.integers(0, 1000))
    entries, term = [], prev_term
    for at, size in enumerate(draw(st.lists(st.integers(0, 20), max_size=8)), 1):
        term += draw(st.sampled_from([0, 0, 0, 1, 7]))
        if draw(st.integers(0, 5)) == 0:
            data = encode_membership(draw(memberships))
            entries.append(Entry(prev_index + at, term, EntryKind.MEMBERSHIP, data))
        else:
            entries.append(Entry(prev_index + at, term, EntryKind.NORMAL, b"x" * size))
    return Append(draw(members), 2, term + 3, prev_index, prev_term, draw(indexes), tuple(entries))


three = (members, members, indexes)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(PreVote, *three, indexes, indexes),
    st.builds(PreVoteReply, *three, st.booleans(), health, indexes),
    st.builds(Vote, *three, indexes, indexes, st.booleans()),
    st.builds(VoteReply, *three, st.booleans()),
    st.builds(TimeoutNow, *three),
    appends(),
    st.builds(InstallSnapshot, *three, snapshots),
    st.builds(AppendReply, *three, st.booleans(), indexes, indexes, indexes, health),
    st.builds(Heartbeat, *three, indexes, indexes),
    st.builds(HeartbeatReply, *three, indexes, health),
    st.builds(Quiesce, *three, indexes, indexes),
    st.builds(ReadRequest, *three, numbers),
    st.builds(ReadReply, *three, numbers, indexes),
    st.builds(RepairRequest, *three, numbers, indexes),
    st.builds(RepairTarget, *three, numbers, indexes),
    st.builds(Written, *three, indexes),
)


def encoded(message: Message) -> bytes:
    return b"".join(MessageEncoder().encode(message))


@given(messages)
def test_message_comes_back(message: Message) -> None:
    back = decode(encoded(message))
    assert back == message
    assert type(back) is type(message)


@given(messages, st.data())
def test_damaged_bytes_are_refused_or_are_a_message(message: Message, data: st.DataObject) -> None:
    good = encoded(message)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
    for candidate in (bad, good[:at], good + b"x"):
        try:
            decode(candidate)
        except MalformedMessageError:
            continue


@given(st.sampled_from([number for number, _, _ in KINDS]), st.binary(max_size=100))
def test_garbage_is_refused_or_is_a_message(number: int, garbage: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        decode(HEAD.pack(1, number, 1, 2, 3) + garbage)


@pytest.mark.parametrize(("version", "number"), [(0, 1), (2, 1), (1, 0), (1, 17)])
def test_unknown_version_and_kind_are_refused(version: int, number: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode(HEAD.pack(version, number, 1, 2, 3) + bytes(16))


def test_entries_are_encoded_once_for_all_receivers() -> None:
    entries = (Entry(8, 3, EntryKind.NORMAL, b"a"),)
    encoder = MessageEncoder()
    first = encoder.encode(Append(1, 2, 3, 7, 3, 7, entries))
    second = encoder.encode(Append(1, 3, 3, 7, 3, 7, entries))
    assert first[1] is second[1]


def test_a_heartbeat_is_small() -> None:
    assert len(encoded(Heartbeat(1, 2, 3, 4, 5))) == 42
