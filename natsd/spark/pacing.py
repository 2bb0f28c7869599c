"""Record batches no faster than so many rows in a second.

- Rows come in slices of a tenth of a second, or one by one where that is less than a row.
- Who could not keep up may make up for a tenth of a second, not for more: so no second has more
  rows than 1.2 times the rate.
- Whoever takes them sends them at once: pacing anywhere before that, in a UDF for example, would
  be undone by Spark's buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_S: Final = 0.1


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order."""
    rows_max = max(1, int(rows_per_s * SLICE_S))
    due = clock()
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            part = batch.slice(start, rows_max)
            sleep(max(0.0, due - clock()))
            due = max(due, clock() - SLICE_S) + part.num_rows / rows_per_s
            yield part
