"""The logs of all RAFT groups of a server, as its driver uses them.

    logs = RaftLogs.open(disk, directory, random_bytes)
    logs.take_recovered()              what each group starts from
    logs.watch(loop)                   report completed writes in the event loop
    logs.write([GroupWrite(…), …], then)        then(None) when all of it is synced
    logs.write(…, may_wait=True)       go with the next batch, or in WAIT_S
    logs.put_snapshot(group, snapshot, then)    before a GroupWrite that names the snapshot

The calls come from one thread. What is asked for while a batch is being synced goes into the next
batch. The package's opening page says what is promised.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.raft.entry import Entry, HardState, Snapshot
from natsd.raft.storage.errors import LogsFailedError
from natsd.raft.storage.group_log import GroupLog, bytes_of
from natsd.raft.storage.log_files import LogFiles
from natsd.raft.storage.opening import Opened, open_files, remove_file
from natsd.raft.storage.records import (
    GROUP_BYTES_MAX,
    MOVED,
    Files,
    GroupState,
    Record,
    Touch,
    entry_records,
    files_record,
    state_record,
)
from natsd.raft.storage.recovery import Damage, RecoveredGroup
from natsd.raft.storage.snapshot_files import add_put, snapshot_path
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import CommitJob, CommitWorkers, Disk, DiskFile, Lock, is_transient
from natsd.store.errors import StoreFull

if TYPE_CHECKING:
    from natsd.core.network import Reactor

SEGMENT_BYTES_MAX = 64 << 20
BATCH_BYTES_MAX = 8 << 20
SEGMENTS_MAX = 32
WAIT_S = 0.005
"""What may wait is written after this time, if nothing urgent comes before."""
NO_KEYS = OperatorKeys()
WORKERS = 3  # one syncs the batch; the others write snapshots

Outcome = Callable[[Exception | None], None]
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """What one group persists: the state before the snapshot before the entries."""

    group: str
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    """Its file is on disk (`put_snapshot`); entries up to its index are dropped."""
    replaces_log: bool = False
    """The snapshot drops all entries, also those behind its index."""
    entries: Sequence[Entry] = ()
    removes: bool = False
    """The group is removed, with all that is known of it."""
    on_written: Callable[[], None] | None = None
    """Called once it is written, before it is synced; None: nobody waits for that."""


@dataclass(slots=True)
class _Turn:
    """The writes of one batch, and what they change once they are on disk."""

    thens: list[Outcome] = field(default_factory=list)
    changes: list[tuple[GroupLog, GroupState | None, Sequence[Entry]]] = field(default_factory=list)
    moves: list[tuple[GroupLog, Sequence[Entry]]] = field(default_factory=list)
    files: list[DiskFile] = field(default_factory=list)
    """Are written, and to be synced."""
    drops_oldest: bool = False
    has_states: bool = False


def _call(task: Callable[[], None]) -> None:
    task()


class RaftLogs:
    """Both sequences of segments, and the snapshots, of one directory."""

    def __init__(self, disk: Disk, workers: CommitWorkers, opened: Opened, lock: Lock) -> None:
        self._disk = disk
        self._lock = lock
        self._workers = workers
        self._log: LogFiles = opened.log
        self._states: LogFiles = opened.states
        self._snapshots = opened.snapshots
        self._key = opened.key
        self._groups: dict[bytes, GroupLog] = opened.groups
        self._version = opened.version
        self._recovered = opened.recovered
        self.damage: list[Damage] = opened.damage
        self._segment_bytes_max = opened.segment_bytes_max
        self._live_bytes = sum(group.live_bytes for group in self._groups.values())
        self._waiting: deque[tuple[Sequence[GroupWrite], Outcome]] = deque()
        self._again: list[tuple[Sequence[GroupWrite], Outcome]] = []  # no space: try once more
        self._is_due = False  # what waits is to be written as soon as possible
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None  # then it is due
        self._under_way: list[tuple[Sequence[GroupWrite], Outcome]] | None = None
        self._turn: _Turn | None = None
        self._has_dropped = False  # a segment, and the states do not say so yet
        self._is_told = False  # the lack of space is logged already
        self._drop_below = 0  # segments below this number are removed as soon as possible
        self._set_aside = opened.damaged_paths
        self._failure: Exception | None = None
        self.run_blocking: Callable[[Callable[[], None]], object] = _call
        """Runs a task that blocks on the disk; a server gives it to a thread."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: Path,
        random_bytes: Callable[[int], bytes],
        *,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        keys: OperatorKeys = NO_KEYS,
    ) -> RaftLogs:
        """Recover what the directory holds, and encrypt what is written if there is a key. Blocks.

        Raises `OSError`, DirectoryLocked, LogsUnreadableError if a file is of a later version, and
        EncryptionError if the keys do not open what is there.
        """
        lock, opened = open_files(disk, directory, random_bytes, segment_bytes_max, keys)
        logs = cls(disk, disk.commit_workers(WORKERS), opened, lock)
        try:
            logs._finish_opening(opened)
            opened.encrypt_rest(disk, directory, keys)
        except BaseException:
            logs.close()
            raise
        return logs

    def _finish_opening(self, opened: Opened) -> None:
        """Write the state of all groups to new segments; after damage, the entries too."""
        if opened.must_rewrite:
            self._drop_below = self._log.next_number
        self.write((), lambda _: None)
        while self._under_way is not None or self._must_drop:
            self._start()
            self.wait()
            if self._failure is not None:
                raise self._failure
            if self._again:
                raise StoreFull("no space left to open the logs of the RAFT groups")
        opened.remove_leftovers(self._disk)

    def take_recovered(self) -> dict[str, RecoveredGroup]:
        """Return what each group starts from; a second call returns nothing."""
        recovered, self._recovered = self._recovered, {}
        return recovered

    # ---- what is known

    @property
    def failure(self) -> Exception | None:
        """Why nothing more is written; None: all is well."""
        return self._failure

    @property
    def waits_for_space(self) -> bool:
        """Whether writes wait for `retry`."""
        return bool(self._again)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._log.size_bytes + self._states.size_bytes

    @property
    def live_bytes(self) -> int:
        """About how many bytes of the segments are live entries."""
        return self._live_bytes

    # ---- writes

    def write(self, writes: Sequence[GroupWrite], then: Outcome, *, may_wait: bool = False) -> None:
        """Write and sync, behind all earlier writes; `then` gets None or the error.

        What may wait goes with the next batch that is urgent, and is written in WAIT_S otherwise.
        """
        if self._failure is not None:
            then(self._failure)
            return
        self._waiting.append((writes, then))
        if may_wait and self._loop is not None and not self._is_due:
            if self._timer is None:
                self._timer = self._loop.call_later(WAIT_S, self._waited)
            return
        self._is_due = True
        self._start()

    def _waited(self) -> None:
        self._timer = None
        self._is_due = bool(self._waiting)
        self._start()

    def put_snapshot(self, group: str, snapshot: Snapshot, then: Outcome) -> None:
        """Write and sync the file of a snapshot, beside what else is being written.

        If the group's removal is under way, wait for it first.
        """
        if self._failure is not None:
            then(self._failure)
            return
        job = self._workers.job(partial(self._put, then))
        add_put(job, self._snapshots, _encoded(group), snapshot, self._key)
        self._workers.submit(job)

    def _put(self, then: Outcome, job: CommitJob) -> None:
        then(job.error)

    def retry(self) -> None:
        """Try again what found no space."""
        if self._again and self._under_way is None:
            self._waiting.extendleft(reversed(self._again))
            self._again = []
            self._is_due = True
            self._start()

    @property
    def _must_drop(self) -> bool:
        segments = self._log.segments
        return bool(segments) and segments[0].number < self._drop_below

    def _start(self) -> None:
        if self._under_way is not None or self._again or self._failure is not None:
            return
        if not self._is_due and not self._must_drop:
            return
        taken, size = [], 0
        while self._waiting and size < BATCH_BYTES_MAX:
            taken.append(self._waiting.popleft())
            size += sum(bytes_of(write.entries) for write in taken[-1][0])
        self._is_due = bool(self._waiting)
        self._under_way = taken
        self._turn = turn = _Turn([then for _, then in taken])
        writes = [write for group_writes, _ in taken for write in group_writes]
        early = [write.on_written for write in writes if write.on_written is not None]
        job = self._workers.job(partial(self._put_down, early) if early else self._written)
        try:
            self._add_batches(job, turn, writes)
        except OSError as error:
            self._failed(error, False)
            return
        if not early:
            _sync(job, turn.files)
        self._workers.submit(job)

    def _put_down(self, early: list[Callable[[], None]], job: CommitJob) -> None:
        """Sync what is written, and tell those who wait for the write."""
        if job.error is not None:
            self._failed(job.error, job.failed_sync)
            return
        assert self._turn is not None
        syncing = self._workers.job(self._written)
        _sync(syncing, self._turn.files)
        self._workers.submit(syncing)
        for call in early:
            call()

    def _add_batches(self, job: CommitJob, turn: _Turn, writes: Sequence[GroupWrite]) -> None:
        log_begins, states_begin = self._log.begins_segment, self._states.begins_segment
        segment = self._log.next_number
        moved, touched = self._move_from_oldest(turn, segment)
        states: list[Record] = []
        records = [*moved, *self._records(turn, writes, states, touched)]
        if log_begins or turn.drops_oldest:
            head = self._head() if log_begins else []
            files = self._files(self._log, log_begins, segment, turn.drops_oldest)
            records = [files_record(files), *head, *records]
        if log_begins or states_begin or self._has_dropped:
            # It names the oldest segment as it is: the moves of this batch may be torn.
            head = self._head() if states_begin else []
            files = self._files(self._states, states_begin, segment, False)
            states = [files_record(files), *head, *states]
        turn.files.append(self._log.add(job, records, touched))
        if states:
            turn.has_states = True
            turn.files.append(self._states.add(job, states, []))

    def _files(self, files: LogFiles, begins: bool, newest: int, drops_oldest: bool) -> Files:
        left = self._log.segments[1:] if drops_oldest else self._log.segments
        oldest = left[0].number if left else newest
        before = files.segments[-1:] if begins else files.segments[-2:-1]
        return Files(oldest, newest, before[0].end if before else 0, self._version)

    def _head(self) -> list[Record]:
        """Return the state of all groups, which begins every segment."""
        return [state_record(name, group.state) for name, group in self._groups.items()]

    def _records(
        self,
        turn: _Turn,
        writes: Sequence[GroupWrite],
        states: list[Record],
        touched: list[Touch],
    ) -> list[Record]:
        records: list[Record] = []
        new: dict[bytes, tuple[GroupLog, GroupState]] = {}
        for write in writes:
            name = _encoded(write.group)
            group, state = new.get(name) or self._group(name)
            changed = self._changed_state(state, write)
            if changed is not None:
                records.append(state_record(name, changed))
                states.append(records[-1])
            if write.removes:
                new[name] = GroupLog(name), GroupLog(name).state
            else:
                new[name] = group, changed or state
            if write.entries:
                records += entry_records(name, write.entries)
                first, last = write.entries[0].index, write.entries[-1].index
                touched.append(Touch(name, False, first, last))
            turn.changes.append((group, changed, write.entries))
        return records

    def _group(self, name: bytes) -> tuple[GroupLog, GroupState]:
        group = self._groups.get(name) or GroupLog(name)
        return group, group.state

    def _changed_state(self, state: GroupState, write: GroupWrite) -> GroupState | None:
        """Return the state after a write, or None if it does not change.

        The first state of a group replaces the log, since one with its name may have been removed.
        """
        is_new, snapshot = state.version == 0, write.snapshot
        if not (is_new or write.hard_state or snapshot or write.removes):
            return None
        self._version += 1
        state = state._replace(version=self._version, is_removed=write.removes)
        if write.hard_state is not None:
            state = state._replace(hard_state=write.hard_state)
        if snapshot is not None:
            state = state._replace(snapshot_index=snapshot.index, snapshot_term=snapshot.term)
        return state._replace(replaced=self._version) if is_new or write.replaces_log else state

    # ---- room

    def _move_from_oldest(self, turn: _Turn, target: int) -> tuple[list[Record], list[Touch]]:
        """Return the records of live entries of the oldest segment, if it is to be removed."""
        segments = self._log.segments
        if not segments or segments[0].number == target or not self._is_drop_due():
            return [], []
        oldest, room = segments[0].number, BATCH_BYTES_MAX
        records: list[Record] = []
        touched: list[Touch] = []
        count = moved = 0
        for name, group in self._groups.items():
            for entries in group.in_segment(oldest, room):
                turn.moves.append((group, entries))
                records += entry_records(name, entries, MOVED)
                touched.append(Touch(name, True, entries[0].index, entries[-1].index))
                room -= bytes_of(entries)
                moved += len(entries)
            count += group.count_in_segment(oldest)
        turn.drops_oldest = moved == count
        return records, touched

    def _is_drop_due(self) -> bool:
        """Return whether the oldest segment is to be removed, to bound the bytes on disk."""
        if self._must_drop:
            return True
        limit = max(2 * self._segment_bytes_max, 3 * self._live_bytes)
        count_max = SEGMENTS_MAX + limit // self._segment_bytes_max
        return self._log.size_bytes > limit or len(self._log.segments) > count_max

    # ---- completed jobs

    def _written(self, job: CommitJob) -> None:
        if job.error is not None:
            self._failed(job.error, job.failed_sync)
            return
        turn, self._turn = self._turn, None
        self._under_way, self._is_told = None, False
        assert turn is not None
        segment = self._log.next_number
        self._log.committed()
        if turn.has_states:
            self._states.committed()
            self._has_dropped = False
        self._apply(turn, segment)
        for then in turn.thens:
            then(None)
        for state in self._states.segments[:-1]:
            self._remove_file(state.path)
            self._states.removed(state)
        self._start()

    def _apply(self, turn: _Turn, segment: int) -> None:
        for group, entries in turn.moves:
            group.moved(entries[0].index, entries[-1].index, segment)
        if turn.drops_oldest:
            oldest = self._log.segments[0]
            self._log.removed(oldest)
            self._has_dropped = True
            self._remove_file(oldest.path)
        for group, state, entries in turn.changes:
            live_before = group.live_bytes
            if state is not None:
                self._apply_state(group, state)
            if entries:
                group.append(entries, segment)
            if group.name in self._groups:
                self._live_bytes += group.live_bytes - live_before

    def _apply_state(self, group: GroupLog, state: GroupState) -> None:
        before = group.state
        if state.is_removed:
            if self._groups.pop(group.name, None) is not None:
                self._live_bytes -= group.live_bytes
        else:
            group.change_state(state)
            self._groups[group.name] = group
        is_replaced = state.is_removed or before.snapshot_index != state.snapshot_index
        if before.snapshot_index and is_replaced:
            index, term = before.snapshot_index, before.snapshot_term
            path = snapshot_path(self._snapshots, group.name, index, term)
            if state.is_removed:  # at once: a new group of this name may have one with this path
                _remove_or_log(self._disk, path, path in self._set_aside)
            else:
                self._remove_file(path)

    def _failed(self, error: OSError, failed_sync: bool) -> None:
        """Try again later if only space or the like was lacking; otherwise write nothing more."""
        taken, self._under_way = self._under_way or [], None
        self._turn = None
        self._log.failed()
        self._states.failed()
        if is_transient(error) and not failed_sync:
            if not self._is_told:
                _logger.error("the RAFT logs wait for space: %s", error)
            self._again, self._is_told = taken, True
            return
        _logger.error("the RAFT logs take no more writes: %s", error)
        self._failure = failure = LogsFailedError(f"the RAFT logs take no more writes: {error}")
        refused = [then for _, then in (*taken, *self._again, *self._waiting)]
        self._again, self._waiting = [], deque()
        for then in refused:
            then(failure)

    def _remove_file(self, path: Path) -> None:
        """Remove a file that is not needed any more, or set it aside if it is damaged."""
        is_damaged = path in self._set_aside
        self.run_blocking(partial(_remove_or_log, self._disk, path, is_damaged))

    # ---- the event loop

    def watch(self, loop: asyncio.AbstractEventLoop, reactor: Reactor | None = None) -> None:
        """Report completed writes in the event loop from now on."""
        self._loop = loop
        self._workers.watch(loop, self._take_completed, reactor)

    def wait(self) -> None:
        """Block until a job is done, and report it; for callers without an event loop."""
        self._workers.wait()
        self._take_completed()

    def _take_completed(self) -> None:
        for job in self._workers.take_completed():
            job.token(job)  # type: ignore[operator]  # tokens are the callbacks given to `job`

    def close(self) -> None:
        """Finish what is under way, and close the files; what waits is not written."""
        self._workers.unwatch()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        while self._workers.in_flight:
            self.wait()
        self._workers.close()
        self._log.close()
        self._states.close()
        self._lock.release()


def _sync(job: CommitJob, files: list[DiskFile]) -> None:
    for file in files:
        job.datasync(file)


def _encoded(group: str) -> bytes:
    name = group.encode("utf-8", "surrogateescape")
    assert 0 < len(name) <= GROUP_BYTES_MAX, f"the name of the group {group!r} is too long"
    return name


def _remove_or_log(disk: Disk, path: Path, is_damaged: bool) -> None:
    try:
        remove_file(disk, path, is_damaged)
    except OSError as error:
        _logger.warning("%s is not needed, and is not removed: %s", path, error)
