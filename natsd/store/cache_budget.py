"""How much memory the caches of all stores of a process may take together.

Every block that holds bytes it could read again has an entry here: how many bytes, what to call to
be rid of them, and whom to ask whether they were used. Above the limit those go that are held
longest, but what was used since it was asked last stays for another turn ("second chance"): a read
then costs one flag, and no bookkeeping.

Promise
- `held_bytes` is at most `limit_bytes`, or what was held last alone is more. What is not on disk
  yet cannot be dropped, and is held here only once it can.
- `evict` is called at most once for an entry, after it was taken off the books.
- One thread uses it: the one that uses the stores.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    """One block's cache; `evict` frees it, `take_used`: was it used since this was asked last?"""

    size_bytes: int
    evict: Callable[[], None]
    take_used: Callable[[], bool]


class CacheBudget:
    """Books of who holds what, in the order in which they are asked to go."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def hold(
        self,
        key: Hashable,
        size_bytes: int,
        evict: Callable[[], None],
        take_used: Callable[[], bool] = bool,
    ) -> None:
        """`key` holds so many bytes from now on; others may have to go for it."""
        self.release(key)
        self._entries[key] = Entry(size_bytes, evict, take_used)
        self.held_bytes += size_bytes
        self._shrink(keep=key)

    def release(self, key: Hashable) -> None:
        """`key` holds nothing any more, by its own doing."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.held_bytes -= entry.size_bytes

    def resize(self, limit_bytes: int) -> None:
        """Another limit from now on."""
        self.limit_bytes = limit_bytes
        self._shrink(keep=None)

    def _shrink(self, keep: Hashable) -> None:
        """The last one held stays, however large: its user is about to read it."""
        while self.held_bytes > self.limit_bytes and len(self._entries) > (keep in self._entries):
            key, entry = next(iter(self._entries.items()))
            if key == keep or entry.take_used():
                self._entries.move_to_end(key)
                continue
            del self._entries[key]
            self.held_bytes -= entry.size_bytes
            entry.evict()
