import asyncio
from collections.abc import Callable

from natsd.core.parser import OpHandler

def has_poller() -> bool: ...
def tune_allocator() -> None: ...

class Counters:
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    slow_consumers: int
    stalled_clients: int
    stale_connections: int

class Endpoint(OpHandler):
    def fail(self) -> None: ...

class Reactor:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log_failure: Callable[[str], object],
        control_line_bytes_max: int = 4096,
        sweep_s: float = 0.1,
        pending_bytes_max: int = ...,
    ) -> None: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def pending_bytes(self) -> int: ...
    def add_reader(self, fd: int, callback: Callable[[], object]) -> None: ...
    def remove_reader(self, fd: int) -> None: ...
    def soon(self, call: Callable[..., object], *arguments: object) -> None: ...
    def turn(self) -> None: ...
    def close(self) -> None: ...
