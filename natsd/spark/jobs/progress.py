"""Progress of a streaming query while it runs, and sizes with units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS: Final = 1
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress of a job: messages done, and messages known to wait."""

    done: int
    waiting: int


def trigger_of(follow: bool, interval: str) -> dict[str, Any]:
    """Return the trigger: a batch each `interval` with `follow`, else all available messages."""
    return {"processingTime": interval} if follow else {"availableNow": True}


def following(query: StreamingQuery, advance: Callable[[Advance], None] | None) -> None:
    """Wait for the end of a query, and raise its error; an interrupted wait stops the query.

    `advance` is called for each progress report. Blocks.
    """
    from natsd.spark.lag import lag_of

    last, done, has_ended = -1, 0, False
    try:
        while not has_ended:
            has_ended = bool(query.awaitTermination(POLL_SECONDS))
            for progress in query.recentProgress:
                if progress.batchId > last:
                    last = progress.batchId
                    done += progress.numInputRows
                    if advance is not None:
                        advance(Advance(done, sum(lag_of(progress.sources).values())))
    finally:
        query.stop()


def shown_bytes(size: int) -> str:
    """Return the size with a unit."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
