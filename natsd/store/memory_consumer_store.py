"""A consumer's state in memory only: ConsumerStore's face without its files.

Every decision is the tracker's (consumer_tracker.pyx), so both stores share it.
"""

from collections.abc import Callable

from natsd.store.consumer_state import ConsumerOptions, ConsumerState
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.errors import StoreClosed


class MemoryConsumerStore:
    """The same face without a disk: what is changed is as durable as it will ever be."""

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
        """For compiled callers, and for what can be asked without a copy."""
        return self._tracker

    @property
    def durable_changes(self) -> int:
        """All of them."""
        return self._tracker.change_count

    def state(self) -> ConsumerState:
        """A copy of everything."""
        return self._tracker.state()

    def set_starting_sequence(self, stream: int) -> None:
        """The first message to deliver is the one behind that stream sequence; none is pending."""
        self._tracker.set_starting(stream)

    def reset(self, stream: int = 0) -> None:
        """As if nothing was delivered yet, and the first message is the one behind `stream`."""
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)

    def update(self, state: ConsumerState) -> None:
        """Take over a state that is not behind this one; else OldUpdate (InvalidConsumerState)."""
        self._tracker.check_newer(state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Take over a state, earlier ones too; raises InvalidConsumerState."""
        state.validate()
        self._tracker.replace(state)

    def commit(self) -> None:
        """Nothing to write."""

    async def synced(self) -> None:
        """Nothing to wait for; raises StoreClosed."""
        if self._closed:
            raise StoreClosed

    async def close(self) -> None:
        """Nothing can be waited for any more."""
        self._closed = True

    async def abandon(self) -> None:
        """The same as `close`."""
        self._closed = True
