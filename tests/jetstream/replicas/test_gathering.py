"""Commands that wait to become an entry with others: a timer by hand in place of the loop's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.replicas.gathering import FEW, PAUSE_S, RESTS_MAX, UNDER_WAY_MAX, Gathering


class Leader:
    """Commands that wait, and the entries that they became."""

    def __init__(self) -> None:
        self.waiting = 0
        self.entries: list[int] = []
        self.under_way = 0
        self.pauses = 0
        self._timer: Timer | None = None
        self.gathering = Gathering(self._call_later, self.submit)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        assert delay_s == PAUSE_S and not self.is_pausing
        self.pauses += 1
        self._timer = Timer(callback)
        return self._timer

    @property
    def is_pausing(self) -> bool:
        return self._timer is not None and not self._timer.is_over

    def submit(self) -> None:
        if self.waiting and self.gathering.is_due(self.waiting):
            self.gathering.submitted(self.waiting)
            self.entries.append(self.waiting)
            self.under_way += 1
            self.waiting = 0

    def propose(self, commands: int = 1) -> None:
        for _ in range(commands):
            self.waiting += 1
            self.submit()

    def end_entry(self) -> None:
        self.under_way -= 1
        self.gathering.ended(self.waiting)
        self.submit()

    def let_time_pass(self) -> None:
        if self._timer is not None and not self._timer.is_over:
            self._timer.is_over = True
            self._timer.callback()


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


def test_a_client_alone_never_waits() -> None:
    leader = Leader()
    for _ in range(10):
        leader.propose()
        leader.end_entry()
    assert leader.entries == [1] * 10 and leader.pauses == 0


def test_clients_that_each_wait_for_their_answer_share_an_entry() -> None:
    leader = Leader()
    leader.propose(16)  # the first one is an entry alone; the others wait for it
    assert leader.entries == [1]
    for _ in range(5):
        leader.end_entry()
        leader.propose(16 - leader.waiting)  # those who were answered come again
    assert leader.entries == [1] + [16] * 5


def test_a_client_that_stays_away_is_not_waited_for_again_and_again() -> None:
    leader = Leader()
    for _ in range(1000):  # each time other clients, who do not come again
        leader.propose(2)
        leader.end_entry()
        leader.let_time_pass()
        while leader.under_way:
            leader.end_entry()
    assert leader.pauses < len(leader.entries) / RESTS_MAX + 10


def test_clients_who_come_again_after_all_are_waited_for_at_once() -> None:
    leader = Leader()
    leader.propose(2)
    leader.end_entry()
    leader.let_time_pass()  # in vain: the next entry goes without a pause
    assert leader.entries == [1, 1]
    leader.end_entry()
    leader.propose(2)
    assert leader.entries == [1, 1, 1]
    leader.end_entry()
    assert leader.is_pausing
    leader.propose()
    assert leader.entries == [1, 1, 1, 2]
    leader.end_entry()
    leader.propose(2)
    assert leader.entries == [1, 1, 1, 2, 2]


def test_many_commands_go_behind_an_entry_under_way() -> None:
    leader = Leader()
    leader.propose()
    leader.propose(FEW - 1)
    assert leader.entries == [1]
    leader.propose()
    assert leader.entries == [1, FEW] and len(leader.entries) == UNDER_WAY_MAX
    leader.propose(10 * FEW)
    assert len(leader.entries) == UNDER_WAY_MAX


def test_a_new_leadership_has_no_entries_under_way() -> None:
    leader = Leader()
    leader.propose(16)
    leader.end_entry()
    assert leader.is_pausing
    leader.waiting = 0
    leader.gathering.begin()
    assert not leader.is_pausing
    leader.propose()
    assert leader.entries == [1, 1]


@given(st.lists(st.sampled_from(["propose", "end", "time"]), max_size=200))
def test_no_command_waits_for_good(steps: list[str]) -> None:
    """Whatever happens, what waits has an entry under way, or a timer, that it waits for."""
    leader = Leader()
    for step in steps:
        if step == "propose":
            leader.propose()
        elif step == "end" and leader.under_way:
            leader.end_entry()
        else:
            leader.let_time_pass()
        assert not leader.waiting or leader.under_way or leader.is_pausing
