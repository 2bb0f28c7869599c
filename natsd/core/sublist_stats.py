"""Statistics of a SubList, as `/subsz` shows them; those of several accounts can be added."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubListStats:
    """Counters since the start, and the fan-out of the cached results.

    The fan-out of a result is its number of plain subscriptions and queue groups.
    """

    num_subscriptions: int = 0
    num_cache: int = 0
    num_inserts: int = 0
    num_removes: int = 0
    num_matches: int = 0
    num_cache_hits: int = 0
    max_fanout: int = 0
    total_fanout: int = 0

    @property
    def cache_hit_rate(self) -> float:
        """Cache hits per lookup, from 0 to 1; 0 without lookups."""
        return self.num_cache_hits / self.num_matches if self.num_matches else 0.0

    @property
    def avg_fanout(self) -> float:
        """Mean fan-out of the cached results; 0 without any."""
        return self.total_fanout / self.num_cache if self.num_cache else 0.0

    def __add__(self, other: SubListStats) -> SubListStats:
        return SubListStats(
            num_subscriptions=self.num_subscriptions + other.num_subscriptions,
            num_cache=self.num_cache + other.num_cache,
            num_inserts=self.num_inserts + other.num_inserts,
            num_removes=self.num_removes + other.num_removes,
            num_matches=self.num_matches + other.num_matches,
            num_cache_hits=self.num_cache_hits + other.num_cache_hits,
            max_fanout=max(self.max_fanout, other.max_fanout),
            total_fanout=self.total_fanout + other.total_fanout,
        )

    def to_json(self) -> dict[str, int | float]:
        """Return the statistics with the field names of nats-server's `/subsz`."""
        return {
            "num_subscriptions": self.num_subscriptions,
            "num_cache": self.num_cache,
            "num_inserts": self.num_inserts,
            "num_removes": self.num_removes,
            "num_matches": self.num_matches,
            "cache_hit_rate": self.cache_hit_rate,
            "max_fanout": self.max_fanout,
            "avg_fanout": self.avg_fanout,
        }
