"""Ctrl-C and SIGTERM for `natsd pipeline`: they stop the Spark job, not a call in progress.

Promise
- The first signal raises no exception: it may arrive in the middle of a call to Spark's JVM, and
  the connection to the JVM would be unusable afterwards. Instead a thread repeatedly stops the
  session's queries and cancels its tasks, so that the job's own call returns or fails.
- A second signal raises KeyboardInterrupt at once.
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
"""Seconds between two attempts to stop the job."""


class Interruption:
    """The stop request of one job; `is_asked` is True after a signal."""

    def __init__(self, spark: SparkSession) -> None:
        self.is_asked = False
        self._spark = spark
        self._has_ended = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def by_signals(cls, spark: SparkSession) -> Iterator[Interruption]:
        """Let signals stop the session's work within the context; for the main thread only."""
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
        """Stop the session's queries and tasks repeatedly until the context ends."""
        from py4j.protocol import Py4JError

        while not self._has_ended.is_set():
            with contextlib.suppress(Py4JError, OSError):  # the session may be ending meanwhile
                for query in self._spark.streams.active:
                    query.stop()
                self._spark.sparkContext.cancelAllJobs()
            self._has_ended.wait(AGAIN_S)
