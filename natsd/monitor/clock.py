"""Both clocks: connections record monotonic time, while answers show dates."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock and the monotonic clock, with their difference in ns when monitoring began.

    The difference is taken once, so that a connection's start is the same in every answer.
    """

    wall_minus_monotonic_ns: int = field(
        default_factory=lambda: time.time_ns() - time.monotonic_ns()
    )

    def wall_ns(self) -> int:
        """Return the current time in ns since 1970."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return the current time in ns of the monotonic clock."""
        return time.monotonic_ns()

    def to_wall_ns(self, monotonic_ns: int) -> int:
        """Convert ns of the monotonic clock into ns since 1970."""
        return monotonic_ns + self.wall_minus_monotonic_ns
