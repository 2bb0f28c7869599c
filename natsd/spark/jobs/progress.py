"""How far a streaming query is, told while it runs; and sizes as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 1
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a job is: messages done, and how many are known to wait."""

    done: int
    waiting: int


def following(query: StreamingQuery, advance: Callable[[Advance], None] | None) -> None:
    """Wait for the end of a query; its error is raised. Stops it when the wait is interrupted."""
    told = _Told(advance)
    try:
        while not query.awaitTermination(POLL_SECONDS):
            told.tell(query.recentProgress)
        told.tell(query.recentProgress)  # of batches since, or of a query shorter than a poll
    finally:
        query.stop()


class _Told:
    """Which batches were told."""

    def __init__(self, advance: Callable[[Advance], None] | None) -> None:
        self._advance = advance
        self._last = -1
        self._done = 0

    def tell(self, progresses: Iterable[StreamingQueryProgress]) -> None:
        from natsd.spark.lag import lag_of

        for progress in progresses:
            if progress.batchId <= self._last:
                continue
            self._last = progress.batchId
            self._done += progress.numInputRows
            if self._advance is not None:
                self._advance(Advance(self._done, sum(lag_of(progress.sources).values())))


def shown_bytes(size: int) -> str:
    """Bytes with a unit."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
