"""The driver of the journal: one batch at a time, forgets, and checkpoints beside them.

    add_write ──> batch ──> batch ──> … segment full ──> the other segment takes over
                                        └─> checkpoint: sync its files, end its epoch, free it

Promise
- Batches reach the disk in the order of their numbers: the next batch is submitted when the one
  before is synced.
- `add_write` returns False if the journal cannot take the extents now (both segments are in use, no
  space, given up); then their files must be synced instead.
- A journal that failed takes nothing more. Once all files that it writes to are synced, it is
  removed. If only space, a descriptor or memory was missing, it begins anew, at the earliest
  `RETURN_NS` after it failed; the failure is logged once, until the journal has worked again.
- A journal that has entries of a file whose sync failed is kept until the volume is opened again,
  since it may hold the only copy of acknowledged bytes. It takes no more writes, but still
  forgets files that were synced and files that were removed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from natsd.store.disk.disk import CommitJob, CommitWorkers, is_transient
from natsd.store.disk.file_syncs import FileSyncs, Outcome
from natsd.store.errors import StoreReadOnly
from natsd.store.wal.entries import Extent
from natsd.store.wal.write_ahead_log import Segment, WriteAheadLog

RETURN_NS = 1_000_000_000

_logger = logging.getLogger(__name__)


class JournalDriver:
    """Owner of the journal for the committer; all calls come from the committer's thread."""

    def __init__(
        self,
        workers: CommitWorkers,
        journal: WriteAheadLog,
        files: FileSyncs[Any],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._workers = workers
        self._journal = journal
        self._clock_ns = clock_ns
        self._return_ns = 0  # by the clock: the journal begins anew no earlier than this
        self._is_told = False  # the failure is logged already
        self._files = files
        self._forgets: list[tuple[Path, Outcome]] = []
        self._failed_paths: set[Path] = set()  # a sync of these files failed
        self._is_checkpointing = False
        self._checkpoint_all_waiters: list[Outcome] = []
        self._can_return = True
        self._is_kept = False
        self.is_writing = False

    @property
    def is_usable(self) -> bool:
        """Whether `add_write` may return True.

        Reading it brings a journal that failed for a passing reason back into use, if its time has
        come.
        """
        journal = self._journal
        if not journal.is_usable and self._can_return and self._clock_ns() >= self._return_ns:
            is_busy = self._is_kept or self.is_writing or self._is_checkpointing
            if not is_busy and not journal.used_segments:
                self._remove()
        return journal.is_usable

    @property
    def must_wait(self) -> bool:
        """Whether the next batch should wait for the checkpoint under way.

        The checkpoint is about to make room that the batch may need; waiting for it costs less than
        a sync of each of the batch's files.
        """
        return self._is_checkpointing and self._journal.is_nearly_full

    def add_write(self, job: CommitJob, extents: Sequence[Extent]) -> bool:
        """Add the steps that write these extents to the journal and sync it.

        Return False if the journal takes none now. If True, submit the job at once, and call
        `written` or `not_written` when the job is done.
        """
        assert not self.is_writing
        self.is_writing = self._add_steps(partial(self._journal.add_writes, job, extents))
        return self.is_writing

    def written(self, job: CommitJob) -> bool:
        """Note that the job is done and reached the journal's steps.

        Return whether the extents are on disk by it.
        """
        self.is_writing = False
        if job.error is not None:
            self._give_up(job.error)
        else:
            self._is_told = False
        return job.error is None

    def not_written(self) -> None:
        """Note that the job is done and began none of the journal's steps."""
        self.is_writing = False
        self._journal.take_back()

    def _add_steps(self, add: Callable[[], bool]) -> bool:
        try:
            return add()
        except OSError as error:
            self._give_up(error)
            return False

    def _give_up(self, error: OSError) -> None:
        if not self._is_told:
            _logger.error("the journal is set aside, commits go on without it: %s", error)
        self._is_told = True
        self._journal.give_up()
        self._return_ns = self._clock_ns() + RETURN_NS
        self._can_return = self._can_return and is_transient(error)

    def keep(self, path: Path) -> None:
        """Keep the journal: a sync of this file failed, and the journal may have the only copy."""
        if self._journal.speaks_of(path):
            self._failed_paths.add(path)
            self._is_kept = True
            self._journal.take_no_writes()

    def go_on(self) -> None:
        """Start the checkpoint and the forgets that are due and possible now."""
        if not (self._is_checkpointing or self._is_kept):
            used = self._journal.used_segments
            needs_all = self._checkpoint_all_waiters or (used and not self._journal.is_usable)
            if needs_all and not self.is_writing:
                self._start_checkpoint(used)
            elif self._journal.is_usable and self._journal.full_segments:
                self._start_checkpoint(self._journal.full_segments)
        if self._forgets and not self.is_writing:
            self._write_forgets()

    # ---- forgets

    def paths_below(self, directory: Path) -> list[Path]:
        """Return the paths in that directory, at any depth, that replay would write to."""
        return self._journal.paths_below(directory)

    def forget(self, path: Path, then: Outcome) -> None:
        """Have replay forget a path whose file is synced.

        `then(None)` is called once that is on disk, or `then(StoreReadOnly)` if it cannot be done.
        """
        self._forgets.append((path, then))
        self.go_on()

    def forget_removed(self, path: Path, then: Outcome) -> None:
        """Have replay forget a path whose file is gone for good, synced or not; see `forget`."""
        self._failed_paths.discard(path)
        self.forget(path, then)

    def _write_forgets(self) -> None:
        waiting, self._forgets = self._forgets, []
        due = []
        for path, then in waiting:
            if not self._journal.speaks_of(path):
                then(None)
            elif path in self._failed_paths:
                text = f"the journal may hold the only copy of what was written to {path}"
                then(StoreReadOnly(text))
            elif self._is_kept and self._journal.is_broken:
                then(StoreReadOnly(f"the journal is kept, and cannot forget {path}"))
            else:
                due.append((path, then))
        if not due:
            return
        job = self._workers.job(partial(self._forgotten, due))
        paths = [path for path, _ in due]
        if self._add_steps(partial(self._journal.add_forgets, job, paths)):
            self.is_writing = True
            self._workers.submit(job)
        elif self._is_kept and not self._is_checkpointing:
            for path, then in due:
                then(StoreReadOnly(f"the journal is kept, and has no room to forget {path}"))
        else:  # a checkpoint makes room for these forgets, or makes them needless
            self._forgets += due
            if not self._is_checkpointing:
                self._start_checkpoint(self._journal.used_segments)

    def _forgotten(self, due: list[tuple[Path, Outcome]], job: CommitJob) -> None:
        self.is_writing = False
        if job.error is not None:
            self._give_up(job.error)
            self._forgets += due
        else:
            for path, then in due:
                self._journal.forget(path)
                then(None)
        self.go_on()

    # ---- checkpoints

    def checkpoint(self, then: Outcome) -> None:
        """Sync all files that the journal writes to, and empty it.

        `then(None)` is called at the end, or `then(StoreReadOnly)` if the journal must be kept.
        """
        self._checkpoint_all_waiters.append(then)
        self.go_on()
        if self._is_kept:
            self._tell_waiters()

    def _start_checkpoint(self, segments: Sequence[Segment]) -> None:
        self._is_checkpointing = True
        self._journal.checkpointing = segments
        paths = [path for segment in segments for path in segment.paths]
        self._files.pass_over(paths, partial(self._files_synced, segments))

    def _files_synced(self, segments: Sequence[Segment]) -> None:
        if self._is_kept:
            self._checkpoint_over()
        elif self._journal.is_usable and segments:
            job = self._workers.job(partial(self._retired, segments))
            self._journal.add_retirement(job, segments)
            self._workers.submit(job)
        elif self._journal.is_usable:
            self._tell_waiters()
            self._checkpoint_over()
        elif self.is_writing:
            self._checkpoint_over()  # a batch under way may add files: check again after it
        elif list(segments) == self._journal.used_segments:
            self._remove()
            self._checkpoint_over()
        else:
            self._start_checkpoint(self._journal.used_segments)

    def _retired(self, segments: Sequence[Segment], job: CommitJob) -> None:
        if job.error is not None:
            self._give_up(job.error)
            self._start_checkpoint(self._journal.used_segments)
            return
        self._journal.retired(segments)
        if not self._journal.used_segments:
            self._tell_waiters()
        self._checkpoint_over()

    def _remove(self) -> None:
        try:
            self._journal.remove()
            self._tell_waiters()
        except OSError as error:
            _logger.error("the journal cannot be removed: %s", error)
            self._is_kept = True
        if not self._can_return or self._clock_ns() < self._return_ns:
            self._journal.give_up()

    def _checkpoint_over(self) -> None:
        self._journal.checkpointing = ()
        self._is_checkpointing = False
        if self._is_kept:
            self._tell_waiters()
        self.go_on()

    def _tell_waiters(self) -> None:
        waiters, self._checkpoint_all_waiters = self._checkpoint_all_waiters, []
        for then in waiters:
            then(StoreReadOnly("the journal is kept: a sync failed") if self._is_kept else None)

    def wipe(self, then: Outcome) -> None:
        """Do a checkpoint, then overwrite the bytes of all batches.

        `then` gets None, or the error of the checkpoint or of the writing.
        """
        self.checkpoint(partial(self._start_wiping, then))

    def _start_wiping(self, then: Outcome, error: Exception | None) -> None:
        if error is not None:
            then(error)
            return
        job = self._workers.job(partial(self._wiped, then))
        self._journal.add_wiping(job)
        self.is_writing = True
        self._workers.submit(job)

    def _wiped(self, then: Outcome, job: CommitJob) -> None:
        self.is_writing = False
        if job.error is not None:
            self._give_up(job.error)
        then(job.error)
        self.go_on()

    def remove(self) -> None:
        """Remove the files of a journal that a checkpoint emptied; do nothing if it must be kept.

        Blocks on the disk. Raises `OSError`.
        """
        if not self._is_kept:
            self._journal.remove()
