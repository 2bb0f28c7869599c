"""What a leader knows of one follower, and what it may send to it.

PROBE      one Append per heartbeat, until the follower says where the logs agree
REPLICATE  Appends follow one another without waiting, within the window
SNAPSHOT   nothing, until the follower has installed the snapshot

  PROBE ── accepted ──► REPLICATE ── refused ──► PROBE
  PROBE ── the entry is gone ──► SNAPSHOT ── installed, or given up ──► PROBE
"""

from collections import deque
from enum import IntEnum

from natsd.raft.entry import Health


class Sending(IntEnum):
    """How a leader sends to a follower."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


class Window:
    """Appends under way to a follower, bounded in count and bytes."""

    __slots__ = ("_bytes", "_bytes_max", "_count_max", "_sent")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._sent: deque[tuple[int, int]] = deque()  # last index, bytes
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether another Append must wait."""
        return len(self._sent) >= self._count_max or self._bytes >= self._bytes_max

    def add(self, last_index: int, size_bytes: int) -> None:
        """Note an Append that is sent."""
        self._sent.append((last_index, size_bytes))
        self._bytes += size_bytes

    def acknowledged(self, index: int) -> None:
        """Forget Appends up to `index`."""
        while self._sent and self._sent[0][0] <= index:
            self._bytes -= self._sent.popleft()[1]

    def clear(self) -> None:
        """Forget all Appends."""
        self._sent.clear()
        self._bytes = 0


class Progress:
    """What a leader knows of one member; of itself, it uses `match` only."""

    __slots__ = (
        "commit_told",
        "health",
        "held",
        "is_active",
        "is_deferred",
        "is_paused",
        "match",
        "member",
        "next",
        "repair_nonce",
        "repair_target",
        "round",
        "sending",
        "snapshot_index",
        "snapshot_ticks",
        "window",
        "written",
    )

    def __init__(self, member: int, next_index: int, window: Window) -> None:
        self.member = member
        self.match = 0
        """The member is sound, and has acknowledged up to here: it counts for commits."""
        self.held = 0
        """The member holds the leader's log up to here, whether or not it counts."""
        self.written = 0
        """It has written the leader's log up to here, as far as it has told."""
        self.next = next_index
        """Next index to send."""
        self.sending = Sending.PROBE
        self.is_paused = False
        """A probe is under way."""
        self.is_active = True
        """The member has been heard of since the leader last looked."""
        self.is_deferred = False
        """It gets entries when they are committed (`Leadership._defer_the_slow`)."""
        self.round = 0
        """Newest round of heartbeats that the member has answered while it was sound."""
        self.commit_told = 0
        self.health = Health.SOUND
        self.window = window
        self.snapshot_index = 0
        self.snapshot_ticks = 0
        self.repair_nonce = 0
        self.repair_target = 0

    def probe(self, next_index: int) -> None:
        """Send one Append at a time, from `next_index` on."""
        self.sending = Sending.PROBE
        self.next = max(next_index, self.held + 1)
        self.is_paused = False
        self.window.clear()

    def install(self, snapshot_index: int) -> None:
        """Wait until the follower has installed a snapshot."""
        self.sending = Sending.SNAPSHOT
        self.snapshot_index = snapshot_index
        self.snapshot_ticks = 0
        self.window.clear()

    def accepted(self, index: int) -> None:
        """Note that the follower holds the log up to `index`."""
        self.held = max(self.held, index)
        self.next = max(self.next, index + 1)
        if self.sending is Sending.REPLICATE:
            self.window.acknowledged(index)
        elif self.sending is Sending.PROBE or index >= self.snapshot_index:
            self.sending = Sending.REPLICATE
            self.is_paused = False
            self.next = self.held + 1
            self.window.clear()

    def is_stale_refusal(self, index: int) -> bool:
        """Tell whether a refusal at `index` answers an Append that is of no interest any more."""
        if self.sending is Sending.PROBE:
            return index != self.next - 1
        return self.sending is Sending.SNAPSHOT or index <= self.held

    def lost(self, last_index: int, nonce: int, target: int) -> None:
        """Begin to repair a damaged member, which holds nothing behind `last_index` any more."""
        self.repair_nonce, self.repair_target = nonce, target
        self.match = min(self.match, last_index)
        self.held = self.written = 0
        self.probe(last_index + 1)
