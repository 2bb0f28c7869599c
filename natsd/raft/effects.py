"""What a node asks its driver to do.

    effects = node.take_effects()
      messages             send at once, in order
      hard_state, snapshot, entries
                           persist and sync as one step, in the order in which effects were taken
      messages_after_sync  send when that sync, and those of all earlier effects, have returned
      committed            apply, in order, behind `snapshot`; may begin at once
      reads                answer when the application has applied everything up to `index`
      dropped_reads        the leadership has changed: ask again, or refuse
    node.persisted(effects.number)     when the sync has returned

A driver may take the next effects while the sync of earlier ones is under way. If it combines the
writes of several effects, it says `persisted` of the last number only. Effects that have nothing
to persist (`not effects.writes`) need no `persisted`, but their `messages_after_sync` still wait
for the syncs of earlier effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from natsd.raft.entry import Entry, HardState, Snapshot

if TYPE_CHECKING:
    from natsd.raft.messages import Message


class Read(NamedTuple):
    """A linearizable read that may be answered once the application has applied `index`."""

    token: int
    """The driver's own number of the read."""
    index: int  # type: ignore[assignment]  # it hides tuple.index, which nobody needs


class Effects(NamedTuple):
    """All that a node asks for since the last call; empty members ask for nothing."""

    number: int
    """Consecutive number, which `Node.persisted` names."""
    hard_state: HardState | None
    entries: tuple[Entry, ...]
    """To append; entries on disk at the index of the first one and behind it are replaced."""
    snapshot: Snapshot | None
    """To persist before the entries; it replaces the whole log, and the state machine's state."""
    messages: tuple[Message, ...]
    messages_after_sync: tuple[Message, ...]
    committed: tuple[Entry, ...]
    reads: tuple[Read, ...] = ()
    dropped_reads: tuple[int, ...] = ()
    """Tokens of reads that will get no answer."""
    may_wait: bool = False
    """Nobody waits for the sync: a majority has the entries on disk already."""

    @property
    def writes(self) -> bool:
        """Tell whether there is anything to persist."""
        return bool(self.hard_state or self.entries or self.snapshot)
