"""The report of one load process. Times are in ns of the machine-wide monotonic clock."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class RoleResult:
    """The result of one role: messages, first and last instant, and further values by name.

    `cpu_seconds` is the process's CPU time during the run; `problem` is the reason why the run is
    void, empty if there is none.
    """

    started_ns: int
    ended_ns: int
    sent: int = 0
    received: int = 0
    cpu_seconds: float = 0.0
    problem: str = ""
    values: dict[str, float] = field(default_factory=dict)


class Role(Protocol):
    """The work of a load process: prepared before the clock runs, run once, closed afterwards."""

    def prepare(self) -> None:
        """Connect and subscribe; this is not measured."""

    def run(self) -> RoleResult:
        """Do the measured work and return its result."""

    def close(self) -> None:
        """Close the connections."""
