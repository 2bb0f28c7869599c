"""The last minutes of a server: a ring of samples, taken while monitoring is on.

- A sample is taken every `SAMPLE_S`, and `SAMPLES_MAX` are kept. It takes some 0.03 ms, so that
  an idle server stays idle.
- Each sample has a sequence number, with which a viewer asks for later samples only.
- The lag of the event loop is how much later than due a timer is called. While somebody watches, it
  is probed every `PROBE_S`, otherwise once per sample; a sample has the greatest lag.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from natsd.core.steps import Steps
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import processor_time_ns, resident_bytes
from natsd.monitor.summary.meter import rounded
from natsd.monitor.turns import Turns

SAMPLE_S: Final = 2.0
SAMPLES_MAX: Final = 300
PROBE_S: Final = 0.1
ACCOUNTS_PER_STEP: Final = 512

FIELDS: Final = (
    "time",
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "connections",
    "subscriptions",
    "cpu",
    "mem",
    "storage",
    "memory",
    "slow_consumers",
    "lag_ms",
)
"""The columns. Traffic is per second; `slow_consumers` are those since the previous sample."""


class History:
    """The samples of one server; `run` takes them."""

    def __init__(
        self, server: ObservedServer, turns: Turns, is_watched: Callable[[], bool]
    ) -> None:
        self._server = server
        self._turns = turns
        self._is_watched = is_watched
        self._samples: deque[tuple[float | None, ...]] = deque(maxlen=SAMPLES_MAX)
        self._last = 0
        self._lag_ns = 0
        self._counted = self._counters()

    async def run(self) -> None:
        """Take samples until it is cancelled."""
        while True:
            await self._wait()
            subscriptions = await self._turns.run(count_subscriptions(self._server))
            self._sample(subscriptions)

    async def _wait(self) -> None:
        """Wait for the next sample, and look how late timers are called."""
        ends_ns = time.monotonic_ns() + round(SAMPLE_S * 1e9)
        while (left_ns := ends_ns - time.monotonic_ns()) > 0:
            pause_s = min(left_ns / 1e9, PROBE_S) if self._is_watched() else left_ns / 1e9
            asked_ns = time.monotonic_ns()
            await asyncio.sleep(pause_s)
            late_ns = time.monotonic_ns() - asked_ns - round(pause_s * 1e9)
            self._lag_ns = max(self._lag_ns, late_ns)

    def _counters(self) -> tuple[int, ...]:
        """Return the time in ns, the processor time in ns, the traffic, and the slow consumers."""
        counters = self._server.counters
        return (
            time.monotonic_ns(),
            processor_time_ns(),
            counters.in_msgs,
            counters.out_msgs,
            counters.in_bytes,
            counters.out_bytes,
            counters.slow_consumers,
        )

    def _sample(self, subscriptions: int) -> None:
        server, engine = self._server, self._server.jetstream
        before, self._counted = self._counted, self._counters()
        grown = [now - then for now, then in zip(self._counted, before, strict=True)]
        elapsed_ns, used_ns, *traffic, slow_consumers = grown
        self._samples.append(
            (
                round(time.time_ns() / 1e9, 1),
                *(rounded(each * 1e9 / elapsed_ns) for each in traffic),
                len(server.clients),
                subscriptions,
                round(100 * used_ns / elapsed_ns, 1),
                resident_bytes(),
                max(engine.usage.file_used, 0) if engine else 0,
                max(engine.usage.memory_used, 0) if engine else 0,
                slow_consumers,
                round(self._lag_ns / 1e6, 1),
            )
        )
        self._last += 1
        self._lag_ns = 0

    @property
    def latest(self) -> dict[str, float | None]:
        """The latest sample by field; empty before the first one."""
        return dict(zip(FIELDS, self._samples[-1], strict=True)) if self._samples else {}

    def after(self, sequence: int) -> dict[str, Any]:
        """Return the samples after a sequence number, each field as a list.

        All samples are returned for a number that this server has not reached.
        """
        known = sequence if sequence <= self._last else 0
        begin = max(len(self._samples) - (self._last - known), 0)
        rows = list(islice(self._samples, begin, None))
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in FIELDS]
        return {
            "last": self._last,
            "interval_s": SAMPLE_S,
            "samples_max": SAMPLES_MAX,
            **dict(zip(FIELDS, columns, strict=True)),
        }


def count_subscriptions(server: ObservedServer) -> Steps[int]:
    """Return the number of subscriptions of all accounts."""
    total = 0
    for index, account in enumerate(list(server.accounts.values())):
        if index % ACCOUNTS_PER_STEP == ACCOUNTS_PER_STEP - 1:
            yield
        total += account.sublist.count
    return total
