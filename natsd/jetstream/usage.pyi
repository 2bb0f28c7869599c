class Usage:
    """Of an account, or of the server: `Usage(server=None)`."""

    server: Usage | None
    memory_used: int
    memory_reserved: int
    memory_limit: int
    file_used: int
    file_reserved: int
    file_limit: int

    def __init__(
        self, server: Usage | None = None, *, memory_limit: int = -1, file_limit: int = -1
    ) -> None: ...
    def reserve(self, *, is_memory: bool, change: int) -> None: ...
    def count(self, *, is_memory: bool, change: int) -> None: ...
    def is_over(self, *, is_memory: bool, more: int = 0) -> bool: ...
