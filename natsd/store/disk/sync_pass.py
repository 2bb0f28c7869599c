"""A background sync of many files, a few at a time, so that commits keep their threads.

Promise
- `file_of` is called for a path only when its turn comes: a file that was settled or closed since
  is left out.
- No file is synced here while it is being synced elsewhere (`is_busy`), nor the reverse: of two
  syncs at once, one may get the error of the other, and both would have lost the same bytes.
- A failure is reported at once (`failed`), before that file can be synced again: a later sync may
  succeed without the lost bytes. No sync is tried twice. `done` is called once, at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from natsd.store.disk.disk import CommitJob, CommitWorkers, DiskFile

JOBS_MAX = 3

Outcome = Callable[[Exception | None], None]  # called once: None for success, else the error


class SyncPass:
    """One pass over some files.

    Call `go_on` at the start, and whenever a file may have become free. `file_of` returns the open
    file of a path, or None if it needs no sync.
    """

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
        """Call back when the file is not being synced here; at once if it is not now."""
        if file in self._syncing:
            self._syncing[file].append(callback)
        else:
            callback()

    def go_on(self) -> None:
        """Start the syncs that are possible now; call `done` if all are finished."""
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
