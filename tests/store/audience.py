"""An observer that keeps the set of live messages from the notices of a log alone."""

from __future__ import annotations

from natsd.store.log.message_log import CallbackObserver, MessageLog


def live_sequences(log: MessageLog) -> set[int]:
    """Return the live sequences of a log.

    They are computed from the runs of dead sequences, since the gaps may be very wide.
    """
    live: set[int] = set()
    at = log.first_sequence
    for first, last in log.dead.runs():
        live.update(range(at, first))
        at = max(at, last + 1)
    return live | set(range(at, log.last_sequence + 1))


class Audience:
    """A set of live sequences that follows the removals of a log.

    Removals are noted as the log announces them. Appends are not announced: `check` reads them from
    the log.
    """

    def __init__(self, log: MessageLog) -> None:
        self.log = log
        self.live = live_sequences(log)
        self.last = log.last_sequence
        self.counts_anew = False
        log.set_observer(CallbackObserver(self.removed, self.emptied))

    def removed(self, sequence: int, slot: int | None) -> None:
        """Note a removal; the message is still live when the log announces it."""
        assert self.log.has(sequence)
        assert slot is not None
        if sequence <= self.last and not self.counts_anew:
            self.live.remove(sequence)

    def emptied(self) -> None:
        """Note that the whole log was emptied, so that the next check counts anew."""
        self.counts_anew = True

    def check(self) -> None:
        """Assert that the noted live sequences are those of the log, and add the appends."""
        live = live_sequences(self.log)
        if not self.counts_anew:
            assert {n for n in live if n <= self.last} == self.live
        self.live, self.last, self.counts_anew = live, self.log.last_sequence, False
