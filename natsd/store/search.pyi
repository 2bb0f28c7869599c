from natsd.store.filter import Filter
from natsd.store.log import MessageLog
from natsd.store.record import StoredMessage
from natsd.store.store import SubjectState

class Operation:
    result: object
    def step(self, budget: int) -> bool: ...

class NextMatch(Operation):
    result: int
    def __init__(self, log: MessageLog, wanted: Filter, from_sequence: int) -> None: ...

class SequenceAt(Operation):
    result: int
    def __init__(self, log: MessageLog, time_ns: int) -> None: ...

class LastMatch(Operation):
    result: int
    def __init__(self, log: MessageLog, wanted: Filter) -> None: ...

class MultiLast(Operation):
    result: list[int]
    def __init__(
        self, log: MessageLog, wanted: Filter, up_to_sequence: int = 0, max_allowed: int = -1
    ) -> None: ...

class NumPending(Operation):
    result: tuple[int, int]
    def __init__(
        self, log: MessageLog, wanted: Filter, from_sequence: int, last_per_subject: bool = False
    ) -> None: ...

class SubjectTotals(Operation):
    result: dict[str, int]
    def __init__(self, log: MessageLog, wanted: Filter) -> None: ...

class SubjectStates(Operation):
    result: dict[str, SubjectState]
    def __init__(self, log: MessageLog, wanted: Filter) -> None: ...

def last_of_subject(log: MessageLog, subject: str | bytes) -> int | None: ...
def read_batch(
    log: MessageLog, from_sequence: int, messages_max: int, bytes_max: int
) -> list[StoredMessage]: ...
