"""How far each load process is, in memory that all of them share.

One 64-bit counter of messages per process, each written by its owner alone:

    | publisher 0 | publisher 1 | … | subscriber 0 | subscriber 1 | … |

A publisher looks at it before each chunk and waits while it is more than the window ahead of
its subscribers: no server is asked to hold more for a subscriber than the window.
"""

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

COUNTER_BYTES = 8
RELEASED = 1 << 62
"""What a subscriber that lost its connection writes, so that no publisher waits for it."""


class Progress:
    """The shared counters; the parent creates them, the load processes attach."""

    def __init__(self, path: Path, owner: bool) -> None:
        self.path = path
        self._owner = owner
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.counters = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, counters: int) -> "Progress":
        """Fresh counters, all zero, in a temporary file."""
        with tempfile.NamedTemporaryFile(prefix="natsd-bench-", delete=False) as file:
            file.write(bytes(COUNTER_BYTES * max(1, counters)))
        return cls(Path(file.name), owner=True)

    @classmethod
    def attach(cls, path: Path) -> "Progress":
        """The counters that the parent created."""
        return cls(path, owner=False)

    def close(self) -> None:
        """Unmap; the owner also removes the file."""
        self.counters.release()
        self._map.close()
        if self._owner:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Window:
    """Who publishes to whom, and how far publishers may run ahead.

    `shared`: each message goes to one of the subscribers (a queue group), so their counts add
    up; otherwise each message goes to all, and the slowest one counts.
    """

    publishers: tuple[int, ...]
    subscribers: tuple[int, ...]
    shared: bool
    messages_ahead_max: int

    def delivered(self, counters: "memoryview[int]") -> int:
        """How many messages all their receivers have."""
        if self.shared:
            return sum([counters[slot] for slot in self.subscribers])
        return min([counters[slot] for slot in self.subscribers])

    def room(self, counters: "memoryview[int]") -> int:
        """How many more messages may be published now."""
        if not self.subscribers:
            return self.messages_ahead_max
        sent = sum([counters[slot] for slot in self.publishers])
        return self.messages_ahead_max - (sent - self.delivered(counters))
