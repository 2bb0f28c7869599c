from collections.abc import Generator, Sequence

from natsd.trie.in_memory import RecordTrie

class SubjectIndex:
    trie: RecordTrie
    count: int
    births: int
    empty_subjects: int

    def __init__(self, births: int = 0, frees: int = 0) -> None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def num_remembered(self) -> int: ...
    def forget_some(self) -> bool: ...

class SubjectSnapshot:
    index: SubjectIndex

    def __init__(self, index: SubjectIndex) -> None: ...
    def next_piece(self, keys_max: int) -> bytes | None: ...
    def close(self) -> None: ...

def load_subjects(index: SubjectIndex, piece: bytes) -> int: ...

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
