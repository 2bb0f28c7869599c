"""A profile of memory: which Python lines allocated what is still in use.

Python does not remember who allocated what unless it is told to, so a profile shows only what is
allocated while it is taken. It slows the process meanwhile, and stops it for a moment at the end.
Memory that compiled code takes from the C library is not seen.
"""

import asyncio
import threading
import time
import tracemalloc
from typing import Final

from natsd.monitor.profiling.cpu import ProfileInUse
from natsd.monitor.profiling.pprof import Frame, Stack, encode_profile

FRAMES_MAX: Final = 16
_taking = threading.Lock()


async def heap_profile(seconds: float) -> bytes:
    """Return the memory that is allocated in the coming seconds and still in use at their end.

    Raises ProfileInUse if another one is being taken, or if the program traces memory itself.
    """
    if tracemalloc.is_tracing() or not _taking.acquire(blocking=False):
        raise ProfileInUse("heap profiling already in use")
    try:
        tracemalloc.start(FRAMES_MAX)
        try:
            began_ns = time.time_ns()
            await asyncio.sleep(seconds)
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    finally:
        _taking.release()
    return await asyncio.to_thread(_encoded, snapshot, began_ns)


def _encoded(snapshot: tracemalloc.Snapshot, began_ns: int) -> bytes:
    samples: dict[Stack, tuple[int, ...]] = {}
    for statistic in snapshot.statistics("traceback"):
        # Without names of functions, the place stands for them.
        stack = tuple(
            Frame(f"{each.filename}:{each.lineno}", each.filename, each.lineno)
            for each in reversed(statistic.traceback)
        )
        samples[stack] = (statistic.count, statistic.size)
    kinds = [("inuse_objects", "count"), ("inuse_space", "bytes")]
    return encode_profile(
        kinds, samples, time_ns=began_ns, duration_ns=time.time_ns() - began_ns, period=1
    )
