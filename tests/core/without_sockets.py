"""An endpoint without a socket: a test feeds it, and keeps what it sends.

endpoint = Endpoint(Reactor(Loop(), failed), settings, -1, transport := Transport())
feed(endpoint, b"PING\r\n")
assert transport.written == b"PONG\r\n"
"""

import traceback
from collections.abc import Callable
from typing import Any

from natsd.core.network import Endpoint


class Loop:
    """An event loop that never runs: no timer fires, no socket is ready."""

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None: ...
    def call_later(
        self, delay_s: float, callback: Callable[..., None], *arguments: Any
    ) -> None: ...
    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None: ...
    def is_closed(self) -> bool:
        return False


class Transport:
    """A transport that takes everything at once."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def failed(text: str) -> None:
    """Raise AssertionError; the reactor calls this while it handles an exception."""
    raise AssertionError(f"{text}\n{traceback.format_exc()}")


def feed(endpoint: Endpoint, data: bytes) -> None:
    """Feed bytes as a transport does, in as many reads as the read buffer requires."""
    while True:
        space = endpoint.read_space(len(data))
        size = min(len(space), len(data))
        space[:size] = data[:size]
        del space
        endpoint.bytes_read(size)
        data = data[size:]
        if not data or endpoint.reason is not None:
            return
