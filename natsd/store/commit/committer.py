"""Group commit for all stores of a volume.

    stores                committer (the loop's thread)            worker threads
    dirty(source) ──────> a round, at the end of the turn:
                          few dirty   take_extent ───────────────> allocate, pwrite, fdatasync
                          many dirty  take_extent of each ───────> allocate, pwrite of each, then
                                                                   the journal's, one fdatasync
    committed(), on_disk() <─ completion <──────────────────────── the bell
                          then the next round, with the bytes appended meanwhile

Promise
- A source is acknowledged once its bytes are on disk: in its own file, or in the journal and
  (without a sync) in its file. If `sync_interval_s` is above 0, or the source asks for it, the
  source is acknowledged after the write, and `on_disk` is called after the timer's sync.
- A failure concerns one source. If space, a descriptor or memory is lacking, the source's file is
  cut back, the source gets StoreFull, and the committer checks every `PROBE_S` seconds whether it
  can go on. After any other error or a failed sync the source gets StoreReadOnly for good. A failed
  sync is never repeated as if it had not failed.
- A failed journal fails no source: the files that it would have covered are synced instead.
- Before a committed file is closed, call `settle`, or `release` if the file is removed. Before it
  is replaced, cut or overwritten in place, call `forget`. Before another file gets its path, call
  `forget_removed`.
- A file whose sync failed is not synced again: callers that ask for a sync get StoreReadOnly.
- All calls come from one thread: the loop's, or any thread where there is no loop (`commit_now`).

Why a journal: 1,000 dirty files of 200 B each, two cores, ext4 on a virtual disk, per round: a
fdatasync for each file 80 ms by one thread, 27 by four, 19 by eight; one syncfs 8 ms; the journal
1 ms (2026-11-21).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import cast

from natsd.core.network import Reactor
from natsd.store.commit.commits import (
    CommitBatch,
    CommitSourceState,
    State,
    idle_sources,
    write_extent,
)
from natsd.store.disk.disk import CommitJob, Disk, DiskFile, below, is_transient
from natsd.store.disk.sync_pass import Outcome, SyncPass
from natsd.store.errors import StoreFull, StoreReadOnly
from natsd.store.wal.driver import JournalDriver
from natsd.store.wal.entries import CommitSource, Extent
from natsd.store.wal.write_ahead_log import WriteAheadLog

THREADS = 4
ROUND_SOURCES_MAX = 512
JOURNAL_EXTENT_BYTES_MAX = 16 << 10
# Limits for writes by the loop's own thread, which are possible where no acknowledgement waits for
# a sync: bytes of one extent, and number of sources in one turn.
HERE_BYTES_MAX = 64 << 10
HERE_SOURCES_MAX = 32
# A write that takes longer shows that the disk is slow: then worker threads write for the pause.
HERE_SLOW_NS = 1_000_000
HERE_PAUSE_NS = 1_000_000_000
PROBE_S = 1.0
LATER_S = 1.0  # time until the sync of Sync.LATER sources where `sync_interval_s` is 0
BUFFERED_BYTES_MAX = 128 << 20
BUFFERED_MSGS_MAX = 100_000

_logger = logging.getLogger(__name__)


class Sync(Enum):
    """The moment at which a source is acknowledged."""

    AS_SET = auto()  # as `sync_interval_s` says
    ALWAYS = auto()  # once its bytes are on disk, whatever `sync_interval_s` is (RAFT's logs)
    LATER = auto()  # once its bytes are written; the timer's sync puts them on disk


JobDone = Callable[[CommitJob], None]
Soon = Callable[[Callable[[], None]], object]


class Committer:
    """The writer of all stores' bytes, which tells each store when its bytes are on disk."""

    def __init__(
        self,
        disk: Disk,
        journal: WriteAheadLog | None = None,
        *,
        threads: int = THREADS,
        sync_interval_s: float = 0,
        loop: asyncio.AbstractEventLoop | None = None,
        reactor: Reactor | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Prepare to serve sources; with a loop, complete jobs on it.

        With a reactor on the loop, rounds begin at the end of its turns and are completed in its
        turns. `sync_interval_s` 0 means that every commit is synced before it is acknowledged.
        """
        self._soon: Soon | None = loop.call_soon if loop is not None else None
        if reactor is not None:
            self._soon = reactor.soon
        self._clock_ns = clock_ns
        self._threads_until_ns = 0  # by the clock: until then only worker threads write
        self._workers = disk.commit_workers(threads)
        self._syncing: set[DiskFile] = set()  # files that commits sync; passes do not sync these
        self._failed: set[DiskFile] = set()  # open files with a failed sync
        self._threads = threads
        self._journal = (
            JournalDriver(self._workers, journal, self._syncing.__contains__, self._file_failed)
            if journal is not None
            else None
        )
        self._sync_interval_s = sync_interval_s
        self._timer_s = sync_interval_s if sync_interval_s > 0 else LATER_S
        self._loop = loop
        self._attached: dict[CommitSource, CommitSourceState] = {}
        self._dirty: dict[CommitSource, CommitSourceState] = {}
        self._is_scheduled = False
        self._is_closing = False
        self._is_closed = False
        self._round: CommitBatch | None = None  # the round that is being written with the journal
        self._writing: CommitBatch | None = None  # the round that is acknowledged without a sync
        self._owners: dict[
            Path, CommitSourceState
        ] = {}  # sources of the files that may be in the journal
        self._progress: list[asyncio.Future[None]] = []
        self._unsynced: dict[Path, tuple[DiskFile, CommitSourceState]] = {}
        self._passing: dict[
            Path, tuple[DiskFile, CommitSourceState]
        ] = {}  # the timer's sync is under way
        self._timer_pass: SyncPass | None = None
        self._timer: asyncio.TimerHandle | None = None
        if loop is not None:
            self._workers.watch(loop, self.complete, reactor)

    # ---- calls from the stores

    def attach(
        self,
        source: CommitSource,
        *,
        sync: Sync = Sync.AS_SET,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        buffered_msgs_max: int = BUFFERED_MSGS_MAX,
    ) -> None:
        """Serve this source from now on.

        Above `buffered_bytes_max` or `buffered_msgs_max` of uncommitted data the source is over its
        limit.
        """
        at_once = sync is Sync.ALWAYS or (sync is Sync.AS_SET and self._sync_interval_s <= 0)
        self._attached[source] = CommitSourceState(
            source, at_once, buffered_bytes_max, buffered_msgs_max
        )

    def detach(self, source: CommitSource) -> None:
        """Stop serving the source; it must have no extent out, and its files must be settled."""
        attached = self._attached.pop(source)
        assert attached.state != State.OUT
        attached.state = State.DEAD
        self._dirty.pop(source, None)
        attached.wake()

    def is_attached(self, source: CommitSource) -> bool:
        """Return whether the source is served."""
        return source in self._attached

    def dirty(self, source: CommitSource) -> None:
        """Note that the source has something to write; a repeated call costs little."""
        if source not in self._dirty:
            attached = self._attached[source]
            if attached.state != State.DEAD:
                self._dirty[source] = attached
                self._schedule()

    def is_over_limit(self, source: CommitSource) -> bool:
        """Return whether the source has more uncommitted data than it may buffer."""
        return self._attached[source].is_over_limit

    async def room(self, source: CommitSource) -> None:
        """Wait until the source is within its limit, or nothing can be written for it."""
        attached = self._attached[source]
        while attached.is_over_limit and attached.state in (State.IDLE, State.OUT):
            waiter = asyncio.get_running_loop().create_future()
            attached.waiters.append(waiter)
            await waiter

    def commit_now(self, source: CommitSource) -> None:
        """Write and sync the source's pending bytes, without an event loop.

        Blocks on the disk. Raises StoreFull (a later call may find space) or StoreReadOnly.
        """
        attached = self._attached[source]
        if attached.state == State.FULL:
            self._look_for_space(attached)
        self._run_until(
            lambda: (
                source not in self._dirty
                and attached.state != State.OUT
                and not attached.is_probing
            )
        )
        if attached.error is not None:
            raise attached.error

    def sync_now(self) -> None:
        """Sync all that was written, without waiting for the timer or for a loop. Blocks."""
        while self._unsynced or self._timer_pass:
            self._sync_unsynced()
            self._run_until(lambda: self._timer_pass is None)

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        """Run rounds and wait for the workers until the condition holds or no job is left."""
        self.begin_round()
        while not is_done():
            if not self._workers.in_flight:
                return
            self._workers.wait()
            self.complete()

    # ---- rounds

    def _schedule(self) -> None:
        if self._soon is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self.begin_round)

    def complete(self) -> None:
        """Answer the sources whose jobs are done, then begin the next round."""
        for job in self._workers.take_completed():
            cast(JobDone, job.token)(job)
        self.begin_round()
        progress, self._progress = self._progress, []
        for waiter in progress:
            if not waiter.done():
                waiter.set_result(None)

    def begin_round(self) -> None:
        """Take extents from the dirty sources, as far as threads and the journal are free."""
        self._is_scheduled = False
        if self._round is None:
            at_once, later = idle_sources(self._dirty)
            self._begin_unsynced(later)
            self._begin_synced(at_once)
        for sync_pass in (self._timer_pass, self._journal):
            if sync_pass is not None:
                sync_pass.go_on()

    def _begin_unsynced(self, ready: list[CommitSourceState]) -> None:
        if len(ready) <= HERE_SOURCES_MAX:
            for attached in ready:
                self._start_unsynced(attached)
        elif self._writing is None:
            self._start_writing(self._take_some(ready))

    def _begin_synced(self, ready: list[CommitSourceState]) -> None:
        free = self._threads - len(self._syncing)
        if len(ready) <= free or self._journal is None or not self._journal.is_usable:
            for attached in ready:  # all, since some may have nothing to write now
                if len(self._syncing) >= self._threads:
                    break
                self._start_direct(attached)
        elif not self._journal.is_writing and not self._journal.must_wait:
            self._start_round(self._take_some(ready))

    def _take(self, attached: CommitSourceState) -> Extent | None:
        """Take the source's extent; None if it has none or failed to give one."""
        self._dirty.pop(attached.source, None)
        try:
            return attached.take()
        except Exception as error:
            _logger.exception("a store failed to say what it has to write")
            self._kill(attached, error)
            return None

    def _take_some(
        self, ready: Sequence[CommitSourceState]
    ) -> list[tuple[CommitSourceState, Extent]]:
        """Take the extents of the first ROUND_SOURCES_MAX sources; the others follow later."""
        first = ready[:ROUND_SOURCES_MAX]
        taken = [(a, extent) for a in first if (extent := self._take(a)) is not None]
        if not taken and len(ready) > len(first):
            self._schedule()
        return taken

    def _writing_job(self, extent: Extent, done: JobDone) -> CommitJob:
        job = self._workers.job(done)
        write_extent(job, extent)
        return job

    # ---- few are dirty: each file is synced

    def _start_direct(self, attached: CommitSourceState) -> None:
        extent = self._take(attached)
        if extent is None:
            return
        job = self._writing_job(extent, partial(self._direct_done, attached, extent))
        self._submit_sync(extent.file, job)

    def _submit_sync(self, file: DiskFile, job: CommitJob) -> None:
        """Submit the job with a sync of this file as its last step, once no pass is syncing it."""
        job.datasync(file)
        self._syncing.add(file)
        self._when_free(file, partial(self._workers.submit, job))

    def _when_free(self, file: DiskFile, callback: Callable[[], None]) -> None:
        """Call back once neither the journal's checkpoint nor the timer is syncing this file."""
        if self._journal is not None:
            callback = partial(self._journal.when_free, file, callback)
        if self._timer_pass is not None:
            self._timer_pass.when_free(file, callback)
        else:
            callback()

    def _direct_done(self, attached: CommitSourceState, extent: Extent, job: CommitJob) -> None:
        self._syncing.discard(extent.file)
        if job.error is not None:
            self._fail(attached, extent, job.error, job.failed_sync)
        else:
            attached.commit(True)

    # ---- many are dirty: one sync of the journal

    def _start_round(self, taken: list[tuple[CommitSourceState, Extent]]) -> None:
        """Submit one job that writes all extents, then the small ones once more to the journal."""
        if not taken:
            return
        current = CommitBatch(taken, JOURNAL_EXTENT_BYTES_MAX)
        job = self._workers.job(partial(self._round_done, current))
        current.add_writing(job)
        self._add_journal(job, current)
        self._round = current
        self._workers.submit(job)

    def _add_journal(self, job: CommitJob, current: CommitBatch) -> None:
        assert self._journal is not None
        small = current.small()
        if not small or not self._journal.add_write(job, [extent for _, extent in small]):
            return
        current.is_in_journal = True
        for attached, extent in small:
            self._owners[extent.file.path] = attached

    def _round_done(self, current: CommitBatch, job: CommitJob) -> None:
        """Answer the sources in the journal; sync the files of the others."""
        assert self._journal is not None
        self._round = None
        if job.failures:
            self._round_failed(current, job)
            return
        is_in_journal = current.is_in_journal and self._journal.written(job)
        for attached, extent in current.commit_journaled() if is_in_journal else current.taken:
            self._sync_written(attached, extent)

    def _round_failed(self, current: CommitBatch, job: CommitJob) -> None:
        """Fail the sources whose files could not be written; write the journal for the others.

        The job wrote nothing to the journal, since a part before it failed.
        """
        assert self._journal is not None
        if current.is_in_journal:
            self._journal.not_written()
        again = CommitBatch(self._fail_parts(current, job), JOURNAL_EXTENT_BYTES_MAX)
        job = self._workers.job(partial(self._round_done, again))
        self._add_journal(job, again)
        if again.is_in_journal:
            self._round = again
            self._workers.submit(job)
        else:
            self._round_done(again, job)

    def _fail_parts(
        self, current: CommitBatch, job: CommitJob
    ) -> list[tuple[CommitSourceState, Extent]]:
        """Fail the sources whose files could not be written; return the written ones."""
        failed = {index: (error, is_sync) for index, error, is_sync in job.failures}
        others = []
        for index, (attached, extent) in enumerate(current.taken):
            if index in failed:
                self._fail(attached, extent, *failed[index])
            elif attached.state == State.OUT:  # otherwise a sync of its file failed meanwhile
                others.append((attached, extent))
        return others

    def _sync_written(self, attached: CommitSourceState, extent: Extent) -> None:
        if attached.state == State.OUT:
            job = self._workers.job(partial(self._direct_done, attached, extent))
            self._submit_sync(extent.file, job)

    # ---- commits that are acknowledged before their sync

    def _start_unsynced(self, attached: CommitSourceState) -> None:
        extent = self._take(attached)
        if extent is None:
            return
        if self._may_write_here(extent):
            self._write_here(attached, extent)
        else:
            done = partial(self._interval_done, attached, extent)
            self._workers.submit(self._writing_job(extent, done))

    def _start_writing(self, taken: list[tuple[CommitSourceState, Extent]]) -> None:
        """Submit one job for many sources; sources that become dirty meanwhile share the next."""
        if not taken:
            return
        self._writing = CommitBatch(taken, JOURNAL_EXTENT_BYTES_MAX)
        job = self._workers.job(partial(self._all_written, self._writing))
        self._writing.add_writing(job)
        self._workers.submit(job)

    def _all_written(self, current: CommitBatch, job: CommitJob) -> None:
        self._writing = None
        for attached, extent in self._fail_parts(current, job):
            self._written_unsynced(attached, extent)

    def _may_write_here(self, extent: Extent) -> bool:
        """Return whether the loop's own thread may write this extent.

        A few kilobytes into the page cache take less time than waking a thread and the loop: from
        append to acknowledgement 10 us instead of 20 (128 B, Xeon 2 GHz, 2026-11-21). Extents that
        reserve space, name a new file or are large go to a thread, and so do all extents while the
        disk is slow.
        """
        return (
            extent.size <= HERE_BYTES_MAX
            and extent.allocate_to <= extent.offset
            and extent.new_in is None
            and extent.file.fileno() is not None
            and self._clock_ns() >= self._threads_until_ns
        )

    def _write_here(self, attached: CommitSourceState, extent: Extent) -> None:
        start_ns = self._clock_ns()
        try:
            extent.file.pwrite(extent.data, extent.offset)
        except OSError as error:
            self._fail(attached, extent, error, failed_sync=False)
        else:
            self._written_unsynced(attached, extent)
        end_ns = self._clock_ns()
        if end_ns - start_ns > HERE_SLOW_NS:
            self._threads_until_ns = end_ns + HERE_PAUSE_NS

    def _interval_done(self, attached: CommitSourceState, extent: Extent, job: CommitJob) -> None:
        if job.error is not None:
            self._fail(attached, extent, job.error, job.failed_sync)
        else:
            self._written_unsynced(attached, extent)

    def _written_unsynced(self, attached: CommitSourceState, extent: Extent) -> None:
        self._unsynced[extent.file.path] = (extent.file, attached)
        attached.commit(False)
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._timer_s, self._sync_unsynced)

    def _sync_unsynced(self) -> None:
        """Start a pass that syncs all files that were written without a sync."""
        self._timer = None
        if self._timer_pass is not None or not self._unsynced:
            return
        self._passing, self._unsynced = self._unsynced, {}
        attached = {attached for _, attached in self._passing.values()}
        self._timer_pass = SyncPass(
            self._workers,
            list(self._passing),
            self._file_passing,
            self._syncing.__contains__,
            self._file_failed,
            partial(self._timer_pass_done, [(a, a.commits) for a in attached]),
        )
        self._timer_pass.go_on()

    def _file_passing(self, path: Path) -> DiskFile | None:
        return self._passing[path][0] if path in self._passing else None

    def _timer_pass_done(self, commits: list[tuple[CommitSourceState, int]]) -> None:
        self._timer_pass = None
        self._passing = {}
        for attached, count in commits:
            if attached.state != State.DEAD:
                attached.answer(attached.source.on_disk, count)
        if self._unsynced and self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._timer_s, self._sync_unsynced)

    # ---- failures

    def _fail(
        self, attached: CommitSourceState, extent: Extent, error: OSError, failed_sync: bool
    ) -> None:
        """Cut the file back if a failed write may pass later; otherwise end the source."""
        if not is_transient(error) or failed_sync:
            self._kill(attached, error)
            if failed_sync:
                self._sync_failed(extent.file)
            return
        self._start_cut(attached, extent, error)

    def _start_cut(self, attached: CommitSourceState, extent: Extent, error: OSError) -> None:
        cut = self._workers.job(partial(self._cut, attached, extent, error))
        cut.truncate(extent.file, extent.offset)
        self._workers.submit(cut)

    def _cut(
        self, attached: CommitSourceState, extent: Extent, error: OSError, job: CommitJob
    ) -> None:
        """Tell the source StoreFull after its file was cut back, and look for space later."""
        if job.error is not None:
            if is_transient(job.error) and self._loop is not None and not self._is_closing:
                self._loop.call_later(PROBE_S, self._start_cut, attached, extent, error)
            else:
                self._kill(attached, job.error)
        elif attached.state == State.OUT:
            attached.state = State.FULL
            attached.probe = extent.file, extent.offset, extent.size
            attached.error = StoreFull(str(error))
            attached.answer(attached.source.failed, attached.error)
            attached.wake()
            if self._loop is not None:
                self._loop.call_later(PROBE_S, self._look_for_space, attached)

    def _look_for_space(self, attached: CommitSourceState) -> None:
        """Try to reserve the space that the failed extent needed."""
        if self._is_closed or attached.is_probing:
            return
        if attached.state == State.FULL and attached.probe is not None:
            attached.is_probing = True
            job = self._workers.job(partial(self._looked_for_space, attached))
            job.allocate(*attached.probe)
            self._workers.submit(job)

    def _looked_for_space(self, attached: CommitSourceState, job: CommitJob) -> None:
        attached.is_probing = False
        if attached.state != State.FULL:
            return
        if job.error is None:
            attached.state = State.IDLE
            attached.error = attached.probe = None
            attached.answer(attached.source.resumed)
        elif is_transient(job.error):
            if self._loop is not None:
                self._loop.call_later(PROBE_S, self._look_for_space, attached)
        else:
            self._kill(attached, job.error)

    def _file_failed(self, file: DiskFile, error: OSError) -> None:
        """End the source of a file whose sync in the background failed.

        The acknowledged bytes of the file may exist in the journal only.
        """
        self._sync_failed(file)
        attached = self._owners.get(file.path)
        for unsynced in (self._unsynced, self._passing):
            if file.path in unsynced:
                attached = unsynced[file.path][1]
        if attached is not None:
            self._kill(attached, error)

    def _sync_failed(self, file: DiskFile) -> None:
        self._failed.add(file)
        if self._journal is not None:
            self._journal.keep(file)

    def _kill(self, attached: CommitSourceState, error: Exception) -> None:
        """Make the source read-only for good, and tell it."""
        if attached.state == State.DEAD:
            return
        _logger.error("a store is read-only until it is opened again: %s", error)
        attached.state = State.DEAD
        attached.error = StoreReadOnly(str(error))
        self._dirty.pop(attached.source, None)
        attached.answer(attached.source.failed, attached.error)
        attached.wake()

    # ---- files that change

    async def settle(self, file: DiskFile) -> None:
        """Sync the file, so that it can be closed; no extent of it may be out.

        Raises StoreReadOnly if a sync of the file failed; the file may be closed then, too.
        """
        await self._finished(partial(self._settle, file))

    async def release(self, file: DiskFile) -> None:
        """Stop all syncing of a file that is being removed, so that it can be closed.

        No extent of it may be out.
        """
        await self._finished(partial(self._release, file))

    async def forget(self, *paths: Path) -> None:
        """Sync these files and remove them from the journal.

        Call it before the files are removed, replaced, cut or overwritten in place. No extent of
        them may be out, and none may be taken until this returns. If it raises StoreReadOnly, leave
        the files unchanged.
        """
        await asyncio.gather(*(self._finished(partial(self._forget, path)) for path in paths))

    async def forget_below(self, directory: Path) -> None:
        """Call `forget` for all files in that directory, at any depth."""
        await self.forget(*self._paths_below(directory))

    async def forget_removed(self, directory: Path) -> None:
        """Remove all files of this directory from the journal; the directory is gone for good.

        If it raises StoreReadOnly, nothing may be put in the directory's place.
        """
        if self._journal is not None:
            await asyncio.gather(
                *(
                    self._finished(partial(self._journal.forget_removed, path))
                    for path in self._journal.paths_below(directory)
                )
            )

    def refuse(self, source: CommitSource, error: Exception) -> None:
        """Write nothing of this source any more, since the content of its files is unknown."""
        self._kill(self._attached[source], error)

    async def wipe_journal(self) -> None:
        """Sync all files in the journal, then overwrite it.

        So no copy of an erased message stays in the journal. If it raises StoreReadOnly or
        `OSError`, a copy may be left.
        """
        if self._journal is not None:
            await self._finished(self._journal.wipe)

    def settle_now(self, file: DiskFile) -> None:
        """Call `settle` without an event loop. Blocks."""
        self._finish(partial(self._settle, file))

    def forget_now(self, *paths: Path) -> None:
        """Call `forget` without an event loop. Blocks."""
        for path in paths:
            self._finish(partial(self._forget, path))

    async def _finished(self, start: Callable[[Outcome], None]) -> None:
        """Start an operation and wait for its outcome."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: Exception | None) -> None:
            if future.done():  # the waiting task was cancelled
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        start(finish)
        await future

    def _finish(self, start: Callable[[Outcome], None]) -> None:
        """Start an operation and run the workers until its outcome is known."""
        outcomes: list[Exception | None] = []
        start(outcomes.append)
        self._run_until(lambda: bool(outcomes))
        if outcomes[0] is not None:
            raise outcomes[0]

    def _file_to_sync(self, path: Path) -> DiskFile | None:
        """Return the open file of that path if it was written and is not synced, otherwise None."""
        for unsynced in (self._unsynced, self._passing):
            if path in unsynced:
                return unsynced[path][0]
        return None if self._journal is None else self._journal.unsettled(path)

    def _paths_below(self, directory: Path) -> list[Path]:
        paths = below(directory, (*self._unsynced, *self._passing))
        if self._journal is not None:
            paths += self._journal.paths_below(directory)
        return list(dict.fromkeys(paths))

    def _release(self, file: DiskFile, then: Outcome) -> None:
        """Drop the file from the files to be synced; call `then` once no sync of it is running.

        The path may belong to a newer file meanwhile: then that one stays.
        """
        if self._file_to_sync(file.path) is file:
            self._unsynced.pop(file.path, None)
            self._passing.pop(file.path, None)
            self._owners.pop(file.path, None)
            if self._journal is not None:
                self._journal.settle(file.path)
        self._failed.discard(file)
        self._when_free(file, partial(then, None))

    def _settle(self, file: DiskFile, then: Outcome) -> None:
        if file in self._failed:
            self._when_free(file, partial(then, _sync_lost(file)))
        elif self._file_to_sync(file.path) is file:
            self._submit_sync(file, self._workers.job(partial(self._settled, file, then)))
        else:
            self._owners.pop(file.path, None)
            then(None)

    def _settled(self, file: DiskFile, then: Outcome, job: CommitJob) -> None:
        self._syncing.discard(file)
        if job.error is not None:
            self._file_failed(file, job.error)
        if file in self._failed:  # perhaps the sync failed that this one waited for
            then(_sync_lost(file))
            return
        self._unsynced.pop(file.path, None)
        self._passing.pop(file.path, None)
        self._owners.pop(file.path, None)
        if self._journal is not None:
            self._journal.settle(file.path)
        then(None)

    def _forget(self, path: Path, then: Outcome) -> None:
        file = self._file_to_sync(path)
        if file is None:
            self._forget_settled(path, then, None)
        else:
            self._settle(file, partial(self._forget_settled, path, then))

    def _forget_settled(self, path: Path, then: Outcome, error: Exception | None) -> None:
        self._owners.pop(path, None)
        if error is not None or self._journal is None:
            then(error)
        else:
            self._journal.forget(path, then)

    # ---- the end

    async def close(self) -> None:
        """Write and sync all pending bytes, empty the journal and end the threads.

        The files may be closed after that. A store whose bytes could not be written was told
        before.
        """
        self._is_closing = True
        await self._until(self._is_idle)
        while self._unsynced or self._timer_pass:
            self._sync_unsynced()
            await self._until(lambda: self._timer_pass is None)
        if self._journal is not None:
            with contextlib.suppress(StoreReadOnly):  # then the journal stays for the next replay
                await self._finished(self._journal.checkpoint)
        self._workers.unwatch()
        await asyncio.to_thread(self._end)

    def close_now(self) -> None:
        """Close as `close` does, without an event loop. Blocks."""
        self._run_until(self._is_idle)
        self.sync_now()
        if self._journal is not None:
            with contextlib.suppress(StoreReadOnly):
                self._finish(self._journal.checkpoint)
        self._end()

    def _is_idle(self) -> bool:
        """Return whether no source has an extent out or is waiting to be taken."""
        return not any(
            a.state == State.OUT or (a.state == State.IDLE and a.source in self._dirty)
            for a in self._attached.values()
        )

    async def _until(self, is_true: Callable[[], bool]) -> None:
        self.begin_round()
        while not is_true():
            progress = asyncio.get_running_loop().create_future()
            self._progress.append(progress)
            await progress

    def _end(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._journal is not None:
                self._journal.remove()
        finally:
            self._workers.close()


def _sync_lost(file: DiskFile) -> StoreReadOnly:
    return StoreReadOnly(f"{file.path}: a sync failed, and is not tried again")
