"""Division of sequence ranges into partitions, as pure arithmetic.

- The parts of a range are in order, without gap or overlap, and differ in length by at most one
  sequence. A range that is not empty has at least one part, an empty range none.
- The number of parts is large enough that no part has more than `sequences_max` sequences and that
  all ranges together have at least `parts_min` parts (as Kafka's minPartitions), distributed by
  length.
- A limit on the size of a micro-batch is distributed over the streams in proportion to what waits
  in them, as Kafka's source does: no stream starves, and the sum stays within the limit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SEQUENCES_PER_PART: Final = 1_000_000
"""Maximum sequences of a part on any machine: reading so many rows takes about a second."""
WORTHWHILE_SEQUENCES: Final = 50_000
"""Minimum sequences for a further task: a task costs about 20 ms."""


@dataclass(frozen=True)
class SequenceSpan:
    """Sequences of one stream, [start, end)."""

    stream: str
    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of sequences."""
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Cutting:
    """Limits on the division of ranges.

    `parts_min` and `sequences_max` are the user's; None: not given. `cores` is the driver's guess
    of how many tasks run at once.
    """

    parts_min: int | None = None
    sequences_max: int | None = None
    cores: int = 1


def cutting(parts_min: int | None, sequences_max: int | None) -> Cutting:
    """Return the limits, with the cores of this machine.

    Spark does not tell the planning process how large the cluster is.
    """
    return Cutting(parts_min, sequences_max, os.cpu_count() or 1)


def cut(spans: Sequence[SequenceSpan], how: Cutting) -> list[SequenceSpan]:
    """Return the parts of all ranges, in the order of the ranges."""
    total = sum(span.length for span in spans)
    if total == 0:
        return []
    wanted = how.parts_min or min(how.cores, math.ceil(total / WORTHWHILE_SEQUENCES))
    length_max = how.sequences_max or SEQUENCES_PER_PART
    return [
        part
        for span in spans
        for part in split_evenly(
            span, max(math.ceil(span.length * wanted / total), math.ceil(span.length / length_max))
        )
    ]


def split_evenly(span: SequenceSpan, count: int) -> list[SequenceSpan]:
    """Divide a range into `count` parts of equal length, or fewer if it has fewer sequences."""
    count = min(count, span.length)
    return [
        SequenceSpan(
            span.stream,
            span.start + span.length * index // count,
            span.start + span.length * (index + 1) // count,
        )
        for index in range(count)
    ]


def share(limit: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Distribute a limit over the streams; return the share of each.

    A share is at most what waits in its stream. The sum is `limit`, or everything that waits if
    that is less.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {stream: limit * count // total for stream, count in waiting.items()}
    left = limit - sum(shares.values())
    # The remainder of rounding goes to the streams that lost most by it: a stream in which a single
    # message waits gets its turn.
    by_loss = sorted(waiting, key=lambda stream: (-(limit * waiting[stream] % total), stream))
    for stream in by_loss[:left]:
        shares[stream] += 1
    return shares
