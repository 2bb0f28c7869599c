"""What a job has done, for a person and for a program."""

from typing import Any, Protocol


class Outcome(Protocol):
    """The end of a job."""

    @property
    def exit_code(self) -> int:
        """0 when all is well."""

    def text(self) -> str:
        """A summary that a person reads; may have several lines."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
