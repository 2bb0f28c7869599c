"""What an application gives to its group: the state that its committed entries change.

    apply     committed entries, in order                                       on every member
    leads     this member leads now, and has applied what came before; or no more
    snapshot  the state, or where to get it      ─▶ the log may drop what it stands for
    fetch     a leader's snapshot stands for state that is elsewhere: get it    on a member that
    restore   take the state of a snapshot                                      was left behind

A state that fits into a message is its own snapshot. A larger one has a snapshot that says what it
is, and stays where it is: `snapshot` waits until it is on disk there, and `fetch` copies it.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from natsd.raft.entry import Entry


class StateMachine(ABC):
    """The state of one group; equal on all members after the same entries. Calls do not block."""

    @abstractmethod
    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply commands in order; return the result of each, which the proposer gets.

        Empty commands and memberships are not among them.
        """

    @abstractmethod
    def snapshot(self) -> bytes | Callable[[], Awaitable[bytes]]:
        """Return the state after all that was applied.

        What a function returns is awaited: it returns once the state of this call, or a later one,
        is on disk. If it raises, the log is kept.
        """

    def fetch(self, data: bytes) -> Callable[[], Awaitable[None]] | None:
        """Get what the snapshot of another member stands for; None: nothing, it is the state.

        What the function returns is awaited: it returns once all is on disk, beside the state, and
        tries until it succeeds.
        """
        return None

    @abstractmethod
    def restore(self, data: bytes) -> None:
        """Replace the state by that of a snapshot; empty data: the state of a new group.

        When a group starts, `data` is that of the newest snapshot of this member: a state that is
        kept elsewhere may be later.
        """

    def leads(self, *, is_leader: bool) -> None:  # noqa: B027  (most have nothing to do)
        """Take note that this member leads from now on, or no more.

        Whoever leads has applied all entries of earlier leaders.
        """
