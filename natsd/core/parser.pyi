from enum import IntEnum

from natsd.core.subscription import Sink

class Violation(IntEnum):
    UNKNOWN_OPERATION = 1
    CONTROL_LINE = 2
    MAX_PAYLOAD = 3
    BAD_ARGUMENTS = 4
    HEADERS_NOT_SUPPORTED = 5
    CONNECT_REQUIRED = 6

class OpHandler(Sink): ...

class OpRecorder(OpHandler):
    def __init__(
        self,
        *,
        max_control_line: int = 4096,
        max_payload: int = 1048576,
        headers: bool = True,
        awaiting_connect: bool = False,
        step_by_step: bool = False,
    ) -> None: ...
    def feed(self, data: bytes) -> list[tuple[str | bytes | None, ...]]: ...
    @property
    def violated(self) -> bool: ...
    @property
    def tail_bytes(self) -> int: ...
    @property
    def large_bytes(self) -> int: ...
