"""The memory and processor time that this process uses.

- Memory is the resident memory now; where the system does not tell it (macOS), its peak.
- Processor use is the share of one core since the previous sample, in percent with one decimal.
  Samples less than a second apart would be noise: they repeat the previous value.
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
    """The process's share of a core, in percent, from one sample to the next."""

    def __init__(self, now_ns: int, used_ns: int) -> None:
        self._sampled_ns = now_ns
        self._used_ns = used_ns
        self._percent = 0.0

    def sample(self, now_ns: int, used_ns: int) -> float:
        """Return the percentage of a core since the last sample.

        `now_ns` is the monotonic time, `used_ns` the processor time used so far. The previous
        percentage is returned again within SAMPLE_NS_MIN.
        """
        elapsed_ns = now_ns - self._sampled_ns
        if elapsed_ns >= SAMPLE_NS_MIN:
            self._percent = round(100 * (used_ns - self._used_ns) / elapsed_ns, 1)
            self._sampled_ns, self._used_ns = now_ns, used_ns
        return self._percent


def processor_time_ns() -> int:
    """Return the user and system time of all threads so far, in ns."""
    return time.process_time_ns()


def resident_bytes() -> int:
    """Return the resident memory of the process in bytes; without /proc its peak."""
    try:
        with open(_STATM, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def cores() -> int:
    """Return the number of cores that the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
