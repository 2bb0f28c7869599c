"""Cutting ranges of sequences into partitions: pure arithmetic.

- The parts of a range follow each other without gap or overlap, in order, and differ by at most one
  sequence. A range that is not empty has at least one part, an empty one none.
- How many: enough that no part has more than `sequences_max`, and no fewer than `parts_min` of all
  ranges together (as Kafka's minPartitions), shared by their length.
- A limit on how much a micro-batch takes is shared by streams in proportion to what waits in them,
  as Kafka's: none of them starves, and the sum stays within the limit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SEQUENCES_PER_PART: Final = 1_000_000
"""More than this is cut, whatever the machine: so many rows are a second's work."""
WORTHWHILE_SEQUENCES: Final = 50_000
"""A task costs some 20 ms: fewer are not spread over cores."""


@dataclass(frozen=True)
class Span:
    """Sequences of one stream, [start, end)."""

    stream: str
    start: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Cutting:
    """How finely. `cores` is the driver's guess of what runs at once."""

    parts_min: int | None = None
    sequences_max: int | None = None
    cores: int = 1


def cutting(parts_min: int | None, sequences_max: int | None) -> Cutting:
    """On this machine: a planner's process is not told how large the cluster is."""
    return Cutting(parts_min, sequences_max, os.cpu_count() or 1)


def cut(spans: Sequence[Span], how: Cutting) -> list[Span]:
    """The partitions, streams in their order."""
    total = sum(span.length for span in spans)
    if total == 0:
        return []
    wanted = how.parts_min or min(how.cores, math.ceil(total / WORTHWHILE_SEQUENCES))
    length_max = how.sequences_max or SEQUENCES_PER_PART
    return [
        part
        for span in spans
        for part in pieces(
            span, max(math.ceil(span.length * wanted / total), math.ceil(span.length / length_max))
        )
    ]


def pieces(span: Span, count: int) -> list[Span]:
    """So many of it, as equal as can be; never an empty one."""
    count = min(count, span.length)
    return [
        Span(
            span.stream,
            span.start + span.length * index // count,
            span.start + span.length * (index + 1) // count,
        )
        for index in range(count)
    ]


def share(limit: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """How many each stream may give, at most what waits; the sum is at most `limit`, and all of it
    where so much waits."""
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {stream: limit * count // total for stream, count in waiting.items()}
    left = limit - sum(shares.values())
    # What rounding down left goes to those it cost most: one waiting alone is not overlooked.
    by_loss = sorted(waiting, key=lambda stream: (-(limit * waiting[stream] % total), stream))
    for stream in by_loss[:left]:
        shares[stream] += 1
    return shares
