"""The few statistics a benchmark needs."""

from collections.abc import Sequence
from statistics import median

__all__ = ["median", "percentile", "spread"]


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least `percent` of all samples do not exceed (nearest rank)."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def spread(samples: Sequence[float]) -> float:
    """Largest minus smallest, as a share of the median: how noisy the rounds were."""
    middle = median(samples)
    return (max(samples) - min(samples)) / middle if middle else 0.0
