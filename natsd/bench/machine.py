"""The machine and time of a benchmark: a measured number means nothing without them."""

import datetime
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from natsd.config.resources import raise_open_files_limit

SPARE_DESCRIPTORS = 200


@dataclass(frozen=True)
class Machine:
    """The header of a report."""

    date: str
    system: str
    processor: str
    cores: int
    python: str
    load_average: float

    @classmethod
    def here_and_now(cls) -> "Machine":
        """Return the description of this machine at this moment."""
        return cls(
            date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            processor=processor_name(),
            cores=core_count(),
            python=platform.python_version(),
            load_average=round(os.getloadavg()[0], 2),
        )

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return (
            f"{self.date} · {self.system} · {self.processor}, {cores} · Python {self.python} · "
            f"load average {self.load_average} at start"
        )


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    else:
        return os.cpu_count() or 1


def processor_name() -> str:
    """Return the processor's name, or "unknown processor" if the system does not tell it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def clients_max() -> int:
    """Return how many connections one process can hold; raises the limit of open files first."""
    return raise_open_files_limit() - SPARE_DESCRIPTORS
