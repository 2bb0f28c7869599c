from collections.abc import Callable

from natsd.core.subscription import Sink
from natsd.jetstream.stream.core import StreamCore

class DirectGet(Sink):
    def __init__(
        self, stream: StreamCore, ask: Callable[[bytes, bytes, bytes, bytes], object]
    ) -> None: ...
    @property
    def dropped(self) -> int: ...
