from natsd.store.filter import Filter
from natsd.store.log import MessageLog
from natsd.store.search import Operation

class Purge(Operation):
    result: int
    def __init__(
        self, log: MessageLog, wanted: Filter, up_to_sequence: int = 0, keep: int = 0
    ) -> None: ...

class Compact(Operation):
    result: int
    def __init__(self, log: MessageLog, sequence: int) -> None: ...

class RemoveAbove(Operation):
    result: int
    def __init__(self, log: MessageLog, sequence: int) -> None: ...

class Expire(Operation):
    result: int
    last: list[tuple[int, bytes, bytes]] | None
    def __init__(self, log: MessageLog, now_ns: int, is_replacing: bool = False) -> None: ...
    def replaced(self) -> bool: ...

class ThinSubjects(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...

class Sweep(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...
