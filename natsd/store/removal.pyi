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
    def __init__(
        self, log: MessageLog, now_ns: int, last: list[tuple[bytes, bytes]] | None = None
    ) -> None: ...

class ThinSubjects(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...

class Sweep(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...
