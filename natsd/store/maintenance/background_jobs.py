"""The background jobs of one file store: they run one after another.

    later(job) ─▶ queue ─▶ one task, which ends when no job is left
                  ▲                         │ space, a descriptor or memory was lacking
                  └──── after RETRY_S ──────┘

Promise
- A failed job is logged. It runs again if it lacked space, a descriptor or memory; otherwise what
  it would have done is left to recovery. The jobs behind it go on.
- A store without a job has no task and no timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from natsd.store.disk.disk import is_transient
from natsd.store.errors import StoreError

RETRY_S = 1.0  # wait before a job that lacked space, a descriptor or memory runs again

_logger = logging.getLogger(__name__)
Job = Callable[[], Awaitable[None]]


class BackgroundJobs:
    """The jobs of the store in `directory`, which the log lines name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._jobs: deque[Job] = deque()
        self._lacking: set[Job] = set()  # failed jobs that run again after RETRY_S
        self._task: asyncio.Task[None] | None = None
        self.is_closing = False  # the store is being closed: only necessary work is done

    def later(self, job: Job) -> None:
        """Queue a job behind the waiting ones."""
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def in_turn(self, job: Job) -> None:
        """Queue a job behind the waiting ones, and wait until it is done; raise what it raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await job()
            except BaseException as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        self.later(run)
        await done

    async def finished(self) -> None:
        """Wait until no job is left; jobs that failed stay for the next opening of the store."""
        self.is_closing = True
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _work(self) -> None:
        try:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    await job()
                except (OSError, StoreError) as error:
                    self._put_off(job, error)
                else:
                    self._lacking.discard(job)
        finally:
            self._task = None

    def _put_off(self, job: Job, error: Exception) -> None:
        """Log a failed job, and run it later if it lacked space, a descriptor or memory.

        The jobs behind it go on meanwhile, since they may free what is lacking.
        """
        if job not in self._lacking:
            _logger.warning("%s: %s", self._directory, error)
        if is_transient(error) and not self.is_closing:
            self._lacking.add(job)
            asyncio.get_running_loop().call_later(RETRY_S, self._again, job)
        else:
            self._lacking.discard(job)

    def _again(self, job: Job) -> None:
        if not self.is_closing:
            self.later(job)
