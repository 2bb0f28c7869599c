"""pytest-xdist distributes tests as with `--dist load`, but all Spark tests to one worker.

One session serves all tests of `tests/spark`: a second one would cost the time to start it and half
a gigabyte. These tests go first, because the run cannot end before they do, and their worker gets
nothing else until its last ones. The other workers share the remaining tests as usual.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/spark/"


class SparkOnOneWorker(LoadScheduling):
    """A scheduler that gives the Spark tests to one worker; it overrides the sending of tests."""

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
                # A worker with one test alone would wait for the next one.
                self._spark_worker, num = node, max(2, len(spark))
        super()._send_tests(node, num)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        # A worker runs a test when it knows the next one, so a worker with two tests is busy.
        if node is self._spark_worker and len(self.node2pending[node]) >= 2:
            return
        super().check_schedule(node, duration)


def make_scheduler(config: pytest.Config, log: Producer) -> LoadScheduling | None:
    """Return the scheduler; None: the run uses another distribution."""
    return SparkOnOneWorker(config, log) if config.getvalue("dist") == "load" else None
