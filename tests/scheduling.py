"""How pytest-xdist hands out the tests: as `--dist load` does, but those of Spark to one worker.

One session serves all tests of `tests/spark`: a second one would cost the time to start it and half
a gigabyte. They go first, as the run cannot end before they do, and that worker gets nothing else
until its last ones; the other workers share the rest as ever.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/spark/"


class SparkOnOneWorker(LoadScheduling):
    """Overrides what sends tests and what asks whether a worker needs more."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._spark_worker: WorkerController | None = None
        self._is_first = True

    def _send_tests(self, node: WorkerController, num: int) -> None:
        if self._is_first:
            self._is_first = False
            assert self.collection is not None
            spark = [test for test in self.pending if self.collection[test].startswith(SPARK)]
            if spark:
                others = [test for test in self.pending if test not in set(spark)]
                self.pending[:] = spark + others
                # One alone would wait for a next one.
                self._spark_worker, num = node, max(2, len(spark))
        super()._send_tests(node, num)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        # A worker runs a test when it knows the next one: with two it is busy.
        if node is self._spark_worker and len(self.node2pending[node]) >= 2:
            return
        super().check_schedule(node, duration)


def make_scheduler(config: pytest.Config, log: Producer) -> LoadScheduling | None:
    """None: the run asked for another distribution."""
    return SparkOnOneWorker(config, log) if config.getvalue("dist") == "load" else None
