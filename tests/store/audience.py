"""An observer's books: which messages live, by what it was told alone."""

from __future__ import annotations

from natsd.store.log import MessageLog
from natsd.store.observer import CallbackObserver


def live_sequences(log: MessageLog) -> set[int]:
    """By the gaps: there may be wide ones."""
    live: set[int] = set()
    at = log.first_sequence
    for first, last in log.dead.runs():
        live.update(range(at, first))
        at = max(at, last + 1)
    return live | set(range(at, log.last_sequence + 1))


class Audience:
    """Notes removals; between two checks only appends are not told."""

    def __init__(self, log: MessageLog) -> None:
        self.log = log
        self.live = live_sequences(log)
        self.last = log.last_sequence
        self.counts_anew = False
        log.set_observer(CallbackObserver(self.removed, self.emptied))

    def removed(self, sequence: int, slot: int | None) -> None:
        """It still lives when it is told."""
        assert self.log.has(sequence)
        assert slot is not None
        if sequence <= self.last and not self.counts_anew:
            self.live.remove(sequence)

    def emptied(self) -> None:
        self.counts_anew = True

    def check(self) -> None:
        live = live_sequences(self.log)
        if not self.counts_anew:
            assert {n for n in live if n <= self.last} == self.live
        self.live, self.last, self.counts_anew = live, self.log.last_sequence, False
