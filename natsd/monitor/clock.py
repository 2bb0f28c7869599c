"""Both clocks: connections count monotonic nanoseconds, whoever reads an answer wants the date."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks, and the distance between them as it was when monitoring began.

    The distance is taken once, so that a connection's start is the same in every answer.
    """

    wall_minus_monotonic_ns: int = field(
        default_factory=lambda: time.time_ns() - time.monotonic_ns()
    )

    def wall_ns(self) -> int:
        """Now, since 1970."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Now, as connections count."""
        return time.monotonic_ns()

    def to_wall_ns(self, monotonic_ns: int) -> int:
        """When that was, since 1970."""
        return monotonic_ns + self.wall_minus_monotonic_ns
