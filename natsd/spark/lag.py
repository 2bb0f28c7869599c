"""LagListener: how many messages each stream of a query lags, from Spark's progress reports.

    spark.streams.addListener(LagListener(print))        # {"ORDERS": 1200} for each progress

- Lag is a count of sequences: the end of the stream when the batch began, minus the end of the
  batch. In mode=queue it is the number of messages that the consumer has not yet delivered.
- Sources of other formats in the same query are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

Lags = dict[str, int]


class SourceProgress(Protocol):
    """The fields that LagListener reads of pyspark's `SourceProgress`."""

    @property
    def endOffset(self) -> str:
        """Offset at which the batch ended, as JSON."""

    @property
    def latestOffset(self) -> str:
        """Latest offset that the source reported, as JSON."""


class LagListener(StreamingQueryListener):
    """A listener that keeps the last known lag of each query.

    `lags` maps a query (its name, or its id if it has no name) to lag in messages by stream.
    `on_lag(query, lags)` is called for each progress report that has a lag.
    """

    def __init__(self, on_lag: Callable[[str, Lags], None] | None = None) -> None:
        self.lags: dict[str, Lags] = {}
        self._names: dict[str, str] = {}
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the name of the query."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Compute the lag of the query, and report it to `on_lag`."""
        progress = event.progress
        query = progress.name or str(progress.id)
        found = lag_of(progress.sources)
        if found:
            self.lags[query] = found
            if self._on_lag is not None:
                self._on_lag(query, found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Keep the last lag: there is no new data."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the lag of the query."""
        self.lags.pop(self._names.pop(str(event.id), str(event.id)), None)


def lag_of(sources: Iterable[SourceProgress]) -> Lags:
    """Return the lag in messages by stream; empty: no source of this format has reported."""
    lags: Lags = {}
    for source in sources:
        ends, latest = decoded(source.endOffset), decoded(source.latestOffset)
        for stream, tail in latest.items():
            if isinstance(tail, dict) and "pending" in tail:
                lags[stream] = lags.get(stream, 0) + int(tail["pending"])
            elif isinstance(tail, int) and isinstance(ends.get(stream), int):
                lags[stream] = max(lags.get(stream, 0), tail - ends[stream], 0)
    return lags


def decoded(offset: str | None) -> dict[str, Any]:
    """Return the offset as a dict; empty: it is not an offset of this format."""
    try:
        found = json.loads(offset or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
