"""What a node asks its driver to do.

    effects = node.take_effects()
      messages             send at once, in order
      hard_state, entries, snapshot
                           persist and sync, as one step, in the order of the effects that were taken
      messages_after_sync  send when that sync has returned
      committed            apply, in order; may begin at once
    node.persisted(effects.number)     when the sync has returned

A driver may take the next effects while the sync of earlier ones is under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsd.raft.entry import Entry, HardState, Snapshot

if TYPE_CHECKING:
    from natsd.raft.messages import Message


@dataclass(frozen=True, slots=True)
class Effects:
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
