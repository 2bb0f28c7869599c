"""Group commit for all stores of a volume.

    stores                committer (the loop's thread)            worker threads
    dirty(source) ──────> a round, at the end of the turn:
                          direct      take_extent ───────────────> allocate, pwrite, fdatasync
                          journal     take_extent of each ───────> allocate, pwrite of each, then
                                                                   the journal's, one fdatasync
    committed(), on_disk() <─ completion <──────────────────────── the bell
                          then the next round, with the bytes appended meanwhile

Extents go to the journal if more sources are dirty than threads are free, and they are small. All
others are written directly: with a sync of their file, or, if the source is acknowledged before
it, without one, by one job for all of them or, if small, by the loop itself.

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
1 ms (2026-11-21). Why not for few files: 16 clients that put into one stream reach 0.76 of their
rate if their commits go through the journal (`natsd bench --jetstream --row kv-put-default`,
2026-11-23).
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
    CommitSource,
    State,
    idle_sources,
    still_out,
)
from natsd.store.commit.new_directories import NewDirectories
from natsd.store.disk.disk import CommitJob, Disk, DiskFile, below, is_transient
from natsd.store.disk.file_syncs import FileSyncs, Outcome
from natsd.store.errors import StoreFull, StoreReadOnly
from natsd.store.wal.driver import JournalDriver
from natsd.store.wal.entries import Extent, write_extent, write_parts
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

_logger = logging.getLogger(__name__)


class Sync(Enum):
    """The moment at which a source is acknowledged."""

    AS_SET = auto()  # as `sync_interval_s` says
    ALWAYS = auto()  # once its bytes are on disk, whatever `sync_interval_s` is (RAFT's logs)
    LATER = auto()  # once its bytes are written; the timer's sync puts them on disk


JobDone = Callable[[CommitJob], None]
Taken = list[tuple[CommitSource, Extent]]
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
        self._threads = threads
        self.new_directories = NewDirectories(self._workers)
        self._files: FileSyncs[CommitSource] = FileSyncs(self._workers, self._sync_failed)
        self._journal = (
            None if journal is None else JournalDriver(self._workers, journal, self._files)
        )
        self._sync_interval_s = sync_interval_s
        self._timer_s = sync_interval_s if sync_interval_s > 0 else LATER_S
        self._loop = loop
        self._sources: set[CommitSource] = set()
        self._dirty: dict[CommitSource, None] = {}
        self._syncs_out = 0  # number of files that direct commits are writing and syncing
        self._is_round_out = False  # extents are being written with the journal
        self._is_scheduled = False
        self._is_closing = False
        self._is_closed = False
        self._progress: list[asyncio.Future[None]] = []
        self._is_passing = False  # the timer's sync is under way
        self._timer: asyncio.TimerHandle | None = None
        if loop is not None:
            self._workers.watch(loop, self.complete, reactor)

    # ---- calls from the stores

    def attach(self, source: CommitSource, *, sync: Sync = Sync.AS_SET) -> None:
        """Serve this source from now on."""
        is_always = sync is Sync.ALWAYS or (sync is Sync.AS_SET and self._sync_interval_s <= 0)
        source.is_synced_at_once = is_always
        self._sources.add(source)

    def detach(self, source: CommitSource) -> None:
        """Stop serving the source; it must have no extent out, and its files must be settled."""
        self._sources.remove(source)
        assert source.commit_state != State.OUT
        source.commit_state = State.DEAD
        self._dirty.pop(source, None)

    def dirty(self, source: CommitSource) -> None:
        """Note that the source has something to write; a repeated call costs little."""
        if source not in self._dirty and source.commit_state != State.DEAD:
            self._dirty[source] = None
            self._schedule()

    def commit_now(self, source: CommitSource) -> None:
        """Write and sync the source's pending bytes, without an event loop.

        Blocks on the disk. Raises StoreFull (a later call may find space) or StoreReadOnly.
        """
        if source.commit_state == State.FULL:
            self._look_for_space(source)
        self._run_until(
            lambda: (
                source not in self._dirty
                and source.commit_state != State.OUT
                and not source.is_probing
            )
        )
        if source.error is not None:
            raise source.error

    async def until_on_disk(self) -> None:
        """Wait until all that is acknowledged now is on disk, whatever `sync_interval_s` is.

        A source whose file could not be synced is refused, as after any failed sync.
        """
        await self._until(lambda: not self._is_passing)  # it may have begun before
        self._sync_unsynced()
        await self._until(lambda: not self._is_passing)

    def sync_now(self) -> None:
        """Sync all that was written, without waiting for the timer or for a loop. Blocks."""
        while self._is_passing or self._written_unsynced():
            self._sync_unsynced()
            self._run_until(lambda: not self._is_passing)

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
        self._is_scheduled = True  # sources that become dirty now are served below
        try:
            for job in self._workers.take_completed():
                cast(JobDone, job.token)(job)
        finally:
            self.begin_round()
        progress, self._progress = self._progress, []
        for waiter in progress:
            if not waiter.done():
                waiter.set_result(None)

    def begin_round(self) -> None:
        """Take extents from the dirty sources, as far as threads and the journal are free."""
        self._is_scheduled = False
        if self._dirty:
            at_once, later = idle_sources(self._dirty)
            if later:
                self._write_unsynced(later)
            if at_once and not self._is_round_out:
                self._write_synced(at_once)
        self._files.go_on()
        if self._journal is not None:
            self._journal.go_on()

    def _write_synced(self, ready: list[CommitSource]) -> None:
        free = self._threads - self._syncs_out
        if len(ready) <= free or self._journal is None or not self._journal.is_usable:
            for source in ready:  # all, since some may have nothing to write now
                if self._syncs_out >= self._threads:
                    break
                extent = self._take(source)
                if extent is not None:
                    self._write_direct(source, extent)
        elif not self._journal.is_writing and not self._journal.must_wait:
            self._write_journaled(self._take_some(ready))

    def _take(self, source: CommitSource) -> Extent | None:
        """Take the source's extent; None if it has none or failed to give one."""
        self._dirty.pop(source, None)
        try:
            extent = source.take_extent()
        except Exception as error:
            _logger.exception("a store failed to say what it has to write")
            self.refuse(source, error)
            return None
        if extent is not None:
            source.commit_state = State.OUT
        return extent

    def _take_some(self, ready: Sequence[CommitSource]) -> Taken:
        """Take the extents of the first ROUND_SOURCES_MAX sources; the others follow later."""
        first = ready[:ROUND_SOURCES_MAX]
        taken = [(source, extent) for source in first if (extent := self._take(source)) is not None]
        if not taken and len(ready) > len(first):
            self._schedule()
        return taken

    # ---- directly: each file is synced

    def _write_direct(
        self, source: CommitSource, extent: Extent, *, is_written: bool = False
    ) -> None:
        """Submit a job that writes the extent, unless it `is_written`, and syncs its file."""
        job = self._workers.job(partial(self._direct_done, source, extent))
        if not is_written:
            write_extent(job, extent)
        self._syncs_out += 1
        self._files.submit(extent.file, job)

    def _direct_done(self, source: CommitSource, extent: Extent, job: CommitJob) -> None:
        self._syncs_out -= 1
        if job.error is None:
            self._files.settled(extent.file)
            source.acknowledge(True)
        else:
            self._fail_write(source, extent, job.error, job.failed_sync)
            self._files.free(extent.file)

    # ---- with the journal: many small extents, and one sync

    def _write_journaled(self, taken: Taken) -> None:
        """Submit one job that writes the small extents, and all of them once more to the journal.

        Large ones are written directly rather than twice.
        """
        small = [one for one in taken if one[1].size <= JOURNAL_EXTENT_BYTES_MAX]
        large = [one for one in taken if one[1].size > JOURNAL_EXTENT_BYTES_MAX]
        if small and not self._submit_journaled(small):
            large = taken
        for source, extent in large:
            self._write_direct(source, extent)

    def _submit_journaled(self, small: Taken) -> bool:
        """Submit the job; return False if the journal takes nothing now."""
        assert self._journal is not None
        job = self._workers.job(partial(self._journaled, small))
        extents = [extent for _, extent in small]
        write_parts(job, extents)
        if not self._journal.add_write(job, extents):
            return False
        self._is_round_out = True
        self._workers.submit(job)
        return True

    def _journaled(self, small: Taken, job: CommitJob) -> None:
        """Answer the sources; if the journal was not written, sync their files first."""
        assert self._journal is not None
        self._is_round_out = False
        written = self._fail_parts(small, job)
        if job.failures:  # then the job wrote nothing to the journal
            self._journal.not_written()
        elif self._journal.written(job):
            for source, extent in written:
                self._files.note(extent.file, source)
                source.acknowledge(True)
            return
        for source, extent in written:
            self._write_direct(source, extent, is_written=True)

    def _fail_parts(self, taken: Taken, job: CommitJob) -> Taken:
        """Fail the sources whose files could not be written; return the others."""
        if not job.failures:
            return still_out(taken)
        failed = {index: (error, is_sync) for index, error, is_sync in job.failures}
        for index, failure in failed.items():
            self._fail_write(*taken[index], *failure)
        return still_out([one for index, one in enumerate(taken) if index not in failed])

    # ---- directly, and acknowledged before the sync

    def _write_unsynced(self, ready: list[CommitSource]) -> None:
        """Write these extents in one job; a few small ones at once, on this thread."""
        taken = self._take_some(ready)
        if len(ready) <= HERE_SOURCES_MAX:
            taken = [
                (source, extent) for source, extent in taken if not self._write_here(source, extent)
            ]
        if taken:
            job = self._workers.job(partial(self._unsynced_done, taken))
            write_parts(job, [extent for _, extent in taken])
            self._workers.submit(job)

    def _unsynced_done(self, taken: Taken, job: CommitJob) -> None:
        for source, extent in self._fail_parts(taken, job):
            self._acknowledge_unsynced(source, extent)

    def _write_here(self, source: CommitSource, extent: Extent) -> bool:
        """Write the extent on the loop's own thread, if it may; return whether it did.

        A few kilobytes into the page cache take less time than waking a thread and the loop: from
        append to acknowledgement 10 us instead of 20 (128 B, Xeon 2 GHz, 2026-11-21), and without
        it a synchronous publish takes 1.4 times as long (`--row js-sync-file`). Extents that
        reserve space, name a new file or are large go to a thread, and so do all extents while the
        disk is slow.
        """
        start_ns = self._clock_ns()
        if (
            extent.size > HERE_BYTES_MAX
            or extent.allocate_to > extent.offset
            or extent.new_in is not None
            or extent.file.fileno() is None
            or start_ns < self._threads_until_ns
        ):
            return False
        try:
            extent.file.pwrite(extent.data, extent.offset)
        except OSError as error:
            self._fail_write(source, extent, error, failed_sync=False)
        else:
            self._acknowledge_unsynced(source, extent)
        end_ns = self._clock_ns()
        if end_ns - start_ns > HERE_SLOW_NS:
            self._threads_until_ns = end_ns + HERE_PAUSE_NS
        return True

    def _acknowledge_unsynced(self, source: CommitSource, extent: Extent) -> None:
        self._files.note(extent.file, source)
        source.acknowledge(False)
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._timer_s, self._sync_unsynced)

    def _written_unsynced(self) -> dict[Path, CommitSource]:
        """Return the files that only the timer syncs, with their sources."""
        unsynced = self._files.unsynced.items()
        return {path: known.owner for path, known in unsynced if not known.owner.is_synced_at_once}

    def _sync_unsynced(self) -> None:
        """Start a pass that syncs all files that were acknowledged without a sync."""
        self._timer = None
        unsynced = {} if self._is_passing else self._written_unsynced()
        if unsynced:
            self._is_passing = True
            written = [(source, source.writes) for source in set(unsynced.values())]
            self._files.pass_over(unsynced, partial(self._unsynced_passed, written))

    def _unsynced_passed(self, written: list[tuple[CommitSource, int]]) -> None:
        self._is_passing = False
        for source, count in written:
            if source.commit_state != State.DEAD:
                source.answer(source.on_disk, count)
        if self._timer is None and self._loop is not None and self._written_unsynced():
            self._timer = self._loop.call_later(self._timer_s, self._sync_unsynced)

    # ---- failures

    def _fail_write(
        self, source: CommitSource, extent: Extent, error: OSError, failed_sync: bool
    ) -> None:
        """Cut the file back if a failed write may pass later; otherwise end the source."""
        if failed_sync:
            self._files.fail(extent.file, source, error)
        elif is_transient(error):
            self._start_cut(source, extent, error)
        else:
            self.refuse(source, error)

    def _start_cut(self, source: CommitSource, extent: Extent, error: OSError) -> None:
        cut = self._workers.job(partial(self._cut, source, extent, error))
        cut.truncate(extent.file, extent.offset)
        self._workers.submit(cut)

    def _cut(self, source: CommitSource, extent: Extent, error: OSError, job: CommitJob) -> None:
        """Tell the source StoreFull after its file was cut back, and look for space later."""
        if job.error is None:
            if source.commit_state == State.OUT:
                self._suspend(source, error, (extent.file, extent.offset, extent.size))
        elif is_transient(job.error) and self._loop is not None and not self._is_closing:
            self._loop.call_later(PROBE_S, self._start_cut, source, extent, error)
        else:
            self.refuse(source, job.error)

    def _suspend(
        self, source: CommitSource, error: Exception, probe: tuple[DiskFile, int, int] | None
    ) -> None:
        """Take nothing of the source until `probe` can be reserved; None: until PROBE_S later."""
        source.commit_state = State.FULL
        source.probe = probe
        source.error = StoreFull(str(error))
        source.answer(source.failed, source.error)
        if self._loop is not None:
            self._loop.call_later(PROBE_S, self._look_for_space, source)

    def _look_for_space(self, source: CommitSource) -> None:
        """Try to reserve the space that the failed extent needed."""
        if self._is_closed or source.is_probing or source.commit_state != State.FULL:
            return
        if source.probe is None:
            self._resume(source)
            return
        source.is_probing = True
        job = self._workers.job(partial(self._looked_for_space, source))
        job.allocate(*source.probe)
        self._workers.submit(job)

    def _looked_for_space(self, source: CommitSource, job: CommitJob) -> None:
        source.is_probing = False
        if source.commit_state != State.FULL:
            return
        if job.error is None:
            self._resume(source)
        elif is_transient(job.error):
            if self._loop is not None:
                self._loop.call_later(PROBE_S, self._look_for_space, source)
        else:
            self.refuse(source, job.error)

    def _resume(self, source: CommitSource) -> None:
        source.commit_state = State.IDLE
        source.error = source.probe = None
        source.answer(source.resumed)
        self._schedule()  # it may be dirty since it was suspended

    def _sync_failed(self, file: DiskFile, source: CommitSource, error: OSError) -> None:
        """End the source of a file whose sync failed.

        The acknowledged bytes of the file may exist in the journal only.
        """
        if self._journal is not None:
            self._journal.keep(file.path)
        self.refuse(source, error)

    def fail(self, source: CommitSource, error: Exception) -> None:
        """Note that the source could not do its own part of a write; none of it may be out.

        It gets StoreFull if the error may pass, and goes on later; otherwise StoreReadOnly.
        """
        if not is_transient(error):
            self.refuse(source, error)
        elif source.commit_state != State.DEAD:
            self._suspend(source, error, None)

    def refuse(self, source: CommitSource, error: Exception) -> None:
        """Write nothing of this source any more, since the content of its files is unknown."""
        if source.commit_state == State.DEAD:
            return
        _logger.error("a store is read-only until it is opened again: %s", error)
        source.commit_state = State.DEAD
        source.error = StoreReadOnly(str(error))
        self._dirty.pop(source, None)
        source.answer(source.failed, source.error)

    # ---- files that change

    async def settle(self, file: DiskFile) -> None:
        """Sync the file, so that it can be closed; no extent of it may be out.

        Raises StoreReadOnly if a sync of the file failed; the file may be closed then, too.
        """
        await self._finished(partial(self._files.settle, file))

    async def release(self, file: DiskFile) -> None:
        """Stop all syncing of a file that is being removed, so that it can be closed.

        No extent of it may be out.
        """
        await self._finished(partial(self._files.release, file))

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

    async def wipe_journal(self) -> None:
        """Sync all files in the journal, then overwrite it.

        So no copy of an erased message stays in the journal. If it raises StoreReadOnly or
        `OSError`, a copy may be left.
        """
        if self._journal is not None:
            await self._finished(self._journal.wipe)

    def settle_now(self, file: DiskFile) -> None:
        """Call `settle` without an event loop. Blocks."""
        self._finish(partial(self._files.settle, file))

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

    def _paths_below(self, directory: Path) -> list[Path]:
        paths = below(directory, self._files.unsynced)
        if self._journal is not None:
            paths += self._journal.paths_below(directory)
        return list(dict.fromkeys(paths))

    def _forget(self, path: Path, then: Outcome) -> None:
        known = self._files.unsynced.get(path)
        if known is None:
            self._forget_settled(path, then, None)
        else:
            self._files.settle(known.file, partial(self._forget_settled, path, then))

    def _forget_settled(self, path: Path, then: Outcome, error: Exception | None) -> None:
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
        while self._is_passing or self._written_unsynced():
            self._sync_unsynced()
            await self._until(lambda: not self._is_passing)
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
            source.commit_state == State.OUT
            or (source.commit_state == State.IDLE and source in self._dirty)
            for source in self._sources
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
