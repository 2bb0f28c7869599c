"""A member's storage: what survives a crash, and what recovery says of damage.

`Storage` is the seam: the simulator runs the model below, or the real log on a simulated disk.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from natsd.raft.entry import NOBODY, NOTHING, Entry, HardState, Health, Snapshot


class Recovered(NamedTuple):
    """What a member starts from; `hard_state.health` says whether something is lost."""

    hard_state: HardState
    snapshot: Snapshot
    entries: tuple[Entry, ...]


class Storage(Protocol):
    """The storage of one member."""

    def write(
        self,
        number: int,
        hard_state: HardState | None,
        snapshot: Snapshot | None,
        entries: tuple[Entry, ...],
    ) -> None:
        """Begin to write; it may or may not survive a crash until `sync` has returned."""

    def sync(self, number: int) -> None:
        """Make everything up to this write durable."""

    def compact(self, snapshot: Snapshot) -> None:
        """Persist the application's snapshot, and drop the entries that it replaces."""

    def crash(self, rng: random.Random) -> None:
        """Lose unsynced writes, except some of the first of them; the next one is torn."""

    def damage(self, rng: random.Random) -> str:
        """Flip bits in what is durable; return what was hit."""

    def recover(self) -> Recovered:
        """Return what can be read after a crash."""


NewDisk = Callable[[Snapshot], Storage]
"""Makes the storage of a new member."""


class ModelDisk:
    """A storage that does what it promises."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.hard_state = HardState(0, NOBODY)
        self.snapshot = snapshot
        self.entries: list[Entry] = []
        self.unsynced: deque[tuple[int, HardState | None, Snapshot | None, tuple[Entry, ...]]] = (
            deque()
        )

    def write(
        self,
        number: int,
        hard_state: HardState | None,
        snapshot: Snapshot | None,
        entries: tuple[Entry, ...],
    ) -> None:
        self.unsynced.append((number, hard_state, snapshot, entries))

    def sync(self, number: int) -> None:
        while self.unsynced and self.unsynced[0][0] <= number:
            self._keep_first()

    def _keep_first(self) -> None:
        _, hard_state, snapshot, entries = self.unsynced.popleft()
        if hard_state is not None:
            self.hard_state = hard_state
        if snapshot is not None:
            self.snapshot, self.entries = snapshot, []
        if entries:
            keep = entries[0].index - self.snapshot.index - 1
            if keep >= 0:
                assert keep <= len(self.entries), "a gap in the log"
                self.entries[keep:] = entries
            else:  # compacted while it was being written
                self.entries = [e for e in entries if e.index > self.snapshot.index]

    def compact(self, snapshot: Snapshot) -> None:
        drop = snapshot.index - self.snapshot.index
        self.snapshot = snapshot
        del self.entries[:drop]

    def crash(self, rng: random.Random) -> None:
        for _ in range(rng.randrange(len(self.unsynced) + 1)):
            self._keep_first()
        self.unsynced.clear()

    def damage(self, rng: random.Random) -> str:
        health = self.hard_state.health
        chance = rng.random()
        if chance < 0.15:
            self.hard_state = HardState(0, NOBODY, Health.VOTE_LOST)
            return "both copies of the hard state"
        if health is Health.SOUND:
            self.hard_state = self.hard_state._replace(health=Health.LOG_LOST)
        if chance < 0.35 or not self.entries:
            self.snapshot, self.entries = NOTHING, []
            return "the snapshot"
        position = max(rng.randrange(len(self.entries)), rng.randrange(len(self.entries)))
        del self.entries[position:]
        return f"the log from index {self.snapshot.index + 1 + position} on"

    def recover(self) -> Recovered:
        return Recovered(self.hard_state, self.snapshot, tuple(self.entries))
