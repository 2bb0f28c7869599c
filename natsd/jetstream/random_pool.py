"""Random bytes, drawn from the system in large portions.

Each system call releases the GIL and then waits to get it back: ten thousand consumers that draw
four bytes each would spend most of a start on that.
"""

import threading
from collections.abc import Callable
from typing import Final

DRAWN_BYTES: Final = 4096


class RandomPool:
    """Pool of random bytes: `pool(n)` returns n bytes of `source`, each once; from any thread."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source = source
        self._rest = b""
        self._at = 0
        self._lock = threading.Lock()

    def __call__(self, n: int) -> bytes:
        """Return `n` random bytes."""
        with self._lock:
            if self._at + n > len(self._rest):
                self._rest, self._at = self._source(max(n, DRAWN_BYTES)), 0
            self._at += n
            return self._rest[self._at - n : self._at]
