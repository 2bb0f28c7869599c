"""A consumer's state in memory only: the interface of ConsumerStore without its files.

Every decision is the tracker's (consumer_tracker.pyx), so both stores share it.
"""

from collections.abc import Callable

from natsd.store.consumer.consumer_state import ConsumerOptions, ConsumerState
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.errors import StoreClosed


class MemoryConsumerStore:
    """ConsumerStore without a disk: a change is as durable as it will ever be."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        self._closed = False
        # Never called: `durable_changes` is up to date at once.
        self.on_durable: Callable[[int], None] | None = None
        self.update_delivered = self._tracker.update_delivered
        self.update_acks = self._tracker.update_acks
        self.update_starting = self._tracker.update_starting
        self.remove_redelivered_below = self._tracker.remove_redelivered_below

    @property
    def tracker(self) -> ConsumerTracker:
        """The tracker, for compiled callers and for questions that need no copy."""
        return self._tracker

    @property
    def durable_changes(self) -> int:
        """Number of changes so far (`change_count`); all of them are durable."""
        return self._tracker.change_count

    def state(self) -> ConsumerState:
        """Return a copy of the whole state."""
        return self._tracker.state()

    def set_starting_sequence(self, stream: int) -> None:
        """Go on behind the stream sequence `stream`; nothing is pending or redelivered then."""
        self._tracker.set_starting(stream)

    def reset(self, stream: int = 0) -> None:
        """Undo all deliveries and begin behind the stream sequence `stream`."""
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)

    def update(self, state: ConsumerState) -> None:
        """Replace the state by one that is not behind it.

        Raises OldUpdate if it is behind, and InvalidConsumerState.
        """
        self._tracker.check_newer(state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Replace the state, also by an earlier one. Raises InvalidConsumerState."""
        state.validate()
        self._tracker.replace(state)

    def restore(self, encoded: bytes) -> None:
        """Replace the state by an encoded one (`ConsumerTracker.encode`)."""
        self._tracker.decode(encoded)

    def commit(self) -> None:
        """Do nothing: there is nothing to write."""

    def write_behind(self) -> None:
        """Do nothing: there is nothing to write."""

    async def synced(self) -> None:
        """Return at once: every change is durable. Raises StoreClosed after `close`."""
        if self._closed:
            raise StoreClosed

    async def close(self) -> None:
        """Close the store; `synced` raises StoreClosed from now on."""
        self._closed = True

    async def abandon(self) -> None:
        """Close the store, as `close` does."""
        self._closed = True
