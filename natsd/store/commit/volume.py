"""A volume: one store directory, with everything that the stores in it share.

    <directory>/
      natsd.lock          held while the volume is open, with the holder's pid
      journal.0, .1       commits of many stores, until they are synced (journal.py)
      …                   the stores' directories

Promise
- One process at a time: the second gets `DirectoryLocked`, which names the holder.
- The journal is replayed before `open` returns, so before any store opens; `replayed.damage` has
  the bytes that it could not restore.
- All names in the volume, and its own, are on disk before that, also those that the process before
  left. New directories are on disk when `make_directory` returns.
- A directory that is removed is renamed first: after a crash it is there as a whole, or gone as a
  whole.
- A new file or directory at the path of a removed one is not touched by older journal entries.
- Reads that may wait for the disk run in at most `READERS` threads; writes in at most
  `committer.THREADS`, which need no GIL.
- `close` leaves everything committed on disk and no journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from natsd.core.network import Reactor, tune_allocator
from natsd.store.block.cache_budget import CacheBudget
from natsd.store.commit.committer import THREADS, Committer
from natsd.store.commit.new_directories import unfinished
from natsd.store.disk.disk import Disk, Lock, make_directories, rename_removed, sync_names
from natsd.store.errors import StoreReadOnly
from natsd.store.wal.replay import Replayed, replay
from natsd.store.wal.write_ahead_log import SEGMENT_BYTES_MAX, WriteAheadLog

LOCK_NAME = "natsd.lock"
READERS = 4
CACHE_BYTES = 256 << 20
ARRAYS_BYTES = 64 << 20
FREE_BYTES_MIN = 16 << 20
OPEN_LOGS_MAX = 100_000

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def open_logs_max() -> int:
    """Return how many consumers' logs may be open: a quarter of all descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_LOGS_MAX if soft == resource.RLIM_INFINITY else min(soft // 4, OPEN_LOGS_MAX)


@dataclass(slots=True)
class Repairs:
    """Blocks that were repaired since the start, and messages that other replicas gave for it."""

    blocks: int = 0
    messages: int = 0


class Volume:
    """An open store directory; made by `open`, ended by `close` or `close_now`."""

    def __init__(
        self, disk: Disk, directory: Path, lock: Lock, replayed: Replayed, committer: Committer
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.replayed = replayed
        self.committer = committer
        self.cache = CacheBudget(CACHE_BYTES)  # records of blocks, in bytes
        self.arrays = CacheBudget(ARRAYS_BYTES)  # arrays of blocks (offsets, slots), in bytes
        self.logs = CacheBudget(open_logs_max())  # number of consumers' open logs
        self.repairs = Repairs()
        self._lock = lock
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="natsd-store")

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: Path,
        random_bytes: Callable[[int], bytes],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        reactor: Reactor | None = None,
        sync_interval_s: float = 0,
        threads: int = THREADS,
        journal_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> Volume:
        """Create the directory if it is missing, lock it, and replay its journal.

        `random_bytes(n)` returns n random bytes (`os.urandom`). `sync_interval_s` 0 is
        `sync_interval: always`. With the `reactor` that serves the loop, commits begin at the end
        of its turns, with all changes of the turn, and end in them. Blocks on the disk. Raises
        DirectoryLocked or `OSError`.
        """
        directory = directory.absolute()
        tune_allocator()
        make_directories(disk, directory)
        lock = disk.lock(directory / LOCK_NAME)
        try:
            sync_names(disk, directory)
            replayed = replay(disk, directory)
            journal = WriteAheadLog(
                disk, directory, random_bytes, segment_bytes_max=journal_bytes_max
            )
            committer = Committer(
                disk,
                journal,
                threads=threads,
                sync_interval_s=sync_interval_s,
                loop=loop,
                reactor=reactor,
            )
        except BaseException:
            lock.release()
            raise
        return cls(disk, directory, lock, replayed, committer)

    async def read(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that waits for the disk in one of the readers' threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, function, *arguments)

    def make_directory(self, path: Path) -> None:
        """Make a directory with its missing parents, all of it on disk on return.

        Blocks on the disk. Raises `OSError`.
        """
        make_directories(self.disk, path)

    async def make_with_files(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Make a directory with small files in the place of what is there; on disk on return.

        What a crash or a full disk left is removed, and missing parents are made. Nothing in the
        directory may be open. Raises `OSError` or StoreReadOnly; then there is no such directory,
        or its path cannot be used before the next start.
        """
        make = self.committer.new_directories.make
        try:
            try:
                await self.committer.forget_removed(directory)
                await make(directory, files)
            except FileExistsError:
                await self._clear(directory)
                await make(directory, files)
            except FileNotFoundError:
                await self.read(self.make_directory, directory.parent)
                await make(directory, files)
        except BaseException:
            with contextlib.suppress(StoreReadOnly, OSError):  # the first failure is raised
                await self._clear(directory)
            raise

    async def _clear(self, directory: Path) -> None:
        await self.read(self.disk.rmtree, unfinished(directory))
        await self.remove_tree(directory)

    async def unlink(self, *paths: Path) -> None:
        """Remove files; the removal is on disk on return.

        No extent of the files may be in flight, and their replacements must be durable (extent.py,
        `on_disk`). Raises StoreReadOnly, with all files still there, and `OSError`.
        """
        await self.committer.forget(*paths)
        await self.read(self._unlink, paths)

    def _unlink(self, paths: tuple[Path, ...]) -> None:
        for path in paths:
            self.disk.unlink(path)
        for directory in {path.parent for path in paths}:
            self.disk.sync_dir(directory)

    async def remove_tree(self, directory: Path) -> None:
        """Remove a directory with everything in it; do nothing if it does not exist.

        Another directory may then get its path. Nothing in the directory may be open. Raises
        `OSError` or StoreReadOnly: then the directory is still there, or its path cannot be used
        before the next start.
        """
        removed = None
        if await self.read(self.disk.exists, directory):
            removed = await self.rename_removed(directory)
        await self.committer.forget_removed(directory)
        if removed is not None:
            await self._remove_renamed(removed)

    async def rename_removed(self, directory: Path) -> Path:
        """Rename a directory, so that it is gone as a whole, and return its new path.

        See disk.rename_removed. Files open in it may be used for a while; then call
        `finish_removal`. Raises `OSError`; then nothing has changed, except as UnsyncedRename says.
        """
        return await self.read(rename_removed, self.disk, directory)

    async def finish_removal(self, directory: Path, removed: Path) -> None:
        """Remove the renamed directory once nothing in it is open; failures are logged.

        The journal's entries for the directory are forgotten too. If that fails, the path cannot be
        used before the next start: a caller that needs the path calls `remove_tree` first, which
        then fails as well.
        """
        try:
            await self.committer.forget_removed(directory)
        except StoreReadOnly as error:
            _logger.error("%s is removed, and cannot be made again yet: %s", directory, error)
        await self._remove_renamed(removed)

    async def _remove_renamed(self, removed: Path) -> None:
        try:
            await self.read(self.disk.rmtree, removed)
        except OSError as error:
            _logger.error("%s cannot be removed: %s", removed, error)

    def place_of(self, path: Path) -> str:
        """Return the path of a file or directory within the volume, with slashes."""
        return path.relative_to(self.directory).as_posix()

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be written to the file system."""
        return self.disk.free_bytes(self.directory)

    @property
    def is_low_on_space(self) -> bool:
        """Whether new stores should be refused: fewer than FREE_BYTES_MIN bytes are free."""
        return self.free_bytes < FREE_BYTES_MIN

    async def close(self) -> None:
        """Sync everything, remove the journal, and release the lock.

        The stores must be closed before.
        """
        try:
            await self.committer.close()
        finally:
            self._let_go()

    def close_now(self) -> None:
        """Close the volume as `close` does, without an event loop. Blocks on the disk."""
        try:
            self.committer.close_now()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._lock.release()
