"""A consumer's state, kept: a checkpoint, and a log of the changes since.

    obs/<consumer>/state.db     checkpoint, a doubled file (doubled_file.py), body:
                                0 log id u32 · 4 zero u32 · 8 seed of the log u64
                                16 changes before the log u64 · 24 the state (consumer_tracker.pyx)
                   000007.log   the changes since, in extents (consumer_log.pxd); its id is 7
                   damaged/     logs that were found damaged, as they were found

    take_extent ──▶ Extent ──▶ group commit ──▶ committed ──▶ synced() returns
        └─ log too long, or a change that no entry says (reset): a new, empty log, then the
           checkpoint that names it, in a thread; what changes meanwhile is kept for the new log

Promise
- An update takes effect in memory at once; it is on disk when `synced()` returns. What a crash takes
  back is a suffix of the changes: deliveries and acks are undone, so messages may be delivered
  again, but none is skipped and none counts as acked that was not.
- The checkpoint decides: the one log that it names counts, every other is a leftover.
- Recovery cuts a torn tail. Damage is reported with file and offset, the log is set aside, and the
  state goes on in a new one: what parity gives back is kept, and behind a gap nothing counts but
  acks of what is known to be pending.
- Out of space: waiters get StoreFull, the state in memory goes on, and what is not on disk is
  written once there is space, as a checkpoint if it has become much. After EIO or a failed sync
  nothing is written until the store is opened again, and every `synced()` raises.
- Memory: 24 bytes a pending message, and at most `UNWRITTEN_CHANGES_MAX` changes of 32 bytes.

Source: nats-server's consumer file store (its rules, not its format); "Durability" of the design.
"""

import asyncio
import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from natsd.store.consumer_log import LogScan, encode_log_header, scan_log
from natsd.store.consumer_state import AckPolicy, ConsumerState
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.disk import Disk, DiskFile, is_out_of_space, make_directories
from natsd.store.doubled_file import (
    UNFINISHED_SUFFIX,
    decode_doubled,
    read_file,
    replace_doubled,
)
from natsd.store.errors import (
    ConsumerStateDamaged,
    DamagedEncoding,
    OldUpdate,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from natsd.store.extent import CommitSource, Extent, grown_allocation

CHECKPOINT_FILE: Final = "state.db"
CHECKPOINT_MAGIC: Final = b"NATSDOCP"
CHECKPOINT: Final = struct.Struct("<IIQQ")
LOG_SUFFIX: Final = ".log"
LOG_HEADER_BYTES: Final = 64
SLOT_BYTES: Final = 32
DAMAGED_DIRECTORY: Final = "damaged"

# A log is replaced by a checkpoint when it is longer than this and than so many times the state.
LOG_BYTES_MIN: Final = 1 << 20
LOG_STATE_FACTOR: Final = 4
UNWRITTEN_CHANGES_MAX: Final = 1 << 17

Random: TypeAlias = Callable[[int], bytes]


class Host(Protocol):
    """What a consumer store needs of its volume."""

    @property
    def disk(self) -> Disk: ...

    def dirty(self, source: CommitSource) -> None:
        """Have `source.take_extent` called soon."""

    def in_thread(
        self, job: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run a blocking job elsewhere, then call `done` with its error on the loop's thread."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What of a consumer's configuration decides how its state changes; 0: deliver for ever."""

    ack_policy: AckPolicy = AckPolicy.EXPLICIT
    max_deliver: int = 0


@dataclass(frozen=True, slots=True)
class FileDamage:
    """Bytes that do not verify. `harmless`: nothing was lost by them."""

    path: Path
    offset: int
    length: int
    what: str
    harmless: bool

    def __str__(self) -> str:
        cost = "nothing lost" if self.harmless else "changes lost"
        return f"{self.path}: {self.length} bytes at {self.offset}: {self.what} ({cost})"


@dataclass(slots=True)
class _Generation:
    """A log, and what the checkpoint that names it says."""

    log_id: int
    seed: int
    total: int
    path: Path

    @property
    def checkpoint(self) -> bytes:
        return CHECKPOINT.pack(self.log_id, 0, self.seed, self.total)


@dataclass(slots=True)
class _Waiter:
    change_count: int
    future: "asyncio.Future[None]"


@dataclass(slots=True)
class Recovery:
    """What opening found; `set_aside` is where the damaged log is now."""

    damage: list[FileDamage] = field(default_factory=list)
    torn_at: int | None = None
    late_acks: int = 0
    set_aside: Path | None = None


class ConsumerStore:
    """The durable state of one consumer. Updates, one loop's thread only, never block."""

    def __init__(
        self,
        host: Host,
        directory: Path,
        random: Random,
        tracker: ConsumerTracker,
        generation: _Generation,
        file: DiskFile,
        end: int,
    ) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.recovery = Recovery()
        self._host = host
        self._random = random
        self._tracker = tracker
        self._generation = generation
        self._file = file
        self._end = end  # where the next extent belongs
        self._durable = tracker.change_count  # changes that are on disk
        self._flight: bytes | None = None  # the extent that is out, or failed and goes out again
        self._flight_count = 0
        self._log_bytes_max = LOG_BYTES_MIN
        self._busy = False  # an extent is out, or a checkpoint is being written
        self._anew = False  # the log cannot say it: a checkpoint is next
        self._starved = False  # there was no space for a checkpoint
        self._error: StoreError | None = None
        self._waiters: list[_Waiter] = []
        # Millions of calls a second: no frame in between.
        self.update_delivered = tracker.update_delivered
        self.update_acks = tracker.update_acks
        self.update_starting = tracker.update_starting
        self.remove_redelivered_below = tracker.remove_redelivered_below
        tracker.start_logging(tracker.change_count)
        tracker.listen(self._changed)

    @classmethod
    def create(
        cls, host: Host, directory: Path, options: ConsumerOptions, random: Random
    ) -> "ConsumerStore":
        """A consumer that has delivered nothing, on disk. Blocks; raises OSError."""
        disk = host.disk
        make_directories(disk, directory)
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        generation = _new_generation(directory, 1, 0, random)
        file = _write_generation(disk, generation, tracker.encode())
        return cls(host, directory, random, tracker, generation, file, LOG_HEADER_BYTES)

    @classmethod
    def open(
        cls, host: Host, directory: Path, options: ConsumerOptions, random: Random
    ) -> "ConsumerStore":
        """What is on disk, see `recovery` for what was found. Blocks.

        Raises OSError, and ConsumerStateDamaged where no copy of the checkpoint verifies: nothing
        is changed then.
        """
        disk = host.disk
        tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        recovery = Recovery()
        generation = _read_checkpoint(disk, directory, tracker, recovery)
        _remove_leftovers(disk, directory, generation)
        scan = _read_log(disk, generation, recovery)
        recovery.late_acks = _replay(tracker, scan)
        if recovery.damage:
            total = max(generation.total, scan.total if scan else 0)
            recovery.set_aside = _set_aside(disk, generation)
            generation = _new_generation(directory, generation.log_id + 1, total, random)
            file = _write_generation(disk, generation, tracker.encode())
            end = LOG_HEADER_BYTES
        else:
            assert scan is not None, "a missing log is damage"
            file = disk.open(generation.path)
            total, end = scan.total, scan.end
            if scan.torn:
                recovery.torn_at = end
                file.truncate(end)
                file.fsync()
        tracker.start_logging(total)
        store = cls(host, directory, random, tracker, generation, file, end)
        store.recovery = recovery
        return store

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
        """How many of the tracker's changes (`change_count`) are on disk."""
        return self._durable

    # Whole states

    def set_starting_sequence(self, stream: int) -> None:
        """The first message to deliver is the one behind that stream sequence."""
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
        _check_newer(self._tracker, state)
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

    async def synced(self) -> None:
        """Everything changed so far is on disk. Raises StoreFull, StoreReadOnly, StoreClosed."""
        if self._error is not None:
            raise self._error
        if self._is_durable():
            return
        waiter = _Waiter(self._tracker.change_count, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._starved = False
        self._host.dirty(self)
        await waiter.future

    async def close(self) -> None:
        """Write what is not on disk, and a mark that says so. Raises as `synced` does."""
        if isinstance(self._error, StoreClosed):
            return
        try:
            await self.synced()
            while self._busy:
                await asyncio.sleep(0)
            await self._in_thread(self._write_closing_mark)
        finally:
            self._shut()

    async def delete(self) -> None:
        """Remove the consumer from disk, whatever state it is in."""
        while self._busy:
            await asyncio.sleep(0)
        self._shut()
        await self._in_thread(partial(_remove_directory, self._host.disk, self.directory))

    def take_extent(self) -> Extent | None:
        """See CommitSource."""
        if self._busy or self._error is not None:
            return None
        changes = self._tracker.changes.count
        if self._is_log_full(changes):
            self._start_checkpoint()
            return None
        if self._flight is None:
            if changes == 0:
                return None
            self._flight = self._tracker.changes.seal(
                self._generation.seed,
                self._end // SLOT_BYTES,
                self._tracker.change_count,
                closing=False,
            )
            self._flight_count = self._tracker.change_count
        self._busy = True
        end = self._end + len(self._flight)
        allocate_to = grown_allocation(end, self._log_bytes_max)
        return Extent(self._file, self._end, self._flight, allocate_to=allocate_to)

    def committed(self) -> None:
        """See CommitSource."""
        assert self._flight is not None
        self._end += len(self._flight)
        self._flight = None
        self._busy = False
        self._reach(self._flight_count)
        if not self._is_durable():
            self._host.dirty(self)

    def failed(self, error: Exception) -> None:
        """See CommitSource."""
        self._busy = False
        self._fail(error)

    def synced_up(self) -> None:
        """See CommitSource: nothing here waits for a later sync."""

    def resumed(self) -> None:
        """See CommitSource."""
        self._starved = False
        if not self._is_durable():
            self._host.dirty(self)

    def _changed(self) -> None:
        self._host.dirty(self)

    def _is_durable(self) -> bool:
        return self._durable == self._tracker.change_count and not self._anew

    def _is_log_full(self, changes: int) -> bool:
        length = self._end + changes * SLOT_BYTES
        full = length > self._log_bytes_max or changes > UNWRITTEN_CHANGES_MAX
        return (full or self._anew) and not self._starved

    def _start_checkpoint(self) -> None:
        """Write the state as it is now, and go on in a new log; in a thread."""
        tracker = self._tracker
        count, body = tracker.change_count, tracker.encode()
        tracker.start_logging(count)
        self._flight = None
        self._busy = True
        self._anew = False
        self._log_bytes_max = max(LOG_BYTES_MIN, LOG_STATE_FACTOR * len(body))
        following = _new_generation(
            self.directory, self._generation.log_id + 1, count, self._random
        )
        written: list[DiskFile] = []

        def write() -> None:
            written.append(_write_generation(self._host.disk, following, body))
            self._file.close()
            _remove_log(self._host.disk, self._generation.path)

        def done(error: BaseException | None) -> None:
            self._busy = False
            if written:
                self._generation, self._file, self._end = following, written[0], LOG_HEADER_BYTES
                self._reach(count)
            else:
                self._fail_checkpoint(error)
            if not self._is_durable():
                self._host.dirty(self)

        self._host.in_thread(write, done)

    def _fail_checkpoint(self, error: BaseException | None) -> None:
        self._tracker.stop_logging()
        self._anew = True
        if error is not None and is_out_of_space(error):
            self._starved = True
            self._fail(StoreFull())
        else:
            self._fail(StoreReadOnly(str(error)))

    def _fail(self, error: Exception) -> None:
        """Tell those who wait. In memory everything stays as it is: it has happened."""
        if not isinstance(error, StoreFull):
            self._error = error if isinstance(error, StoreError) else StoreReadOnly(str(error))
            self._tracker.listen(None)
            self._tracker.stop_logging()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _reach(self, change_count: int) -> None:
        self._durable = change_count
        reached = [waiter for waiter in self._waiters if waiter.change_count <= change_count]
        if reached:
            self._waiters = [w for w in self._waiters if w.change_count > change_count]
        for waiter in reached:
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _write_closing_mark(self) -> None:
        mark = self._tracker.changes.seal(
            self._generation.seed,
            self._end // SLOT_BYTES,
            self._tracker.change_count,
            closing=True,
        )
        self._file.pwrite(mark, self._end)
        self._file.truncate(self._end + len(mark))
        self._file.fsync()

    def _shut(self) -> None:
        if isinstance(self._error, StoreClosed):
            return
        self._fail(StoreClosed())
        self._error = StoreClosed()
        self._file.close()

    async def _in_thread(self, job: Callable[[], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self._host.in_thread(job, done)
        await future


class MemoryConsumerStore:
    """The same face without a disk: what is changed is as durable as it will ever be."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._tracker = ConsumerTracker(options.ack_policy, options.max_deliver)
        self._closed = False
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
        """The first message to deliver is the one behind that stream sequence."""
        self._tracker.set_starting(stream)

    def reset(self, stream: int = 0) -> None:
        """As if nothing was delivered yet, and the first message is the one behind `stream`."""
        self._tracker.replace(ConsumerState())
        self._tracker.set_starting(stream)

    def update(self, state: ConsumerState) -> None:
        """Take over a state that is not behind this one; else OldUpdate (InvalidConsumerState)."""
        _check_newer(self._tracker, state)
        self.force_update(state)

    def force_update(self, state: ConsumerState) -> None:
        """Take over a state, earlier ones too; raises InvalidConsumerState."""
        state.validate()
        self._tracker.replace(state)

    async def synced(self) -> None:
        """Nothing to wait for; raises StoreClosed."""
        if self._closed:
            raise StoreClosed

    async def close(self) -> None:
        """Nothing can be waited for any more."""
        self._closed = True

    async def delete(self) -> None:
        """The same as `close`."""
        self._closed = True


def _check_newer(tracker: ConsumerTracker, state: ConsumerState) -> None:
    state.validate()
    if (
        state.delivered.consumer < tracker.delivered_consumer
        or state.ack_floor.stream < tracker.floor_stream
    ):
        raise OldUpdate


# Files; all of these block


def _log_path(directory: Path, log_id: int) -> Path:
    return directory / f"{log_id:06}{LOG_SUFFIX}"


def _new_generation(directory: Path, log_id: int, total: int, random: Random) -> _Generation:
    seed = int.from_bytes(random(8), "little")
    return _Generation(log_id, seed, total, _log_path(directory, log_id))


def _write_generation(disk: Disk, generation: _Generation, state: bytes) -> DiskFile:
    """A new, empty log, then the checkpoint that names it; both are on disk on return."""
    file = disk.open(generation.path, create=True)
    try:
        file.truncate(0)
        header = encode_log_header(generation.log_id, generation.seed, generation.total)
        file.pwrite(header, 0)
        file.fsync()
        path = generation.path.with_name(CHECKPOINT_FILE)
        # This syncs the directory, and with it the name of the log.
        replace_doubled(disk, path, CHECKPOINT_MAGIC, generation.checkpoint + state)
    except BaseException:
        file.close()
        raise
    return file


def _read_checkpoint(
    disk: Disk, directory: Path, tracker: ConsumerTracker, recovery: Recovery
) -> _Generation:
    path = directory / CHECKPOINT_FILE
    if not disk.exists(path):
        raise ConsumerStateDamaged(f"{path} is missing")
    doubled = decode_doubled(CHECKPOINT_MAGIC, read_file(disk, path))
    if doubled.body is None:
        raise ConsumerStateDamaged(f"{path} is damaged: no copy of the state verifies")
    try:
        log_id, _, seed, total = CHECKPOINT.unpack_from(doubled.body)
        tracker.decode(doubled.body[CHECKPOINT.size :])
    except (struct.error, DamagedEncoding) as error:
        raise ConsumerStateDamaged(f"{path} is damaged: {error}") from None
    recovery.damage += [
        FileDamage(path, damage.offset, damage.length, "copy does not verify", harmless=True)
        for damage in doubled.damage
    ]
    return _Generation(log_id, seed, total, _log_path(directory, log_id))


def _remove_leftovers(disk: Disk, directory: Path, generation: _Generation) -> None:
    """Logs before and behind the one that counts, and files that were never finished."""
    for name in disk.listdir(directory):
        is_log = name.endswith(LOG_SUFFIX) and name != generation.path.name
        if is_log or name.endswith(UNFINISHED_SUFFIX):
            disk.unlink(directory / name)


def _read_log(disk: Disk, generation: _Generation, recovery: Recovery) -> LogScan | None:
    path = generation.path
    if not disk.exists(path):
        recovery.damage.append(FileDamage(path, 0, 0, "log is missing", harmless=False))
        return None
    data = read_file(disk, path)
    header = encode_log_header(generation.log_id, generation.seed, generation.total)
    if data[:LOG_HEADER_BYTES] != header:
        what = "header does not verify"
        recovery.damage.append(FileDamage(path, 0, LOG_HEADER_BYTES, what, harmless=True))
    scan = scan_log(data, generation.seed, generation.total)
    recovery.damage += [FileDamage(path, *damage) for damage in scan.damage]
    return scan


def _replay(tracker: ConsumerTracker, scan: LogScan | None) -> int:
    if scan is None:
        return 0
    tracker.replay(scan.entries)
    return tracker.replay_late(scan.late)


def _set_aside(disk: Disk, generation: _Generation) -> Path | None:
    """Keep a damaged log where no recovery looks; its place in the checkpoint is then empty."""
    if not disk.exists(generation.path):
        return None
    directory = generation.path.parent / DAMAGED_DIRECTORY
    make_directories(disk, directory)
    aside = directory / generation.path.name
    disk.rename(generation.path, aside)
    disk.sync_dir(directory)
    return aside


def _remove_log(disk: Disk, path: Path) -> None:
    """A log that no checkpoint names; if it cannot be removed now, recovery will."""
    with contextlib.suppress(OSError):
        disk.unlink(path)


def _remove_directory(disk: Disk, directory: Path) -> None:
    disk.rmtree(directory)
    disk.sync_dir(directory.parent)
