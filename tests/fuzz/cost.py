"""Bounds on the cost of an input: time and memory in proportion to its length.

    check_cost(target.check, data)      runs the target's check and checks its cost

CPU time of this thread is measured, so that a busy machine is no failure. The bounds are wide: an
algorithm with quadratic cost or a table exceeds them soon.
"""

import time
import tracemalloc
from collections.abc import Callable

CPU_S = 1.0
CPU_S_PER_BYTE = 0.5e-3
MEMORY_BYTES = 8 << 20
MEMORY_PER_BYTE = 2_000


class TooDear(AssertionError):
    """An input costs more than its length explains."""


def check_cost(check: Callable[[bytes], None], data: bytes) -> None:
    """Run the check; raise its exceptions, and TooDear if it takes too much CPU time."""
    began_s = time.thread_time()
    check(data)
    spent_s, most_s = time.thread_time() - began_s, CPU_S + CPU_S_PER_BYTE * len(data)
    if spent_s > most_s:
        raise TooDear(f"{len(data)} bytes took {spent_s:.2f} s of {most_s:.2f}")


def check_memory(check: Callable[[bytes], None], data: bytes) -> None:
    """Run the check and raise TooDear if its peak memory is too large; this takes longer."""
    tracemalloc.start()
    try:
        check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = MEMORY_BYTES + MEMORY_PER_BYTE * len(data)
    if peak > most:
        raise TooDear(f"{len(data)} bytes held {peak:,} of {most:,}")
