"""Interface of a job's outcome, for users and for programs."""

from typing import Any, Protocol


class Outcome(Protocol):
    """Result of a finished job."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command; 0: success."""

    def text(self) -> str:
        """Return a summary for users, of one or more lines."""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
