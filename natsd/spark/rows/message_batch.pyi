from collections.abc import Sequence

class ColumnBuffer:
    """Owned bytes of a column, exposed by the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class MessageBatch:
    """Rows of messages, collected as Arrow column buffers.

    `names` are the columns; `rows` counts the rows, and `headerless` those without headers. The
    batch is full at `max_rows` rows or `max_bytes` bytes.
    """

    stream: str
    names: tuple[str, ...]
    rows: int
    max_rows: int
    max_bytes: int
    headerless: int

    def __init__(
        self, names: Sequence[str], max_rows: int = 10_000, max_bytes: int = 8 << 20
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def entry_counts(self) -> tuple[int, int]: ...
    def add(
        self,
        stream: bytes | None,
        subject: bytes,
        sequence: int,
        time_ns: int,
        headers: bytes,
        data: bytes,
    ) -> None: ...
    def take(self) -> list[list[ColumnBuffer]]: ...
