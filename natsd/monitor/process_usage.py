"""How much memory and processor time this process uses.

- Memory is what is resident now; where the system does not tell (macOS), the most there ever was.
- Processor use is the share of one core since the previous sample, in percent, with one decimal.
  Samples less than a second apart would be noise: they repeat the previous answer.
"""

import os
import resource
import sys
import time
from typing import Final

SAMPLE_NS_MIN: Final = 1_000_000_000
_STATM: Final = "/proc/self/statm"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessorUse:
    """The process's share of a core, from one sample to the next."""

    def __init__(self, now_ns: int, used_ns: int) -> None:
        self._sampled_ns = now_ns
        self._used_ns = used_ns
        self._percent = 0.0

    def sample(self, now_ns: int, used_ns: int) -> float:
        """The share since the last sample, given the clock and the processor time used so far."""
        elapsed_ns = now_ns - self._sampled_ns
        if elapsed_ns >= SAMPLE_NS_MIN:
            self._percent = round(100 * (used_ns - self._used_ns) / elapsed_ns, 1)
            self._sampled_ns, self._used_ns = now_ns, used_ns
        return self._percent


def processor_time_ns() -> int:
    """User and system time of all threads so far."""
    return time.process_time_ns()


def resident_bytes() -> int:
    """Memory the process occupies."""
    try:
        with open(_STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def cores() -> int:
    """Cores the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
