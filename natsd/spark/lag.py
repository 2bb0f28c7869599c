"""LagListener: how far each stream of each query is behind, from the progress that Spark reports.

    spark.streams.addListener(LagListener(print))        # {"ORDERS": 1200} for each progress

- Lag is messages, in sequences: the stream's end, as of the batch's start, less the batch's end. Of
  mode=queue it is what the consumer has not delivered.
- Sources of other kinds in the same query are passed over.
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
    """As Spark reports one source of a query."""

    @property
    def endOffset(self) -> str: ...
    @property
    def latestOffset(self) -> str: ...


class LagListener(StreamingQueryListener):
    """`lags` has the last known ones by query (its name, else its id); `on_lag` hears each."""

    def __init__(self, on_lag: Callable[[str, Lags], None] | None = None) -> None:
        self.lags: dict[str, Lags] = {}
        self._names: dict[str, str] = {}
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        found = lag_of(progress.sources)
        if found:
            self.lags[query] = found
            if self._on_lag is not None:
                self._on_lag(query, found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass  # nothing new: the last lag stands

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.lags.pop(self._names.pop(str(event.id), str(event.id)), None)


def lag_of(sources: Iterable[SourceProgress]) -> Lags:
    """By stream; empty where no source of the query is ours, or none has reported yet."""
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
    """Empty for what is no offset of ours."""
    try:
        found = json.loads(offset or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
