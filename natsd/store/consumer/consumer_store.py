"""A consumer's state, kept on disk: a checkpoint, and a log of the changes since.

    update_acks ──▶ tracker ──▶ changes ──▶ take_extent ──▶ group commit ──▶ synced() returns
                                                └─ the log is too long, or no entry can express the
                                                   change (reset): a thread writes a new log and a
                                                   checkpoint; later changes go to the new log

Promise
- A state that never changed has no files: an idle consumer costs no write, sync or descriptor. The
  first change writes a checkpoint with the whole state.
- An update takes effect in memory at once; it is on disk when `synced()` returns. A crash undoes
  only the latest changes, without gaps: undone deliveries and acks may lead to redeliveries, but no
  message is skipped, and none counts as acknowledged that was not.
- Out of space: waiting callers get StoreFull, the state in memory goes on, nothing piles up, and
  once there is space a checkpoint writes the whole state. After EIO or a failed sync nothing is
  written until the store is opened again, and every `synced()` raises.
- An idle log may be closed, so that many idle consumers need few descriptors; it is opened again
  for the next change (`Volume.logs`).
- Memory: 24 bytes for each pending message, and 32 bytes for each change until it is written.
- All calls come from one thread, the loop's; work that waits for the disk runs in the volume's
  threads.

Files and recovery: consumer_files.py. Source: nats-server's `consumerFileStore`
(server/filestore.go) for the rules, not for the format; docs/store.md for durability.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from natsd.store.commit.commits import BEHIND_S, CommitSource
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_files import (
    OpenLog,
    Random,
    Recovery,
    create,
    recover,
    remove_log,
    write_first_change,
    write_generation,
)
from natsd.store.consumer.consumer_state import ConsumerOptions, ConsumerState
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.disk.disk import DiskFile, is_transient
from natsd.store.errors import StoreClosed, StoreError, StoreFull, StoreReadOnly
from natsd.store.wal.entries import Extent, grown_allocation

ENTRY_BYTES: Final = 32
# A log is replaced by a checkpoint when it is longer than LOG_BYTES_MIN and longer than
# LOG_STATE_FACTOR times the encoded state.
LOG_BYTES_MIN: Final = 1 << 20
LOG_STATE_FACTOR: Final = 4
# Wait after a checkpoint that lacked space, a descriptor or memory, before the next try.
RETRY_S: Final = 1.0


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A caller that waits until so many changes (`change_count`) are durable."""

    change_count: int
    future: "asyncio.Future[None]"


class ConsumerStore(CommitSource):
    """The durable state of one consumer; made by `begin`, `create` or `open`."""

    def __init__(
        self,
        volume: Volume,
        directory: Path,
        random: Random,
        tracker: ConsumerTracker,
        log: OpenLog | None,
        recovery: Recovery,
    ) -> None:
        self.directory = directory
        self.recovery = recovery
        self._volume = volume
        self._random = random
        self._tracker = tracker
        self._log = log  # None: the state never changed, and has no files
        # None: there is none, or it is closed, since other logs need descriptors
        self._file: DiskFile | None = None if log is None else log.file
        self._was_used = True  # whether the log was written since `_take_used` was last called
        self._end = 0 if log is None else log.end  # offset of the next extent in the log
        self._allocated = 0  # file size that is reserved, in bytes
        # number of changes that are committed
        self._durable = 0 if log is None else log.total
        self._flight_bytes = 0  # length of the extent that is being written
        self._flight_count = 0  # number of changes once that extent is written
        self._log_bytes_max = LOG_BYTES_MIN
        self._anew = False  # a checkpoint is needed, since log entries cannot express the change
        self._checkpointing: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None
        self._is_full = False
        self._retry: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()  # set: no extent is out, no checkpoint is being written
        self._quiet.set()
        self._error: StoreError | None = None
        self._waiters: list[_Waiter] = []
        self._is_behind = False
        self._later: asyncio.TimerHandle | None = None  # after which changes are written
        # Called with the number of durable changes (`change_count`) after each commit.
        self.on_durable: Callable[[int], None] | None = None
        tracker.start_logging(self._durable)
        tracker.listen(self.commit)
        volume.committer.attach(self)
        if self._file is not None:
            self._hold_file()
        # Direct references save a Python frame: these are called millions of times a second.
        self.update_delivered: Callable[[int, int, int, int], None] = tracker.update_delivered
        self.update_acks: Callable[[int, int], None] = tracker.update_acks
        self.update_starting: Callable[[int], None] = tracker.update_starting
        self.remove_redelivered_below: Callable[[int], None] = tracker.remove_redelivered_below

    @classmethod
    def begin(
        cls,
        volume: Volume,
        directory: Path,
        options: ConsumerOptions,
        random: Random,
        *,
        starting: int = 0,
    ) -> "ConsumerStore":
        """Return the store of a consumer without deliveries, which has no files yet.

        The first message to deliver is the one behind stream sequence `starting`. The caller keeps
        this number, and begins again with it as long as `is_blank` holds of the directory.
        """
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        tracker.set_starting(starting)
        return cls(volume, directory, random, tracker, None, Recovery())

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
        """Create the store of a consumer without deliveries; it is on disk on return.

        The first message to deliver is the one behind stream sequence `starting`. Raises OSError.
        """
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        tracker.set_starting(starting)
        make = partial(create, place=volume.place_of(directory))
        log = await volume.read(make, volume.disk, directory, tracker, random)
        return cls(volume, directory, random, tracker, log, Recovery())

    @classmethod
    async def open(
        cls, volume: Volume, directory: Path, options: ConsumerOptions, random: Random
    ) -> "ConsumerStore":
        """Open the state on disk; `recovery` of the result tells what was found.

        Raises OSError, or ConsumerStateDamaged if no checkpoint verifies.
        """
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        find = partial(recover, place=volume.place_of(directory))
        log, recovery = await volume.read(find, volume.disk, directory, tracker, random)
        return cls(volume, directory, random, tracker, log, recovery)

    # Queries

    def state(self) -> ConsumerState:
        """Return a copy of the whole state, including changes that are not on disk yet."""
        return self._tracker.state()

    @property
    def tracker(self) -> ConsumerTracker:
        """The state in memory, for compiled callers and for queries that need no copy."""
        return self._tracker

    @property
    def durable_changes(self) -> int:
        """Number of the tracker's changes (`change_count`) that the committer has acknowledged."""
        return self._durable

    # Changes of the whole state, which no log entry can express

    def set_starting_sequence(self, stream: int) -> None:
        """Make the message behind stream sequence `stream` the next to deliver; none is pending."""
        self._begin_anew()
        self._tracker.set_starting(stream)
        self._changed()

    def reset(self, stream: int = 0) -> None:
        """Drop all deliveries, and begin with the message behind stream sequence `stream`."""
        self._begin_anew()
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)
        self._changed()

    def update(self, state: ConsumerState) -> None:
        """Replace the state by one that is not older.

        Raises OldUpdate if it is older, and InvalidConsumerState if it contradicts itself.
        """
        self._tracker.check_newer(state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Replace the state by another one, even an older one; raise InvalidConsumerState."""
        state.validate()
        self._begin_anew()
        self._tracker.replace(state)
        self._changed()

    def restore(self, encoded: bytes) -> None:
        """Replace the state by an encoded one (`ConsumerTracker.encode`)."""
        self._begin_anew()
        self._tracker.decode(encoded)
        self._changed()

    def _begin_anew(self) -> None:
        if self._error is not None:
            raise self._error
        self._tracker.stop_logging()
        self._anew = True

    # Durability

    def commit(self) -> None:
        """Write the changes soon, without waiting.

        A caller that calls this after all of its changes may set `tracker.listen(None)`: then
        changes are written together, as often as the caller asks.
        """
        if not self._is_behind:
            self._changed()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(BEHIND_S, self._write_collected)

    def write_behind(self) -> None:
        """Collect changes before they are written: another log has them, and they count already."""
        self._is_behind = True

    def _write_collected(self) -> None:
        self._later = None
        self._changed()

    async def synced(self) -> None:
        """Wait until all changes so far are durable.

        Raises StoreFull, StoreReadOnly or StoreClosed.
        """
        if self._error is not None:
            raise self._error
        if self._is_durable():
            return
        if self._is_full:
            raise StoreFull
        self._changed()
        await self._reached(self._tracker.change_count)

    async def verify(self, find_damage: Callable[[int], list[T]]) -> list[T]:
        """Return what `find_damage` finds in the files, which do not change meanwhile.

        It is called in a thread, with the number of bytes in the log. If it finds something, a new
        checkpoint with the whole state replaces the files. Raises StoreError, OSError.
        """
        await self._until_quiet()
        if self._error is not None or self._log is None:
            return []
        self._quiet.clear()
        try:
            found = await self._volume.read(find_damage, self._end)
        finally:
            self._quiet.set()
        if found:
            self._begin_anew()
        if not self._is_durable():
            self._changed()
        return found

    async def close(self) -> None:
        """Write all changes, and a checkpoint with the whole state unless the log is empty.

        Then a log that is cut short or replaced by an older one loses nothing. The first log is
        replaced even if it is empty, since its number tells that the state was never used. A state
        without files is left so. Raises as `synced` does.
        """
        if isinstance(self._error, StoreClosed):
            return
        try:
            await self.synced()
            await self._until_quiet()
            await self._settle()
            generation = None if self._log is None else self._log.generation
            if generation and (generation.log_id == 1 or self._durable != generation.total):
                with contextlib.suppress(StoreFull):  # the log has all changes
                    self._begin_anew()
                    await self.synced()
                    await self._until_quiet()
        finally:
            await self._shut()

    async def abandon(self) -> None:
        """Close the files without writing, since the caller removes them."""
        await self._shut()

    async def _reached(self, change_count: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(change_count, future))
        await future

    async def _until_quiet(self) -> None:
        """Wait until no extent is out and no checkpoint is being written."""
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
        """Sync the log's file, if it is open."""
        if self._file is not None:
            await self._volume.committer.settle(self._file)

    def _changed(self) -> None:
        """Tell the committer that there are changes to write."""
        self._volume.committer.dirty(self)

    def _is_durable(self) -> bool:
        return self._durable == self._tracker.change_count and not self._anew

    def take_extent(self) -> Extent | None:
        """Return the changes to write, or None; see CommitSource."""
        if self._error is not None or self._is_full or not self._quiet.is_set():
            return None
        changes = self._tracker.changes.count
        is_first = self._log is None and self._tracker.change_count > 0
        if self._anew or is_first or self._end + changes * ENTRY_BYTES > self._log_bytes_max:
            self._quiet.clear()
            self._checkpointing = asyncio.get_running_loop().create_task(self._checkpoint())
            return None
        if changes == 0 or self._log is None:
            return None
        self._quiet.clear()
        if self._file is None:
            self._checkpointing = asyncio.get_running_loop().create_task(self._reopen())
            return None
        self._was_used = True
        self._flight_count = self._tracker.change_count
        seed = self._log.generation.seed
        batch = self._tracker.changes.seal(seed, self._end, self._flight_count)
        self._flight_bytes = len(batch)
        end = self._end + len(batch)
        allocate_to = 0
        if end > self._allocated:
            allocate_to = self._allocated = grown_allocation(end, self._log_bytes_max)
        return Extent(self._file, self._end, batch, allocate_to, identity=seed)

    def committed(self) -> None:
        """Count the extent as durable; see CommitSource."""
        self._end += self._flight_bytes
        self._quiet.set()
        self._reach(self._flight_count)

    def failed(self, error: StoreError) -> None:
        """Tell the waiting callers; see CommitSource.

        The state in memory stays as it is, since the deliveries and acks have happened.
        """
        self._anew = True
        self._fail(error)
        self._quiet.set()

    def resumed(self) -> None:
        """Write again, since space is available; see CommitSource."""
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
        """Tell the waiting callers that a file could not be written; retry if that may help."""
        self._anew = True
        if is_transient(error):
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self.resumed)
            self._fail(StoreFull(str(error)))
        else:
            self._fail(StoreReadOnly(str(error)))

    # Opening and closing the log's file

    def _hold_file(self) -> None:
        """Count the open file; the volume may ask to close it in favour of other logs."""
        self._volume.logs.hold(self, 1, self._rest_soon, self._take_used)

    def _take_used(self) -> bool:
        was_used, self._was_used = self._was_used, False
        return was_used

    def _rest_soon(self) -> None:
        self._resting = asyncio.get_running_loop().create_task(self._rest())

    async def _rest(self) -> None:
        """Close the file until the next change; keep it open if an extent is out."""
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
        except StoreReadOnly:  # `failed` has told the waiting callers
            return
        finally:
            self._quiet.set()
        if not self._is_durable():
            self._changed()

    async def _reopen(self) -> None:
        try:
            assert self._log is not None
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
        """Write the current state to a checkpoint, and go on in a new log."""
        tracker, disk = self._tracker, self._volume.disk
        count, state = tracker.change_count, tracker.encode()
        tracker.start_logging(count)
        self._anew = False
        if self._log is None:
            place = self._volume.place_of(self.directory)
            make = partial(write_first_change, place=place)
            arguments = (disk, self.directory, state, count, self._random)
            log = await self._volume.read(make, *arguments)
        else:
            following = self._log.generation.following(count, self._random)
            log = await self._volume.read(write_generation, disk, following, state)
        replaced, self._log = self._log, log
        old_file, self._file = self._file, log.file
        self._hold_file()
        self._end, self._allocated = log.end, 0
        self._log_bytes_max = max(LOG_BYTES_MIN, LOG_STATE_FACTOR * len(state))
        self._reach(count)
        if replaced is not None:
            await self._drop(replaced, old_file)

    async def _drop(self, log: OpenLog, file: DiskFile | None) -> None:
        """Remove a log that no checkpoint names any more.

        If the journal cannot forget the log, its file stays until the next start, which removes it.
        """
        try:
            await self._volume.committer.forget(log.generation.path)
        except StoreReadOnly:
            await self._let_go(file)
        else:
            await self._let_go(file)
            await self._volume.read(remove_log, self._volume.disk, log)

    def _fail(self, error: StoreError) -> None:
        """Pass the error to the waiting callers; the state in memory goes on without a log."""
        self._tracker.stop_logging()
        if isinstance(error, StoreFull):
            self._is_full = True
        else:
            self._error = error
            self._tracker.listen(None)
            for timer in (self._retry, self._later):
                if timer is not None:
                    timer.cancel()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _reach(self, change_count: int) -> None:
        """Note that so many changes are durable, and wake the callers that wait for them."""
        self._durable = change_count
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.change_count > change_count:
                self._waiters.append(waiter)
            elif not waiter.future.done():
                waiter.future.set_result(None)
        if self.on_durable is not None:
            self.on_durable(change_count)
