"""A consumer's state, kept on disk: a checkpoint, and a log of the changes since.

    update_acks ──▶ tracker ──▶ changes ──▶ take_extent ──▶ group commit ──▶ synced() returns
                                                └─ log too long, or a change that no entry says
                                                   (reset): a new log and a checkpoint, in a thread;
                                                   what changes meanwhile is for the new log

Promise
- An update takes effect in memory at once; it is on disk when `synced()` returns. What a crash
  takes back is a suffix of the changes: deliveries and acks are undone, so messages may be
  delivered again, but none is skipped and none counts as acked that was not.
- Out of space: waiters get StoreFull, the state in memory goes on, nothing piles up, and once there
  is space a checkpoint says it all. After EIO or a failed sync nothing is written until the store
  is opened again, and every `synced()` raises.
- A log that nothing is written to may be closed, so that many idle consumers take few descriptors;
  it is opened again for the next change (`Volume.logs`).
- Memory: 24 bytes a pending message, and 32 bytes a change until it is written.
- One thread, the loop's, calls everything; what waits for the disk runs in the volume's threads.

Files and recovery: consumer_files.py. Source: nats-server's consumer file store (its rules, not its
format); "Durability" of the design.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from natsd.store.consumer_files import (
    OpenLog,
    Random,
    Recovery,
    create,
    recover,
    remove_log,
    write_generation,
)
from natsd.store.consumer_state import ConsumerOptions, ConsumerState
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.disk import DiskFile, is_passing
from natsd.store.errors import StoreClosed, StoreError, StoreFull, StoreReadOnly
from natsd.store.extent import CommitSource, Extent, grown_allocation
from natsd.store.volume import Volume

SLOT_BYTES: Final = 32
# A log is replaced by a checkpoint when it is longer than this and than so many times the state.
LOG_BYTES_MIN: Final = 1 << 20
LOG_STATE_FACTOR: Final = 4
# How long after a checkpoint found no space the next is tried.
RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Waiter:
    change_count: int
    future: "asyncio.Future[None]"


class ConsumerStore(CommitSource):
    """The durable state of one consumer; made by `create` or `open`."""

    def __init__(
        self,
        volume: Volume,
        directory: Path,
        random: Random,
        tracker: ConsumerTracker,
        log: OpenLog,
        recovery: Recovery,
    ) -> None:
        self.directory = directory
        self.recovery = recovery
        self._volume = volume
        self._random = random
        self._tracker = tracker
        self._log = log
        self._file: DiskFile | None = log.file  # None: it is closed, for others to be open
        self._was_used = True  # since this was asked last
        self._end = log.end  # where the next extent belongs
        self._allocated = 0
        self._durable = log.total  # changes that are written
        self._flight_bytes = 0
        self._flight_count = 0
        self._log_bytes_max = LOG_BYTES_MIN
        self._anew = False  # the log cannot say it: a checkpoint is next
        self._is_closing = False
        self._checkpointing: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None
        self._is_full = False
        self._retry: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()  # no extent is out, and no checkpoint is being written
        self._quiet.set()
        self._error: StoreError | None = None
        self._waiters: list[_Waiter] = []
        # Called with the number of changes (`change_count`) that have become durable.
        self.on_durable: Callable[[int], None] | None = None
        tracker.start_logging(log.total)
        tracker.listen(self._changed)
        volume.committer.attach(self)
        self._hold_file()
        # Millions of calls a second: no frame in between.
        self.update_delivered: Callable[[int, int, int, int], None] = tracker.update_delivered
        self.update_acks: Callable[[int, int], None] = tracker.update_acks
        self.update_starting: Callable[[int], None] = tracker.update_starting
        self.remove_redelivered_below: Callable[[int], None] = tracker.remove_redelivered_below

    @classmethod
    async def create(
        cls,
        volume: Volume,
        directory: Path,
        options: ConsumerOptions,
        random: Random,
        *,
        starting: int = 0,
    ) -> "ConsumerStore":
        """A consumer that has delivered nothing, and begins behind the stream sequence `starting`;
        on disk on return. Raises OSError."""
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        tracker.set_starting(starting)
        make = partial(create, place=volume.place_of(directory))
        log = await volume.read(make, volume.disk, directory, tracker, random)
        return cls(volume, directory, random, tracker, log, Recovery())

    @classmethod
    async def open(
        cls, volume: Volume, directory: Path, options: ConsumerOptions, random: Random
    ) -> "ConsumerStore":
        """What is on disk; `recovery` says what was found. Raises OSError, ConsumerStateDamaged."""
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        find = partial(recover, place=volume.place_of(directory))
        log, recovery = await volume.read(find, volume.disk, directory, tracker, random)
        return cls(volume, directory, random, tracker, log, recovery)

    # What can be asked

    def state(self) -> ConsumerState:
        """A copy of everything, what is not on disk yet included."""
        return self._tracker.state()

    @property
    def tracker(self) -> ConsumerTracker:
        """For compiled callers, and for what can be asked without a copy."""
        return self._tracker

    @property
    def durable_changes(self) -> int:
        """How many of the tracker's changes (`change_count`) are acknowledged by the committer."""
        return self._durable

    # Whole states: no entry says them

    def set_starting_sequence(self, stream: int) -> None:
        """The first message to deliver is the one behind that stream sequence; none is pending."""
        self._begin_anew()
        self._tracker.set_starting(stream)
        self._changed()

    def reset(self, stream: int = 0) -> None:
        """As if nothing was delivered yet, and the first message is the one behind `stream`."""
        self._begin_anew()
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)
        self._changed()

    def update(self, state: ConsumerState) -> None:
        """Take over a state that is not behind this one; else OldUpdate (InvalidConsumerState)."""
        self._tracker.check_newer(state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Take over a state, earlier ones too; raises InvalidConsumerState."""
        state.validate()
        self._begin_anew()
        self._tracker.replace(state)
        self._changed()

    def _begin_anew(self) -> None:
        if self._error is not None:
            raise self._error
        self._tracker.stop_logging()
        self._anew = True

    # Durability

    def commit(self) -> None:
        """Have what has changed written soon, without waiting for it. Whoever calls this for all
        that changes may have the tracker listen to nobody (`tracker.listen(None)`): then changes
        are written together, as often as he says."""
        self._changed()

    async def synced(self) -> None:
        """Everything changed so far is on disk. Raises StoreFull, StoreReadOnly, StoreClosed."""
        if self._error is not None:
            raise self._error
        if self._is_durable():
            return
        if self._is_full:
            raise StoreFull
        self._changed()
        await self._reached(self._tracker.change_count)

    async def close(self) -> None:
        """Write what is not on disk, a checkpoint if the log has entries, and a mark that says so.
        Raises as `synced` does."""
        if isinstance(self._error, StoreClosed):
            return
        try:
            await self.synced()
            await self._until_quiet()
            await self._settle()
            with contextlib.suppress(StoreFull):  # all is on disk, only the mark is not
                await self._mark_closed()
        finally:
            await self._shut()

    async def _mark_closed(self) -> None:
        """With all of the state in the checkpoint, a log that is cut short or stale costs nothing,
        and is reported."""
        if self._durable != self._log.generation.total:
            self._begin_anew()
            await self.synced()
            await self._until_quiet()
        self._is_closing = True
        self._changed()
        await self._reached(self._tracker.change_count)
        await self._settle()

    async def abandon(self) -> None:
        """Let go of the files, whatever was written: somebody else removes them."""
        await self._shut()

    async def _reached(self, change_count: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(change_count, future))
        await future

    async def _until_quiet(self) -> None:
        while not self._quiet.is_set():
            await self._quiet.wait()

    async def _shut(self) -> None:
        if isinstance(self._error, StoreClosed):
            return
        self._fail(StoreClosed())
        await self._until_quiet()
        if self._file is not None:
            await self._volume.committer.release(self._file)
        self._volume.committer.detach(self)
        self._volume.logs.release(self)
        if self._file is not None:
            await self._volume.read(self._file.close)

    async def _let_go(self, file: DiskFile | None) -> None:
        if file is not None:
            await self._volume.committer.release(file)
            await self._volume.read(file.close)

    async def _settle(self) -> None:
        if self._file is not None:
            await self._volume.committer.settle(self._file)

    def _changed(self) -> None:
        self._volume.committer.dirty(self)

    def _is_durable(self) -> bool:
        return self._durable == self._tracker.change_count and not self._anew

    def take_extent(self) -> Extent | None:
        """See CommitSource."""
        if self._error is not None or self._is_full or not self._quiet.is_set():
            return None
        changes = self._tracker.changes.count
        if self._anew or self._end + changes * SLOT_BYTES > self._log_bytes_max:
            self._quiet.clear()
            self._checkpointing = asyncio.get_running_loop().create_task(self._checkpoint())
            return None
        if changes == 0 and not self._is_closing:
            return None
        self._quiet.clear()
        if self._file is None:
            self._checkpointing = asyncio.get_running_loop().create_task(self._reopen())
            return None
        self._was_used = True
        self._flight_count = self._tracker.change_count
        seed = self._log.generation.seed
        extent = self._tracker.changes.seal(
            seed, self._end // SLOT_BYTES, self._flight_count, self._is_closing
        )
        self._flight_bytes = len(extent)
        end = self._end + len(extent)
        allocate_to = 0
        if end > self._allocated:
            allocate_to = self._allocated = grown_allocation(end, self._log_bytes_max)
        return Extent(self._file, self._end, extent, allocate_to, identity=seed)

    def committed(self) -> None:
        """See CommitSource."""
        self._end += self._flight_bytes
        self._quiet.set()
        self._reach(self._flight_count)

    def failed(self, error: StoreError) -> None:
        """See CommitSource. In memory everything stays as it is: it has happened."""
        self._anew = True
        self._fail(error)
        self._quiet.set()

    def resumed(self) -> None:
        """See CommitSource."""
        self._is_full = False
        self._changed()

    async def _checkpoint(self) -> None:
        try:
            await self._write_checkpoint()
        except Exception as error:
            self._not_written(error)
        finally:
            self._quiet.set()
        if not self._is_durable():
            self._changed()

    def _not_written(self, error: Exception) -> None:
        self._anew = True
        if is_passing(error):
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self.resumed)
            self._fail(StoreFull(str(error)))
        else:
            self._fail(StoreReadOnly(str(error)))

    # Whether the log's file is open

    def _hold_file(self) -> None:
        """The file is open: it counts, and may be asked to go for others."""
        self._volume.logs.hold(self, 1, self._rest_soon, self._take_used)

    def _take_used(self) -> bool:
        was_used, self._was_used = self._was_used, False
        return was_used

    def _rest_soon(self) -> None:
        self._resting = asyncio.get_running_loop().create_task(self._rest())

    async def _rest(self) -> None:
        """Close the file until something is written to it, unless that is now."""
        if self._file is None or self._error is not None:
            return
        if not self._quiet.is_set():
            self._hold_file()
            return
        self._quiet.clear()
        try:
            await self._settle()
            file, self._file = self._file, None
            await self._volume.read(file.close)
        except StoreReadOnly:  # which `failed` has said
            return
        finally:
            self._quiet.set()
        if not self._is_durable():
            self._changed()

    async def _reopen(self) -> None:
        try:
            disk, path = self._volume.disk, self._log.generation.path
            self._file = await self._volume.read(disk.open, path)
            self._was_used = True
            self._hold_file()
        except OSError as error:
            self._not_written(error)
        finally:
            self._quiet.set()
        self._changed()

    async def _write_checkpoint(self) -> None:
        """Write the state as it is now, and go on in a new log."""
        tracker, disk = self._tracker, self._volume.disk
        count, state = tracker.change_count, tracker.encode()
        tracker.start_logging(count)
        self._anew = False
        following = self._log.generation.following(count, self._random)
        log = await self._volume.read(write_generation, disk, following, state)
        replaced, self._log = self._log, log
        old_file, self._file = self._file, log.file
        self._hold_file()
        self._end, self._allocated = log.end, 0
        self._log_bytes_max = max(LOG_BYTES_MIN, LOG_STATE_FACTOR * len(state))
        self._reach(count)
        await self._drop(replaced, old_file)

    async def _drop(self, log: OpenLog, file: DiskFile | None) -> None:
        """Remove a log that no checkpoint names any more. If the journal cannot forget it, it stays
        until the next start, which removes it."""
        try:
            await self._volume.committer.forget(log.generation.path)
        except StoreReadOnly:
            await self._let_go(file)
        else:
            await self._let_go(file)
            await self._volume.read(remove_log, self._volume.disk, log)

    def _fail(self, error: StoreError) -> None:
        """Tell those who wait; the state in memory goes on, unlogged."""
        self._tracker.stop_logging()
        if isinstance(error, StoreFull):
            self._is_full = True
        else:
            self._error = error
            self._tracker.listen(None)
            if self._retry is not None:
                self._retry.cancel()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _reach(self, change_count: int) -> None:
        self._durable = change_count
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.change_count > change_count:
                self._waiters.append(waiter)
            elif not waiter.future.done():
                waiter.future.set_result(None)
        if self.on_durable is not None:
            self.on_durable(change_count)
