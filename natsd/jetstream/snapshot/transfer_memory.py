"""Memory limit of all snapshots and restores of a server, and the least speed of each.

    TransferMemory  one per server ── Share  one per transfer: the bytes that it holds now

Promise
- All shares together never exceed `limit_bytes`; a transfer that would exceed it is refused or
  ends, and the others go on.
- A closed share holds nothing, for whatever reason its transfer ended.
- A transfer that moves less than PACE_BYTES in PACE_NS is stalled, even if it keeps moving.

nats-server has no such limits.
"""

from typing import Final

TRANSFER_BYTES_MAX: Final = 512 << 20
PACE_NS: Final = 60_000_000_000
PACE_BYTES: Final = 64 << 10


class TransferMemory:
    """Memory of all transfers of a server, in bytes; used on the event loop only."""

    def __init__(self, limit_bytes: int = TRANSFER_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def share(self) -> "Share":
        """Return a new share for one transfer; it holds nothing yet."""
        return Share(self)


class Share:
    """Memory of one transfer, in bytes."""

    def __init__(self, memory: TransferMemory) -> None:
        self._memory = memory
        self._held_bytes = 0
        self._is_closed = False

    def hold(self, size: int) -> bool:
        """Set the bytes that the transfer holds to `size`.

        Return False if that exceeds the limit or the share is closed; nothing has changed then.
        """
        more = size - self._held_bytes
        if self._is_closed or self._memory.held_bytes + more > self._memory.limit_bytes:
            return False
        self._memory.held_bytes += more
        self._held_bytes = size
        return True

    def close(self) -> None:
        """Release all memory; the share can hold nothing afterwards."""
        self.hold(0)
        self._is_closed = True


class Pace:
    """Check whether a transfer moves fast enough to be waited for."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._moved_bytes = 0

    def moved(self, size: int, now_ns: int) -> bool:
        """Count `size` more bytes; return False if the transfer is stalled."""
        self._moved_bytes += size
        if now_ns - self._since_ns < PACE_NS:
            return True
        is_fast = self._moved_bytes >= PACE_BYTES
        self._since_ns, self._moved_bytes = now_ns, 0
        return is_fast
