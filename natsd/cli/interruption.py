"""Ctrl-C and SIGTERM end a job of `natsd pipeline` between two steps of it.

Promise
- Nothing is raised where the signal comes: that may be in the middle of a call to Spark's JVM,
  whose connection would be of no use afterwards. Instead a thread stops the session's queries and
  cancels its tasks, again and again, so that the job's own call returns or fails.
- A second signal raises KeyboardInterrupt, wherever it comes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
AGAIN_S: Final = 0.5


class Interruption:
    """Of one job: whether it was told to stop."""

    def __init__(self, spark: SparkSession) -> None:
        self.is_asked = False
        self._spark = spark
        self._has_ended = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def by_signals(cls, spark: SparkSession) -> Iterator[Interruption]:
        """While it lasts, signals stop what the session does. In the main thread only."""
        result = cls(spark)
        before = {number: signal.signal(number, result._handle) for number in SIGNALS}
        try:
            yield result
        finally:
            result._has_ended.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        threading.Thread(target=self._stop, name="interruption", daemon=True).start()

    def _stop(self) -> None:
        from py4j.protocol import Py4JError

        while not self._has_ended.is_set():
            with contextlib.suppress(Py4JError, OSError):  # it is ending just now
                for query in self._spark.streams.active:
                    query.stop()
                self._spark.sparkContext.cancelAllJobs()
            self._has_ended.wait(AGAIN_S)
