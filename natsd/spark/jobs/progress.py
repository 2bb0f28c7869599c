"""How far a streaming query is, told while it runs; and sizes as people read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    last, done = -1, 0
    try:
        while not query.awaitTermination(POLL_SECONDS):
            for progress in query.recentProgress:
                number = int(progress["batchId"])
                if number > last:
                    last = number
                    done += int(progress["numInputRows"])
                    if advance is not None:
                        advance(Advance(done, waiting_of(progress)))
    finally:
        query.stop()


def waiting_of(progress: Mapping[str, Any]) -> int:
    """Messages between what a batch ended with and what the streams had then."""
    waiting = 0
    for source in progress["sources"]:
        ended, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        waiting += sum(max(0, latest[name] - ended[name]) for name in ended if name in latest)
    return waiting


def _offsets(given: Any) -> dict[str, int]:
    offsets = json.loads(given) if isinstance(given, str) else given
    return {str(name): int(value) for name, value in (offsets or {}).items()}


def shown_bytes(size: int) -> str:
    """Bytes with a unit."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
