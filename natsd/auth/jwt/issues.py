"""What is wrong with the claims of a JWT whose signature is right.

Source: nats-io/jwt v2 (validation.go).
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Issues:
    """The findings of a check of claims."""

    errors: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)  # expired, or not valid yet
    warnings: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[str]:
        """All findings."""
        return [*self.errors, *self.times, *self.warnings]

    def blocks(self, *, by_time: bool) -> bool:
        """Return whether the claims must not be used; `by_time`: because of the time, too."""
        return bool(self.errors or (by_time and self.times))
