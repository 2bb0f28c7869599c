"""Message ids within the duplicate window (`Nats-Msg-Id`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from natsd.core.steps import at_once
from natsd.jetstream.stream.checks import DuplicateWindow
from natsd.store.errors import DamagedEncoding

ids = st.binary(min_size=1, max_size=3) | st.integers(0, 400).map(lambda n: b"id-%d" % n)


@dataclass
class Seen:
    """An id; it is removed from the list when another message has it."""

    sequence: int
    time_ns: int
    id: bytes
    is_listed: bool = True


@dataclass
class PlainWindow:
    """A model of the window: ids in the order of their sequences."""

    seen: list[Seen] = field(default_factory=list)

    def add(self, added: Seen) -> None:
        for entry in self.seen:
            entry.is_listed &= entry.id != added.id
        self.seen.append(added)

    def listed(self) -> list[Seen]:
        return [entry for entry in self.seen if entry.is_listed]

    def find(self, wanted: bytes, since_ns: int) -> int:
        for entry in self.listed():
            if entry.id == wanted and entry.time_ns > since_ns:
                return entry.sequence
        return 0


class WindowMachine(RuleBasedStateMachine):
    """The window and the list agree after any changes."""

    def __init__(self) -> None:
        super().__init__()
        self.window = DuplicateWindow(seed=7)
        self.plain = PlainWindow()
        self.sequence = self.now_ns = 0

    @rule(wanted=ids, step=st.integers(1, 5), later=st.integers(0, 5))
    def add(self, wanted: bytes, step: int, later: int) -> None:
        self.sequence += step
        self.now_ns += later
        self.window.add_id(wanted, self.sequence, self.now_ns)
        self.plain.add(Seen(self.sequence, self.now_ns, wanted))

    @rule(count=st.integers(1, 400))
    def add_many(self, count: int) -> None:
        for number in range(count):
            self.add(b"many-%d" % number, 1, 1)

    @rule(back=st.integers(0, 600), most=st.integers(1, 1000))
    def expire(self, back: int, most: int) -> None:
        until_ns = self.now_ns - back
        old = [entry for entry in self.plain.seen if entry.time_ns <= until_ns]
        assert self.window.expire_ids(until_ns, most) == (len(old) > most)
        del self.plain.seen[: min(most, len(old))]

    @rule(back=st.integers(0, 600))
    def roll_back(self, back: int) -> None:
        self.sequence = max(0, self.sequence - back)
        assert not self.window.forget_ids_above(self.sequence)
        self.plain.seen = [e for e in self.plain.seen if e.sequence <= self.sequence]

    @rule(wanted=ids, back=st.integers(-1, 600))
    def find(self, wanted: bytes, back: int) -> None:
        since_ns = self.now_ns - back
        assert self.window.find_id(wanted, since_ns) == self.plain.find(wanted, since_ns)

    @rule()
    def start_again(self) -> None:
        again = DuplicateWindow(seed=8)
        at_once(again.decode(self.window.encode(), -1, self.sequence))
        self.window = again
        self.plain.seen = self.plain.listed()

    @invariant()
    def agree(self) -> None:
        assert len(self.window) == len(self.plain.listed())


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_memory_follows_what_is_remembered() -> None:
    window = DuplicateWindow()
    for number in range(100_000):
        window.add_id(b"%020d" % number, number + 1, number)
    assert window.memory_bytes < 100_000 * 120
    window.expire_ids(99_000)
    assert window.memory_bytes < 100_000 * 120 / 20
    window.expire_ids(100_000)
    assert window.memory_bytes == 0
    window.add_id(b"again", 100_001, 100_001)
    assert window.find_id(b"again") == 100_001


@given(st.binary(max_size=60))
def test_any_bytes_are_an_encoding_or_damaged(data: bytes) -> None:
    window = DuplicateWindow()
    try:
        at_once(window.decode(data, -1, 2**62))
    except DamagedEncoding:
        assert len(window) == 0


def test_what_is_too_old_or_never_was_stays_away() -> None:
    window = DuplicateWindow()
    for sequence in (1, 2, 3):
        window.add_id(b"%d" % sequence, sequence, sequence * 10)
    again = DuplicateWindow()
    at_once(again.decode(window.encode(), since_ns=10, upto=2))
    assert [again.find_id(b"%d" % sequence) for sequence in (1, 2, 3)] == [0, 2, 0]
    with pytest.raises(DamagedEncoding):
        at_once(DuplicateWindow().decode(window.encode()[:-1], -1, 9))


def test_ids_are_encoded_in_parts() -> None:
    window, number, parts = DuplicateWindow(), 0, []
    for sequence in range(1, 1001):
        window.add_id(b"%d" % sequence, sequence, sequence)
    window.expire_ids(300)  # the parts begin with the ids that are left
    while number or not parts:
        part, number = window.encode_some(number, 900, 64)
        parts.append(part)
    again = DuplicateWindow()
    at_once(again.decode(b"".join(parts), -1, 1000))
    assert [sequence for sequence, _, _ in again.ids()] == list(range(301, 901))
    assert (window.oldest_sequence, DuplicateWindow().oldest_sequence) == (301, 0)
