"""How long servers of tests take to start and to stop: `python -m natsd.bench.starts`.

The first start of a kind imports modules, or starts the fork server, and stands by itself.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from natsd import testing
from natsd.bench.statistics import median, percentile

STARTS: Final = 200
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "thread": {},
    "thread, JetStream": {"jetstream": True},
    "process": {"process": True},
    "process, JetStream": {"process": True, "jetstream": True},
}


def start_and_stop(options: Mapping[str, Any]) -> tuple[float, float]:
    """Return the milliseconds of a start and of the stop after it."""
    began = time.perf_counter()
    with testing.server(**options):
        started = time.perf_counter()
    return (started - began) * 1e3, (time.perf_counter() - started) * 1e3


def main() -> None:
    """Print a line for each kind of server, in milliseconds."""
    print("ms                    first   start: median     p95   stop: median     p95")
    for kind, options in KINDS.items():
        first, _ = start_and_stop(options)
        starts, stops = zip(*(start_and_stop(options) for _ in range(STARTS)), strict=True)
        figures = [first] + [
            figure for times in (starts, stops) for figure in (median(times), percentile(times, 95))
        ]
        print("{:20} {:6.0f} {:15.1f} {:7.1f} {:14.1f} {:7.1f}".format(kind, *figures))


if __name__ == "__main__":
    main()
