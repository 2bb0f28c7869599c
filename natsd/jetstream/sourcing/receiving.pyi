from collections.abc import Callable, Iterable

from natsd.jetstream.stream.publishing import Ingest
from natsd.jetstream.stream.settings import Mapping
from natsd.jetstream.stream.state import Actor
from natsd.store.log.message_log import MessageLog, Operation

Found = tuple[int, bytes, bytes, int]

OF_SCHEDULES: int
OF_DELAYS: int

def find_messages(
    log: MessageLog, sequence: int, upto: int, wanted: int, found: list[Found]
) -> tuple[int, int]: ...
def carried(block: bytes, *, is_source: bool) -> bytes: ...

class LastPositions(Operation):
    def __init__(self, log: MessageLog, above: int, note: Callable[[bytes], bool]) -> None: ...

CAUGHT_UP: int
LOST: str

class Receiver(Actor):
    is_mirror: bool
    sequence: int
    delivered: int
    lag: int
    heard_ns: int
    trouble: str
    has_caught_up: bool

    def __init__(
        self,
        ingest: Ingest,
        told: Callable[[], object],
        transforms: Iterable[Mapping] = (),
        header: tuple[bytes, bytes] | None = None,
    ) -> None: ...
    @property
    def is_current(self) -> bool: ...
    def start(self, consumer: str, sequence: int, delivered: int, pending: int) -> None: ...
    def stop(self) -> None: ...
