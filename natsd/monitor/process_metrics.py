"""The metrics of the process and of its event loop, kept by prometheus-client.

- `process_*` and `python_*` are those of prometheus-client, `natsd_info` names the versions.
- `natsd_event_loop_lag_seconds` is a histogram of how late the event loop serves a timer: how long
  a message may wait for the loop. It is measured from the first scrape on, `LAG_S` apart: a server
  that nobody scrapes has no such timer.
- Each server has its own registry: the process may have others, with metrics of its own.
"""

import asyncio
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, Histogram, Info, PlatformCollector
from prometheus_client import ProcessCollector as ProcessMetrics

from natsd.version import NATS_VERSION, VERSION

LAG_S: Final = 0.1
LAG_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0)


class ProcessRegistry:
    """The registry of a server, and the timer that measures the event loop, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = CollectorRegistry()
        ProcessMetrics(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        info = Info("natsd", "Versions of natsd and of NATS", registry=self.registry)
        info.info({"version": VERSION, "nats_version": NATS_VERSION})
        self._lag = Histogram(
            "natsd_event_loop_lag_seconds",
            "Delay of a timer on the event loop",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )
        self._loop = loop
        self._due_s = loop.time() + LAG_S
        self._timer = loop.call_at(self._due_s, self._measure)

    def close(self) -> None:
        """Stop measuring."""
        self._timer.cancel()

    def _measure(self) -> None:
        now_s = self._loop.time()
        self._lag.observe(max(now_s - self._due_s, 0.0))
        self._due_s = now_s + LAG_S
        self._timer = self._loop.call_at(self._due_s, self._measure)
