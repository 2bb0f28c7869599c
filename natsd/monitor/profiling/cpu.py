"""A profile of processor time: which Python functions use it, sampled by a thread.

    every 10 ms, for each thread:   processor time since the last sample ─▶ the thread's stack

- A thread that waits uses no processor time and does not appear, as in a Go profile.
- Time in compiled code counts for the Python function that called it. Time of threads without
  Python, which write files, is the sample `threads without Python`.
- One profile is taken at a time. Nothing runs while none is taken.
"""

import asyncio
import sys
import threading
import time
from collections import Counter
from typing import Final

from natsd.monitor.profiling.pprof import Frame, Stack, encode_profile
from natsd.monitor.profiling.stacks import frames_of

PERIOD_S: Final = 0.01
STACKS_MAX: Final = 50_000
"""Different stacks of a profile; more are counted as `other stacks`."""
_WITHOUT_PYTHON: Final = (Frame("threads without Python"),)
_OTHERS: Final = (Frame("other stacks"),)
_taking = threading.Lock()


class ProfileInUse(Exception):
    """Another profile is being taken."""


async def cpu_profile(seconds: float) -> bytes:
    """Return the profile of the coming seconds. Raises ProfileInUse."""
    if not _taking.acquire(blocking=False):
        raise ProfileInUse("cpu profiling already in use")
    sampler = Sampler()
    try:
        sampler.start()
        await asyncio.sleep(seconds)
    finally:
        sampler.stop()
        _taking.release()
    return await asyncio.to_thread(sampler.encoded)


class Sampler:
    """A thread that counts processor time by stack, from `start` to `stop`."""

    def __init__(self) -> None:
        self._samples: Counter[Stack] = Counter()
        self._values: Counter[Stack] = Counter()
        self._began_ns = time.time_ns()
        self._used_ns: dict[int, int] = {}
        self._process_ns = time.process_time_ns()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="natsd-profiler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._count()  # the threads' times so far
        self._samples.clear()
        self._values.clear()
        self._thread.start()

    def stop(self) -> None:
        """End sampling; the thread ends within a period."""
        self._is_over.set()

    def encoded(self) -> bytes:
        """Wait for the thread to end, and return its samples as a profile."""
        self._thread.join()
        ended_ns = time.time_ns()
        samples = {stack: (self._samples[stack], used) for stack, used in self._values.items()}
        return encode_profile(
            [("samples", "count"), ("cpu", "nanoseconds")],
            samples,
            time_ns=self._began_ns,
            duration_ns=ended_ns - self._began_ns,
            period=round(PERIOD_S * 1e9),
        )

    def _run(self) -> None:
        while not self._is_over.wait(PERIOD_S):
            self._count()

    def _count(self) -> None:
        """Count the processor time that each thread has used since the last call."""
        frames = sys._current_frames()
        # A thread whose frame is listed cannot end before this thread lets others run.
        used = {ident: used_ns for ident in frames if (used_ns := thread_time_ns(ident))}
        now_ns = time.process_time_ns()
        counted_ns = 0
        for ident, used_ns in used.items():
            before_ns = self._used_ns.get(ident, 0)
            delta_ns = used_ns - before_ns if used_ns >= before_ns else used_ns
            counted_ns += delta_ns
            if delta_ns and ident != self._thread.ident:
                self._add(frames_of(frames[ident]), delta_ns)
        rest_ns = now_ns - self._process_ns - counted_ns
        if rest_ns > 0:
            self._add(_WITHOUT_PYTHON, rest_ns)
        self._used_ns, self._process_ns = used, now_ns

    def _add(self, stack: Stack, used_ns: int) -> None:
        if stack not in self._values and len(self._values) >= STACKS_MAX:
            stack = _OTHERS
        self._samples[stack] += 1
        self._values[stack] += used_ns


def thread_time_ns(ident: int) -> int:
    """Return the processor time of a living thread, in ns.

    Where the system does not tell, the main thread has the time of the process, and others none.
    """
    if hasattr(time, "pthread_getcpuclockid"):
        return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
    return time.process_time_ns() if ident == threading.main_thread().ident else 0
