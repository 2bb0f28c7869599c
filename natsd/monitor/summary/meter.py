"""Rates from counters: their growth per second since the previous look at them."""

from collections.abc import Hashable
from typing import Final

STALE_NS: Final = 15_000_000_000
"""A look that is older says nothing about the present: there are no rates then."""


class Meter:
    """The counters of many things, as of the latest two looks."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[int, ...]] = {}
        self._now: dict[Hashable, tuple[int, ...]] = {}
        self._looked_ns = 0
        self._elapsed_s = 0.0

    def look(self, now_ns: int) -> None:
        """Begin another look; things that the previous look did not see are forgotten."""
        elapsed_ns = now_ns - self._looked_ns
        is_fresh = 0 < elapsed_ns < STALE_NS
        self._before = self._now if is_fresh else {}
        self._now = {}
        self._elapsed_s = elapsed_ns / 1e9
        self._looked_ns = now_ns

    def rates(self, thing: Hashable, counters: tuple[int, ...]) -> tuple[float, ...] | None:
        """Return the growth per second of each counter; None if the previous look saw no such."""
        self._now[thing] = counters
        before = self._before.get(thing)
        if before is None:
            return None
        elapsed_s = self._elapsed_s
        return tuple(
            max(now - then, 0) / elapsed_s for now, then in zip(counters, before, strict=True)
        )

    def forget(self) -> None:
        """Free the memory, because nobody looks."""
        self._before, self._now, self._looked_ns = {}, {}, 0


def rounded(rate: float | None) -> float | None:
    """Return a rate as it is shown: one decimal if it is small."""
    if rate is None:
        return None
    return round(rate) if rate >= 100 else round(rate, 1)
