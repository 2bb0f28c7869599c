"""What one load process reports when it is done. Times are of the machine-wide monotonic clock."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class RoleResult:
    """Sent and received messages, first and last instant, and whatever else the role measures."""

    started_ns: int
    ended_ns: int
    sent: int = 0
    received: int = 0
    cpu_seconds: float = 0.0
    problem: str = ""
    values: dict[str, float] = field(default_factory=dict)


class Role(Protocol):
    """A load process: prepared before the clock runs, run once, closed when nobody looks."""

    def prepare(self) -> None:
        """Connect and subscribe; nothing is measured yet."""

    def run(self) -> RoleResult:
        """Do the measured work."""

    def close(self) -> None:
        """Close the connections."""
