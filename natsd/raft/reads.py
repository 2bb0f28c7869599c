"""Linearizable reads: which index a read must wait for, and proof that no newer leader wrote since.

The leader notes its commit index, sends heartbeats with a new round, and answers when a majority
has returned that round or a newer one: none of them had voted for a newer leader when the read
began. A leader that has not committed an entry of its own term does not know the commit index yet,
and lets reads wait. Reads that arrive in one turn share a round.

A lease spares the round: voters vote for nobody else until `election_ticks` after they heard the
leader, so a majority's answers to heartbeats sent at tick t cover reads until t + `lease_ticks`.
That holds as long as clocks drift no more than `Options.clock_drift_percent`, and until the leader
hands over, which does not wait for voters' patience.
"""

from collections import deque
from typing import NamedTuple


class ReadBatch(NamedTuple):
    """Reads of one member that wait for an index."""

    member: int
    tokens: tuple[int, ...]
    """The driver's tokens if the member is the leader itself, else the follower's batch number."""


class ReadRounds:
    """A leader's rounds of heartbeats, and the reads that wait for them."""

    __slots__ = ("_confirmed", "_confirmed_sent_tick", "_sent", "_waiting", "fresh", "round")

    def __init__(self) -> None:
        self.round = 0
        """Newest round that was sent."""
        self.fresh: list[ReadBatch] = []
        """Reads that no round has begun for yet."""
        self._waiting: deque[tuple[int, int, list[ReadBatch]]] = deque()  # round, index, reads
        self._sent: deque[tuple[int, int]] = deque()  # round, tick at which it was sent
        self._confirmed = 0
        self._confirmed_sent_tick: int | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether no read waits."""
        return not self.fresh and not self._waiting

    def begin_round(self, tick: int) -> int:
        """Begin a round of heartbeats at this tick; return its number."""
        self.round += 1
        self._sent.append((self.round, tick))
        return self.round

    def wait_for_round(self, commit: int) -> None:
        """Let the fresh reads wait for the newest round."""
        self._waiting.append((self.round, commit, self.fresh))
        self.fresh = []

    def confirm(self, confirmed: int) -> list[tuple[int, list[ReadBatch]]]:
        """Note that a majority has answered a round; return the reads that it frees."""
        if confirmed > self._confirmed:
            self._confirmed = confirmed
            while self._sent and self._sent[0][0] <= confirmed:
                self._confirmed_sent_tick = self._sent.popleft()[1]
        freed = []
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            _, index, reads = self._waiting.popleft()
            freed.append((index, reads))
        return freed

    def drop(self) -> list[ReadBatch]:
        """Return all reads that wait, and forget them."""
        dropped = [read for _, _, reads in self._waiting for read in reads] + self.fresh
        self._waiting.clear()
        self.fresh = []
        return dropped

    def holds_lease(self, tick: int, lease_ticks: int) -> bool:
        """Tell whether no other leader can have been elected by this tick."""
        sent_tick = self._confirmed_sent_tick
        return sent_tick is not None and tick - sent_tick < lease_ticks

    def end_lease(self) -> None:
        """Forget the lease; the next confirmed round begins another."""
        self._confirmed_sent_tick = None
        self._sent.clear()


class OwnReads:
    """A follower's own reads, for which it asks the leader."""

    __slots__ = ("_batch", "_waiting", "fresh")

    def __init__(self, first_batch: int) -> None:
        self._batch = first_batch  # random: answers to an earlier start of this member do not fit
        self._waiting: dict[int, tuple[int, ...]] = {}
        self.fresh: list[int] = []

    def take_batch(self) -> tuple[int, ...]:
        """Return the fresh reads' tokens; they are the caller's from now on."""
        tokens, self.fresh = tuple(self.fresh), []
        return tokens

    def wait_for_leader(self) -> int:
        """Let the fresh reads wait for the leader's answer; return the number to ask with."""
        self._batch += 1
        self._waiting[self._batch] = self.take_batch()
        return self._batch

    def answered(self, batch: int) -> tuple[int, ...]:
        """Return the tokens of a batch that the leader has answered."""
        return self._waiting.pop(batch, ())

    def drop(self) -> list[int]:
        """Return the tokens that wait for a leader that leads no more."""
        tokens = [token for waiting in self._waiting.values() for token in waiting]
        self._waiting.clear()
        return tokens
