"""A consumer's state with changes that its replicas have not committed yet.

    engine ──▶ tracker: all changes ──▶ commands ──▶ committed ──▶ the store's own tracker ──▶ disk

Promise
- The interface of ConsumerStore; its `tracker` is the proposed state, which decides.
- A change is durable when it is committed: then the logs of the replicas have it.
- The store below gets each change when it is committed, so nothing has to be undone there. Its
  files are written later.
- Both trackers count the same changes, so `durable_changes` counts those of `tracker`.
"""

import asyncio
from collections.abc import Callable

from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.errors import StoreClosed


class StagedConsumerStore:
    """The proposed state of a consumer, above the store with the committed one."""

    def __init__(self, committed: ConsumerStore | MemoryConsumerStore) -> None:
        self.committed = committed
        tracker = ConsumerTracker(committed.tracker.ack_policy, committed.tracker.max_deliver)
        self._tracker = tracker
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.on_durable: Callable[[int], None] | None = None
        """Called with the number of durable changes after each commit."""
        self.update_delivered = tracker.update_delivered
        self.update_acks = tracker.update_acks
        self.update_starting = tracker.update_starting
        self.remove_redelivered_below = tracker.remove_redelivered_below
        self._begin_as_committed()

    def _begin_as_committed(self) -> None:
        tracker, committed = self._tracker, self.committed.tracker
        tracker.decode(committed.encode())
        tracker.start_logging(committed.change_count)
        tracker.stop_logging()

    @property
    def tracker(self) -> ConsumerTracker:
        """The proposed state, for compiled callers."""
        return self._tracker

    @property
    def durable_changes(self) -> int:
        """Number of the tracker's changes that are committed."""
        return self.committed.tracker.change_count

    def moved(self) -> None:
        """Tell those who wait that the committed store has got changes."""
        self.committed.commit()
        count = self.committed.tracker.change_count
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for wanted, future in waiters:
                if wanted > count:
                    self._waiters.append((wanted, future))
                elif not future.done():
                    future.set_result(None)
        if self.on_durable is not None:
            self.on_durable(count)

    def state(self) -> ConsumerState:
        """Return a copy of the whole proposed state."""
        return self._tracker.state()

    def reset(self, stream: int = 0) -> None:
        """Propose to undo all deliveries and to begin behind the stream sequence `stream`."""
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)

    def set_starting_sequence(self, stream: int) -> None:
        """Go on behind the stream sequence `stream`, in the committed state too."""
        self.committed.set_starting_sequence(stream)
        self._begin_as_committed()

    def update(self, state: ConsumerState) -> None:
        """Replace the committed and the proposed state by one that is not behind it.

        Raises OldUpdate if it is behind, and InvalidConsumerState.
        """
        self._tracker.check_newer(state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Replace the committed and the proposed state. Raises InvalidConsumerState."""
        self.committed.force_update(state)
        self._begin_as_committed()

    def commit(self) -> None:
        """Write what is committed soon, without waiting."""
        self.committed.commit()

    async def synced(self) -> None:
        """Wait until all changes so far are committed and durable. Raises StoreError."""
        count = self._tracker.change_count
        if self.committed.tracker.change_count < count:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((count, future))
            await future
        await self.committed.synced()

    def give_up(self) -> None:
        """Raise StoreClosed for all who wait for a change to be committed."""
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(StoreClosed())

    async def close(self) -> None:
        """Close the committed store; what is not committed is forgotten."""
        self.give_up()
        await self.committed.close()

    async def abandon(self) -> None:
        """Close the committed store without writing."""
        self.give_up()
        await self.committed.abandon()
