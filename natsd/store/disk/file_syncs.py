"""The syncs of a volume's files: those of commits, and those of what was written without a sync.

    a commit with a sync     ─▶ submit: its job ends in the sync
    a commit without a sync  ─▶ note ─┬─▶ pass_over: by the timer, or by the journal's checkpoint
                                      └─▶ settle: the file is to be closed, replaced or overwritten

Promise
- At most one sync of a file runs at a time: of two syncs at once, one may get the error of the
  other, and both would have lost the same bytes.
- A failed sync is reported at once, before the file can be synced again, and no sync is tried
  twice: a later one may succeed without the lost bytes.
- A pass syncs PASS_JOBS_MAX files at a time, so that commits keep their threads. A file that was
  settled or closed before its turn comes is left out.
- A file that is written while it is being synced counts as not synced afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from natsd.store.disk.disk import CommitJob, CommitWorkers, DiskFile
from natsd.store.errors import StoreReadOnly

PASS_JOBS_MAX = 3

Outcome = Callable[[Exception | None], None]  # called once: None for success, else the error
Owner = TypeVar("Owner")


@dataclass(slots=True, eq=False)
class Unsynced(Generic[Owner]):
    """A file with bytes that are not synced, and the store that it belongs to."""

    file: DiskFile
    owner: Owner
    writes: int = 1  # number of writes since the last sync


@dataclass(slots=True, eq=False)
class _Pass:
    waiting: deque[Path]
    done: Callable[[], None]
    out: int = 0  # number of its syncs that are running


class FileSyncs(Generic[Owner]):
    """All syncs of files; `unsynced` holds the files that were written without one."""

    def __init__(
        self, workers: CommitWorkers, failed: Callable[[DiskFile, Owner, OSError], None]
    ) -> None:
        self._workers = workers
        self._report = failed
        self.unsynced: dict[Path, Unsynced[Owner]] = {}
        self._syncing: dict[DiskFile, list[Callable[[], None]]] = {}
        self._failed: set[DiskFile] = set()  # open files with a failed sync
        self._passes: list[_Pass] = []

    # ---- commits

    def note(self, file: DiskFile, owner: Owner) -> None:
        """Note that bytes were written to the file without a sync."""
        known = self.unsynced.get(file.path)
        if known is not None and known.file is file:
            known.writes += 1
        else:
            self.unsynced[file.path] = Unsynced(file, owner)

    def submit(self, file: DiskFile, job: CommitJob) -> None:
        """Submit the job with a sync of the file as its last step, once no other sync runs.

        Call `settled` or `free` when the job is done.
        """
        job.datasync(file)
        self._submit(file, job)

    def _submit(self, file: DiskFile, job: CommitJob) -> None:
        if file in self._syncing:
            self._syncing[file].append(partial(self._submit, file, job))
        else:
            self._syncing[file] = []
            self._workers.submit(job)

    def settled(self, file: DiskFile) -> None:
        """Note that the job of `submit` is done, and that everything in the file is on disk."""
        known = self.unsynced.get(file.path)
        if known is not None and known.file is file:
            del self.unsynced[file.path]
        self.free(file)

    def fail(self, file: DiskFile, owner: Owner, error: OSError) -> None:
        """Note and report that a sync of the file failed; it is not synced again."""
        self._failed.add(file)
        known = self.unsynced.get(file.path)
        if known is not None and known.file is file:
            del self.unsynced[file.path]
        self._report(file, owner, error)

    def free(self, file: DiskFile) -> None:
        """Note that the job of `submit` is done, so that the file may be synced again.

        What waits for the file looks itself whether another sync has begun meanwhile.
        """
        for callback in self._syncing.pop(file):
            callback()

    # ---- files that were written without a sync

    def settle(self, file: DiskFile, then: Outcome) -> None:
        """Sync the file, if it needs it, and call `then`; no extent of the file may be out."""
        known = self.unsynced.get(file.path)
        if file in self._syncing:
            self._syncing[file].append(partial(self.settle, file, then))
        elif file in self._failed:
            then(StoreReadOnly(f"{file.path}: a sync failed, and is not tried again"))
        elif known is not None and known.file is file:
            self._sync(known, partial(self.settle, file, then))
        else:
            then(None)

    def release(self, file: DiskFile, then: Outcome) -> None:
        """Drop a file that is being removed; call `then` once no sync of it is running.

        The path may belong to a newer file meanwhile: then that one stays.
        """
        known = self.unsynced.get(file.path)
        if known is not None and known.file is file:
            del self.unsynced[file.path]
        if file in self._syncing:
            self._syncing[file].append(partial(self.release, file, then))
        else:
            self._failed.discard(file)
            then(None)

    def _sync(self, known: Unsynced[Owner], then: Callable[[], None]) -> None:
        job = self._workers.job(partial(self._synced, known, known.writes, then))
        self.submit(known.file, job)

    def _synced(
        self, known: Unsynced[Owner], writes: int, then: Callable[[], None], job: CommitJob
    ) -> None:
        if job.error is not None:
            self.fail(known.file, known.owner, job.error)
        elif known.writes == writes and self.unsynced.get(known.file.path) is known:
            del self.unsynced[known.file.path]
        self.free(known.file)
        then()

    # ---- passes

    def pass_over(self, paths: Iterable[Path], done: Callable[[], None]) -> None:
        """Sync those of the files that need it, a few at a time, and call `done` at the end.

        Call `go_on` whenever a file may have become free.
        """
        self._passes.append(_Pass(deque(paths), done))
        self.go_on()

    def go_on(self) -> None:
        """Start the syncs of the passes that are possible now, and end passes that are finished."""
        for each in tuple(self._passes):
            self._go_on(each)

    def _go_on(self, each: _Pass) -> None:
        for _ in range(len(each.waiting)):
            if each.out == PASS_JOBS_MAX:
                break
            path = each.waiting.popleft()
            known = self.unsynced.get(path)
            if known is not None and known.file in self._syncing:
                each.waiting.append(path)
            elif known is not None:
                each.out += 1
                self._sync(known, partial(self._one_passed, each))
        if not each.waiting and not each.out and each in self._passes:
            self._passes.remove(each)
            each.done()

    def _one_passed(self, each: _Pass) -> None:
        each.out -= 1
        self._go_on(each)
