"""What an input may cost: time and memory in proportion to its length, whatever is in it.

    check_cost(target.check, data)      the target's own check, and that it took no more than that

CPU time of this thread is counted, so that a busy machine is no failure; the bounds are wide, for
what has a square or a table behind it leaves them soon.
"""

import time
import tracemalloc
from collections.abc import Callable

CPU_S = 1.0
CPU_S_PER_BYTE = 0.5e-3
MEMORY_BYTES = 8 << 20
MEMORY_PER_BYTE = 2_000


class TooDear(AssertionError):
    """An input that costs more than its length explains."""


def check_cost(check: Callable[[bytes], None], data: bytes) -> None:
    """Raises what the check raises, and TooDear."""
    began_s = time.thread_time()
    check(data)
    spent_s, most_s = time.thread_time() - began_s, CPU_S + CPU_S_PER_BYTE * len(data)
    if spent_s > most_s:
        raise TooDear(f"{len(data)} bytes took {spent_s:.2f} s of {most_s:.2f}")


def check_memory(check: Callable[[bytes], None], data: bytes) -> None:
    """The same of what was held at most, which takes longer to find out."""
    tracemalloc.start()
    try:
        check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = MEMORY_BYTES + MEMORY_PER_BYTE * len(data)
    if peak > most:
        raise TooDear(f"{len(data)} bytes held {peak:,} of {most:,}")
