"""When the commands that a leader's stream proposes become an entry of its RAFT group.

    client 1   put ─┐          ┌─ answer, put ─┐
    client 2   put ─┼─ entry ──┼─ answer, put ─┼─ entry ──…
    client 3   put ─┘          └─ answer, put ─┘

The servers do about the same work for an entry of a hundred commands as for one of one. So commands
wait while an entry is under way, and become one entry together.

Clients that each wait for their answer send again as soon as an entry has ended. An entry of those
who happen to be first would have all others wait for two rounds. So few commands wait until as many
are there as the entry that has ended had, and waited behind it, though no longer than `PAUSE_S`.
Where they do not come again, that is found out with ever fewer tries.

Source: PostgreSQL's `commit_delay` and `commit_siblings`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

UNDER_WAY_MAX: Final = 2
"""Entries under way with which commands wait for later ones, unless they fill an entry."""
FEW: Final = 32
"""Fewer commands wait even for one entry, and for those that are expected."""
PAUSE_S: Final = 0.002
RESTS_MAX: Final = 256
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class Gathering:
    """Counts the entries of one leadership that are under way, and those that may come together."""

    def __init__(self, call_later: CallLater, submit: Callable[[], None]) -> None:
        """Call `submit` when commands have waited long enough."""
        self._call_later = call_later
        self._submit = submit
        self._timer: asyncio.TimerHandle | None = None
        self.begin()

    def begin(self) -> None:
        """Begin a leadership: no entry is under way."""
        self._end_pause()
        self._under_way = 0
        self._newest = 0  # commands in the newest entry
        self._expected = 0  # commands that are waited for; 0: there is no reason to wait
        self._rests = 0  # entries that go without a pause, after pauses in vain
        self._rests_left = 0

    def close(self) -> None:
        """Call `submit` no more."""
        self._end_pause()

    def is_due(self, waiting: int) -> bool:
        """Return whether so many commands, which do not fill an entry, become one now."""
        if self._under_way:
            return waiting >= FEW and self._under_way < UNDER_WAY_MAX
        if waiting >= self._expected:
            return True
        if self._timer is None:
            self._timer = self._call_later(PAUSE_S, self._pause_is_over)
        return False

    def submitted(self, commands: int) -> None:
        """Take note of an entry with so many commands."""
        if self._timer is not None:  # all have come
            self._end_pause()
            self._rests = 0
        self._under_way += 1
        self._newest = commands

    def ended(self, waiting: int) -> None:
        """Take note that an entry has ended, behind which so many commands wait."""
        self._under_way -= 1
        self._expected = 0
        if self._rests_left:
            self._rests_left -= 1
        elif not self._under_way:
            self._expected = min(self._newest + waiting, FEW)

    def _pause_is_over(self) -> None:
        self._timer = None
        self._expected = 0
        self._rests = self._rests_left = min(2 * self._rests + 1, RESTS_MAX)
        self._submit()

    def _end_pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
