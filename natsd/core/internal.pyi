from collections.abc import Callable

from natsd.core.reactor import Counters, Reactor
from natsd.core.sublist import SubList
from natsd.core.subscription import Sink

class CallbackSink(Sink):
    def __init__(
        self, reactor: Reactor, callback: Callable[[str, str | None, bytes, bytes], object]
    ) -> None: ...

class Publisher:
    def __init__(self, reactor: Reactor, sublist: SubList, counters: Counters) -> None: ...
    def publish(
        self, subject: bytes, payload: bytes, reply: bytes | None = None, headers: bytes = b""
    ) -> None: ...
