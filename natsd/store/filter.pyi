from collections.abc import Generator, Sequence

class Filter:
    patterns: tuple[bytes, ...]
    is_everything: bool
    is_literal: bool

    def __init__(self, patterns: Sequence[str | bytes]) -> None: ...
    @staticmethod
    def in_steps(patterns: Sequence[str | bytes]) -> Generator[None, None, Filter]:
        """Build the filter in steps: a generator that returns it."""

    def release(self) -> Generator[None]: ...
    def is_match(self, subject: str | bytes) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
