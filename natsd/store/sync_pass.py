"""Syncs many files in the background, a few at a time, so that commits keep their threads.

Promise
- A file is asked for (`file_of`) only when its turn comes: one that was settled or closed since is
  left out.
- No file is synced here while it is being synced elsewhere (`is_busy`), nor the reverse: of two
  syncs at once, one may take the other's error, and both would have lost the same bytes.
- A failure is told at once (`failed`), before anyone may sync that file again and take silence for
  success; none is tried a second time. `done` is called once, at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from natsd.store.disk import CommitJob, CommitWorkers, DiskFile

JOBS_MAX = 3

Outcome = Callable[[Exception | None], None]  # told how it went, once


class SyncPass:
    """One pass over some files; `go_on` whenever a file may have become free."""

    def __init__(
        self,
        workers: CommitWorkers,
        paths: Iterable[Path],
        file_of: Callable[[Path], DiskFile | None],
        is_busy: Callable[[DiskFile], bool],
        failed: Callable[[DiskFile, OSError], None],
        done: Callable[[], None],
    ) -> None:
        self._workers = workers
        self._waiting = deque(paths)
        self._file_of = file_of
        self._is_busy = is_busy
        self._failed = failed
        self._done: Callable[[], None] | None = done
        self._failures: set[DiskFile] = set()
        self._syncing: dict[DiskFile, list[Callable[[], None]]] = {}

    def when_free(self, file: DiskFile, callback: Callable[[], None]) -> None:
        """Call back once the file is not being synced here: now, or after that."""
        if file in self._syncing:
            self._syncing[file].append(callback)
        else:
            callback()

    def go_on(self) -> None:
        """Sync what can be synced now; when nothing is left, say so."""
        for _ in range(len(self._waiting)):
            if len(self._syncing) == JOBS_MAX:
                break
            path = self._waiting.popleft()
            file = self._file_of(path)
            if file is not None and (self._is_busy(file) or file in self._syncing):
                self._waiting.append(path)
            elif file is not None and file not in self._failures:
                self._sync(file)
        if not self._waiting and not self._syncing and self._done:
            done, self._done = self._done, None
            done()

    def _sync(self, file: DiskFile) -> None:
        self._syncing[file] = []
        job = self._workers.job(partial(self._synced, file))
        job.datasync(file)
        self._workers.submit(job)

    def _synced(self, file: DiskFile, job: CommitJob) -> None:
        callbacks = self._syncing.pop(file)
        if job.error is not None:
            self._failures.add(file)
            self._failed(file, job.error)
        for callback in callbacks:
            callback()
        self.go_on()
