from collections.abc import Callable

from natsd.store.log import MessageLog
from natsd.store.search import Operation

class LastPositions(Operation):
    def __init__(self, log: MessageLog, above: int, note: Callable[[bytes], bool]) -> None: ...
