from collections.abc import Callable, Iterable

from natsd.jetstream.scheduler import Actor
from natsd.jetstream.stream.publish import Ingest
from natsd.jetstream.stream.settings import Mapping

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
