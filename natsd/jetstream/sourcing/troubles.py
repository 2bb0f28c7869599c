"""Errors between a stream and its origins, logged in one line per distinct error.

    a thousand links: "stream not found" ─▶ TOLD_AFTER_NS ─▶ one line: the number and a few names

Promise
- An error is logged within TOLD_AFTER_NS, or when the stream ends.
- Memory: for each distinct error, the names of NAMED_MAX origins and a number.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from natsd.jetstream.stream.state import Alarm, Scheduler

_logger = logging.getLogger(__name__)

TOLD_AFTER_NS: Final = 1_000_000_000
NAMED_MAX: Final = 3

CANNOT_BE_FILLED: Final = "cannot be filled from"
BEGINS_ANEW: Final = "from"


@dataclass(slots=True)
class _Trouble:
    """Origins with the same error: the first few names, and their number."""

    names: list[str] = field(default_factory=list)
    count: int = 0

    def __str__(self) -> str:
        more = self.count - len(self.names)
        return ", ".join(self.names) + (f" and {more} more" if more else "")


class Troubles:
    """Errors of one stream's links."""

    def __init__(self, stream: str, scheduler: Scheduler) -> None:
        self._stream = stream
        self._scheduler = scheduler
        self._alarm = Alarm(scheduler, self._tell_due)
        self._noted: dict[tuple[int, str, str], _Trouble] = {}

    def note(self, what: str, origin: str, why: str, level: int = logging.WARNING) -> None:
        """Note an error of an origin; `what` is CANNOT_BE_FILLED or BEGINS_ANEW."""
        if not _logger.isEnabledFor(level):
            return
        if not self._noted:
            self._alarm.set(self._scheduler.now_ns() + TOLD_AFTER_NS)
        trouble = self._noted.setdefault((level, what, why), _Trouble())
        trouble.count += 1
        if len(trouble.names) < NAMED_MAX:
            trouble.names.append(origin)

    def tell(self) -> None:
        """Log the noted errors now."""
        self._alarm.cancel()
        noted, self._noted = self._noted, {}
        for (level, what, why), trouble in noted.items():
            _logger.log(level, "JetStream: stream %s %s %s: %s", self._stream, what, trouble, why)

    def _tell_due(self, _now_ns: int) -> None:
        self.tell()
