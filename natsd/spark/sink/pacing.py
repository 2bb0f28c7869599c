"""Limit on the rows that a task sends per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SLICES_PER_SECOND: Final = 10
"""Slices of a second: the rows of one slice are sent at once, and at most one slice is caught up on
after a pause."""


def paced(
    batches: Iterable[pa.RecordBatch],
    rate: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of a tenth of a second's rows, each when it is due.

    `rate` is rows per second, above 0. Blocks until a batch is due.
    """
    rows_max = max(1, int(rate / SLICES_PER_SECOND))
    due = clock()
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            part = batch.slice(start, rows_max)
            sleep(max(0.0, due - clock()))
            due = max(due, clock() - 1 / SLICES_PER_SECOND) + part.num_rows / rate
            yield part
