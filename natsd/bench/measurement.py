"""What one run measured: its values, how long it took, and what went wrong."""

from dataclasses import dataclass, field

from natsd.bench.result import RoleResult


@dataclass
class Measurement:
    """One run: its values by metric, its duration, and its problems."""

    values: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    missing: int = 0
    problem: str = ""
    load_share: float = 0.0
    """CPU time of the busiest load process per second of the run.

    Near 1 the load generator is the limit, not the server.
    """

    @property
    def counts(self) -> bool:
        """Whether the values may be used: no message is missing, and there was no problem."""
        return not self.missing and not self.problem


def duration_seconds(starting: list[RoleResult], ending: list[RoleResult]) -> float:
    """Return the seconds from the first start to the last end."""
    started_ns = min(result.started_ns for result in starting)
    return max(1, max(result.ended_ns for result in ending) - started_ns) / 1e9


def first_problem(results: list[RoleResult]) -> str:
    """Return the first problem of the results, or an empty text."""
    return next((result.problem for result in results if result.problem), "")


def load_share(results: list[RoleResult], seconds: float) -> float:
    """Return the CPU seconds of the busiest load process per second of the run."""
    return max(result.cpu_seconds for result in results) / seconds
