"""The progress of each load process, in memory that all of them share.

There is one 64-bit counter of messages per process; only its owner writes it:

    | publisher 0 | publisher 1 | … | subscriber 0 | subscriber 1 | … |

Before each chunk a publisher compares the counters, and waits while the publishers are more than
the window ahead of their subscribers: so no server has to hold more messages for a subscriber than
the window.
"""

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

COUNTER_BYTES = 8
RELEASED = 1 << 62
"""The count of a subscriber that lost its connection, so that no publisher waits for it."""


class Progress:
    """The shared counters; the parent creates them, and the load processes attach to them."""

    def __init__(self, path: Path, owner: bool) -> None:
        self.path = path
        self._owner = owner
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.counters = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, counters: int) -> "Progress":
        """Create this many counters, all zero, in a temporary file."""
        with tempfile.NamedTemporaryFile(prefix="natsd-bench-", delete=False) as file:
            file.write(bytes(COUNTER_BYTES * max(1, counters)))
        return cls(Path(file.name), owner=True)

    @classmethod
    def attach(cls, path: Path) -> "Progress":
        """Map the counters that the parent created."""
        return cls(path, owner=False)

    def close(self) -> None:
        """Unmap the counters; the process that created them also removes the file."""
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
    """The publishers and subscribers that belong together, and how far publishers may run ahead.

    The numbers in `publishers` and `subscribers` are positions of counters. If `shared`, each
    message goes to one of the subscribers (a queue group) and their counts are added; otherwise
    each message goes to all subscribers, and the slowest one counts.
    """

    publishers: tuple[int, ...]
    subscribers: tuple[int, ...]
    shared: bool
    messages_ahead_max: int

    def delivered(self, counters: "memoryview[int]") -> int:
        """Return the number of messages that all their receivers have received."""
        if self.shared:
            return sum([counters[slot] for slot in self.subscribers])
        return min([counters[slot] for slot in self.subscribers])

    def room(self, counters: "memoryview[int]") -> int:
        """Return how many more messages may be published now."""
        if not self.subscribers:
            return self.messages_ahead_max
        sent = sum([counters[slot] for slot in self.publishers])
        return self.messages_ahead_max - (sent - self.delivered(counters))
