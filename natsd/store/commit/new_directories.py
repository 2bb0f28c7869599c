"""New directories with small files in them, made without the GIL and a few at a time.

    make ──▶ a job:  mkdir <name>.new │ write and sync each file │ sync <name>.new
                     rename <name>.new to <name> │ sync the parent

Promise
- A directory that has its name has all of its files, also after a crash. On return it is on disk.
- What a crash left has the suffix `.new`; the owner of the parent removes it at the next start.
- At most JOBS_MAX jobs run at a time, so that commits keep a thread. What is asked for meanwhile is
  shared among the next jobs: a job of many directories costs one turn of the event loop, and jobs
  that run at the same time share the commits of the file system's own journal.
- A failure concerns one directory.

Why not in Python threads: after each of some twenty system calls such a thread needs the GIL back.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from natsd.store.disk.disk import CommitJob, CommitWorkers
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX

JOBS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class _Making:
    """A directory to make, its files by name, and who waits for it."""

    directory: Path
    files: Mapping[str, bytes]
    made: asyncio.Future[None]


class NewDirectories:
    """Maker of directories, with the threads of the committer."""

    def __init__(self, workers: CommitWorkers) -> None:
        self._workers = workers
        self._waiting: deque[_Making] = deque()
        self._jobs_out = 0

    async def make(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Make the directory with these files, content by name.

        Raises FileNotFoundError if there is no parent, FileExistsError if a directory of that name,
        or the unfinished one, is in the way, and any other OSError; then the unfinished one may be
        left, or the directory may have its name.
        """
        made = asyncio.get_running_loop().create_future()
        self._waiting.append(_Making(directory, files, made))
        self._go_on()
        await made

    def _go_on(self) -> None:
        """Start jobs, with an equal share of the waiting directories each."""
        while self._waiting and self._jobs_out < JOBS_MAX:
            share = -(-len(self._waiting) // (JOBS_MAX - self._jobs_out))
            taken = [self._waiting.popleft() for _ in range(share)]
            job = self._workers.job(partial(self._done, taken))
            for each in taken:
                job.begin_part()
                _add_steps(job, each.directory, each.files)
            self._jobs_out += 1
            self._workers.submit(job)

    def _done(self, taken: Sequence[_Making], job: CommitJob) -> None:
        self._jobs_out -= 1
        failed = {part: error for part, error, _ in job.failures}
        for part, each in enumerate(taken):
            if each.made.done():  # the waiting task was cancelled
                continue
            error = failed.get(part)
            if error is None:
                each.made.set_result(None)
            elif error.errno == errno.ENOTEMPTY:
                each.made.set_exception(FileExistsError(errno.EEXIST, str(error)))
            else:
                each.made.set_exception(error)
        self._go_on()


def unfinished(directory: Path) -> Path:
    """Return the name that a directory has while it is being made."""
    return directory.with_name(directory.name + UNFINISHED_SUFFIX)


def _add_steps(job: CommitJob, directory: Path, files: Mapping[str, bytes]) -> None:
    new = unfinished(directory)
    job.make_directory(new)
    for name, content in files.items():
        job.put_file(new / name, content)
    job.sync_directory(new)
    job.rename(new, directory)
    job.sync_directory(directory.parent)
