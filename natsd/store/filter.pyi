from collections.abc import Iterable

class Filter:
    patterns: tuple[bytes, ...]
    is_everything: bool
    is_literal: bool

    def __init__(self, patterns: Iterable[str | bytes]) -> None: ...
    def is_match(self, subject: str | bytes) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
