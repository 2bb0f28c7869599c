"""Assignments: the same on all servers, from the log or a snapshot; late changes do nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.meta_group.assignments import (
    Assign,
    Assignment,
    Assignments,
    Change,
    Dismiss,
    Introduce,
    Introduced,
    Reassign,
    Remove,
    UnknownChange,
    decode,
    encode,
)
from natsd.raft.entry import Entry, EntryKind


@dataclass
class Member:
    """One server's state, and what its watcher was told."""

    streams: dict[tuple[str, str], Assignment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = Assignments(self.watch)

    def watch(self, before: Assignment | None, after: Assignment | None) -> None:
        """Follow the changes, each of which must fit to what is known."""
        each = before or after
        assert each is not None
        assert self.streams.get(each.key) == before
        if after is None:
            del self.streams[each.key]
        else:
            self.streams[each.key] = after

    def apply(self, *changes: Change) -> list[Assignment | None]:
        entries = [Entry(1, 1, EntryKind.NORMAL, encode(change)) for change in changes]
        return [each for each in self.state.apply(entries) if not isinstance(each, Introduced)]  # type: ignore[misc]  # the results of changes of streams

    def check(self) -> None:
        assert {each.key: each for each in self.state} == self.streams
        assert len(self.state) == len(self.streams)


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(f'"{text}"'.encode())


def stream(name: str, group: str = "S-1") -> Assignment:
    servers = ("a", "b", "c")
    return Assignment("$G", name, raw("config"), 7, servers, group=group, founders=(1, 2, 3))


def with_config(made: Assignment, text: str) -> Reassign:
    return Reassign(made.version, msgspec.structs.replace(made, config=raw(text)))


def test_a_stream_comes_changes_and_goes() -> None:
    member = Member()
    [made] = member.apply(Assign(stream("S")))
    assert made is not None
    assert member.state.find("$G", "S") == made
    [configured] = member.apply(with_config(made, "new"))
    assert configured is not None
    assert bytes(configured.config) == b'"new"'
    elsewhere = msgspec.structs.replace(configured, servers=("d",), leaving=("a",))
    [moved] = member.apply(Reassign(configured.version, elsewhere))
    assert moved is not None
    assert (moved.servers, moved.leaving) == (("d",), ("a",))
    assert member.apply(Remove("$G", "S", moved.version)) == [moved]
    assert member.state.find("$G", "S") is None
    member.check()


def test_changes_that_come_too_late_do_nothing() -> None:
    member = Member()
    [made] = member.apply(Assign(stream("S")))
    assert made is not None
    assert member.apply(Assign(stream("S", "S-2"))) == [None]
    [configured] = member.apply(with_config(made, "new"))
    assert member.apply(Remove("$G", "S", made.version), Remove("$G", "T", 1)) == [None, None]
    assert list(member.state) == [configured]
    assert configured is not None
    member.apply(Remove("$G", "S", configured.version))
    [again] = member.apply(Assign(stream("S", "S-2")))
    assert again is not None
    assert again.version > configured.version  # nothing that was meant for the first one fits


def test_a_server_that_lost_its_state_is_another_member() -> None:
    state = Member().state

    def tell(*changes: Change) -> list[object]:
        return list(state.apply([Entry(1, 1, EntryKind.NORMAL, encode(each)) for each in changes]))

    assert tell(Introduce("a"), Introduce("a")) == [Introduced("a", 0), Introduced("a", 0)]
    assert tell(Introduce("a", "x")) == [Introduced("a", 1, "x")]
    assert tell(Dismiss("a"), Dismiss("a")) == [Introduced("a", 1, "x", is_dismissed=True), None]
    assert tell(Introduce("a", "x")) == [Introduced("a", 2, "x")]


def test_what_was_written_before_there_were_read_replicas_has_none() -> None:
    member = Member()
    encoded = encode(Assign(stream("S")))
    old = encoded.replace(b',"read_replicas":[]', b"")
    assert old != encoded
    assert decode(old) == Assign(stream("S"))
    member.state.apply([Entry(1, 1, EntryKind.NORMAL, old)])
    found = member.state.find("$G", "S")
    assert found is not None
    assert found.holders == ("a", "b", "c")


def test_the_watcher_hears_of_another_member_that_has_a_replica_of_any_kind() -> None:
    heard: list[str] = []
    state = Assignments(lambda _before, after: heard.append("" if after is None else after.name))
    elsewhere = msgspec.structs.replace(
        stream("S"), leaving=("leaving",), read_replicas=("reading",)
    )
    changes: list[Change] = [Assign(elsewhere)]
    changes += [Introduce(name) for name in ("a", "leaving", "reading", "other")]
    state.apply([Entry(1, 1, EntryKind.NORMAL, encode(each)) for each in changes])
    heard.clear()
    for name in ("a", "leaving", "reading", "other"):
        state.apply([Entry(1, 1, EntryKind.NORMAL, encode(Introduce(name, "new disk")))])
    assert heard == ["S", "S", "S"]


def test_accounts_are_listed_apart() -> None:
    member = Member()
    other = msgspec.structs.replace(stream("A"), account="B")
    member.apply(Assign(stream("Z")), Assign(stream("C")), Assign(other))
    assert [each.name for each in member.state.of_account("$G")] == ["C", "Z"]
    assert [each.name for each in member.state.of_account("B")] == ["A"]


versions = st.integers(1, 6)
stream_names = st.sampled_from(["S", "T"])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Assign, st.builds(stream, stream_names, st.sampled_from(["S-1", "S-2"]))),
    st.builds(Reassign, versions, st.builds(stream, stream_names, st.sampled_from(["S-1", "S-2"]))),
    st.builds(Remove, st.just("$G"), stream_names, versions),
    st.builds(Introduce, st.sampled_from("ab"), st.sampled_from(["", "1", "2"])),
    st.builds(Dismiss, st.sampled_from("ab")),
)


@given(st.lists(changes, max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_a_snapshot_is_as_good_as_the_log(history: list[Change], taken: int, had: int) -> None:
    """A member that has a part of the log takes the snapshot of another, and goes on."""
    first, second = Member(), Member()
    results = first.apply(*history[:taken])
    second.apply(*history[: min(had, taken)])
    snapshot = first.state.snapshot()
    assert isinstance(snapshot, bytes)
    second.state.restore(snapshot)
    second.check()
    results = first.apply(*history[taken:])
    assert second.apply(*history[taken:]) == results
    assert second.streams == first.streams
    assert second.state.servers == first.state.servers
    first.check()


@given(changes)
def test_a_change_is_read_as_it_was_written(change: Change) -> None:
    assert decode(encode(change)) == change


@pytest.mark.parametrize("data", [b"", b"\x02{}", b"\x01", b"\x01{}", b'\x01{"type":"new"}'])
async def test_what_a_later_version_wrote_stops_the_member(data: bytes) -> None:
    with pytest.raises(UnknownChange):
        decode(data)
    member = Member()
    member.apply(Assign(stream("S")))
    assert member.state.apply([Entry(2, 1, EntryKind.NORMAL, data)]) == [None]
    assert member.apply(Assign(stream("T"))) == [None]
    assert isinstance(member.state.failure, UnknownChange)
    refused = member.state.snapshot()
    assert not isinstance(refused, bytes)
    with pytest.raises(UnknownChange):
        await asyncio.wait_for(refused(), 1)
    other = Member()
    other.state.restore(b"\x02")
    assert other.state.failure is not None
