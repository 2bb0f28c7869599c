"""The memory that all snapshots and restores of a server hold together, and how slow one may be.

    TransferMemory  one per server ── Share  one per transfer: what it holds just now

Promise
- All shares together never pass `limit_bytes`; the transfer that would pass it is refused or ends,
  and the others go on.
- A share that is closed holds nothing, whatever ended its transfer.
- A transfer that moves less than PACE_BYTES in PACE_NS is stalled, even if it moves all the time.

Source: reference §6.14.
"""

from typing import Final

TRANSFER_BYTES_MAX: Final = 512 << 20
PACE_NS: Final = 60_000_000_000
PACE_BYTES: Final = 64 << 10


class TransferMemory:
    """Used on the event loop only."""

    def __init__(self, limit_bytes: int = TRANSFER_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def share(self) -> "Share":
        """For one more transfer; it holds nothing yet."""
        return Share(self)


class Share:
    """What one transfer holds."""

    def __init__(self, memory: TransferMemory) -> None:
        self._memory = memory
        self._held_bytes = 0
        self._is_closed = False

    def hold(self, size: int) -> bool:
        """Hold exactly this much from now on; False: that is more than there is, and nothing has
        changed."""
        more = size - self._held_bytes
        if self._is_closed or self._memory.held_bytes + more > self._memory.limit_bytes:
            return False
        self._memory.held_bytes += more
        self._held_bytes = size
        return True

    def close(self) -> None:
        """Hold nothing, and nothing any more."""
        self.hold(0)
        self._is_closed = True


class Pace:
    """Whether a transfer moves fast enough to be waited for."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._moved_bytes = 0

    def moved(self, size: int, now_ns: int) -> bool:
        """So many bytes more went over; False: it is stalled."""
        self._moved_bytes += size
        if now_ns - self._since_ns < PACE_NS:
            return True
        is_fast = self._moved_bytes >= PACE_BYTES
        self._since_ns, self._moved_bytes = now_ns, 0
        return is_fast
