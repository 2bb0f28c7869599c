"""The few statistics that a benchmark needs."""

from collections.abc import Sequence
from statistics import median

__all__ = ["median", "percentile", "spread"]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that at least `percent` % of the samples do not exceed.

    This is the nearest-rank method. Raises ValueError if there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spread(samples: Sequence[float]) -> float:
    """Return the difference of the largest and smallest sample as a share of the median."""
    middle = median(samples)
    return (max(samples) - min(samples)) / middle if middle else 0.0
