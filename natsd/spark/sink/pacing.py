"""Rows, no more in a second than was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SLICES_PER_SECOND: Final = 10
"""What is sent at once, and what may be caught up with after a pause."""


def paced(
    batches: Iterable[pa.RecordBatch],
    rate: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a tenth of a second's, each when it is due; `rate` > 0."""
    rows_max = max(1, int(rate / SLICES_PER_SECOND))
    due = clock()
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            part = batch.slice(start, rows_max)
            sleep(max(0.0, due - clock()))
            due = max(due, clock() - 1 / SLICES_PER_SECOND) + part.num_rows / rate
            yield part
