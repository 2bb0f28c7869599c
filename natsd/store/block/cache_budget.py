"""A limit for the memory of all caches of one kind in a process.

Every block with bytes that can be read again has an entry here: its size in bytes, a function that
frees the cache, and a function that tells whether the cache was used. Above the limit the oldest
entry is evicted first, unless it was used since it was last considered ("second chance"). So a read
only sets a flag and needs no bookkeeping here.

Promise
- `held_bytes` is at most `limit_bytes`, unless the newest entry alone is larger. Bytes that are not
  on disk yet cannot be dropped; they are counted here only once they are on disk.
- `evict` is called at most once for an entry, after the entry was removed from the budget.
- Only the thread that uses the stores calls this.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class CacheEntry:
    """The cache of one block: its size, a function that frees it, a function that tells of its use.

    `take_used` returns whether the cache was used since the last call.
    """

    size_bytes: int
    evict: Callable[[], None]
    take_used: Callable[[], bool]


class CacheBudget:
    """A byte limit and the caches that share it, in the order in which they may be evicted."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._entries: OrderedDict[Hashable, CacheEntry] = OrderedDict()

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
        """Count `size_bytes` for `key`, replacing its old entry; evict other entries if necessary.

        `evict` is called when the entry must go. `take_used` returns whether the cache was used
        since its last call; the default says no.
        """
        self.release(key)
        self._entries[key] = CacheEntry(size_bytes, evict, take_used)
        self.held_bytes += size_bytes
        self._shrink(keep=key)

    def release(self, key: Hashable) -> None:
        """Remove the entry of `key`, whose memory the caller has freed; do not call `evict`."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.held_bytes -= entry.size_bytes

    def resize(self, limit_bytes: int) -> None:
        """Set another limit and evict entries until the limit holds."""
        self.limit_bytes = limit_bytes
        self._shrink(keep=None)

    def _shrink(self, keep: Hashable) -> None:
        """Evict entries down to the limit, but never `keep`, since its user is about to read it."""
        while self.held_bytes > self.limit_bytes and len(self._entries) > (keep in self._entries):
            key, entry = next(iter(self._entries.items()))
            if key == keep or entry.take_used():
                self._entries.move_to_end(key)
                continue
            del self._entries[key]
            self.held_bytes -= entry.size_bytes
            entry.evict()
