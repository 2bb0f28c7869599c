"""What an application gives to its group: the state that its committed entries change."""

from collections.abc import Sequence
from typing import Protocol

from natsd.raft.entry import Entry


class StateMachine(Protocol):
    """The state of one group; equal on all members after the same entries. Calls do not block."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply commands in order; return the result of each, which the proposer gets.

        Empty commands and memberships are not among them.
        """

    def snapshot(self) -> bytes:
        """Return the state after all that was applied."""

    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot; empty data: the state of a new group."""
