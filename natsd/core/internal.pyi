from collections.abc import Callable

from natsd.core.reactor import Reactor
from natsd.core.subscription import Sink

class CallbackSink(Sink):
    def __init__(
        self, reactor: Reactor, callback: Callable[..., object], *, tells_origin: bool = False
    ) -> None: ...

class IgnoringSink(Sink):
    def __init__(self, refused: tuple[bytes, ...]) -> None: ...
