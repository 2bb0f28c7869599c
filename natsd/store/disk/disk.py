"""The interface between the store and the files.

Everything the store reads or writes passes through a `Disk`, so that a simulated one can lose
power, tear writes and fail calls (tests/store/faulty_disk.py). `RealDisk` (real_disk.py) is the
system's own.

Promise
- No call is retried and no error hidden: a write is complete or raises `ShortWrite`. A failed sync
  raises `OSError` and says nothing about what is on disk. Interrupted calls (EINTR) are continued.
- A call returns when the kernel has the bytes; only `fdatasync`, `fsync` and `sync_dir` put them on
  disk. A new file can be found after a power cut only once its directory was synced too.
- Directories are created with mode 0700 and files with 0600 (nats-server's `defaultDirPerms` and
  `defaultFilePerms`). A file that is a symbolic link is not opened: another user could have made
  it.
- All calls may block, so none belongs on an event loop, except for files that are known to be in
  the page cache. The calls release the GIL and may come from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from natsd.store.errors import StoreFull, StoreInUse, StoreUnavailable

if TYPE_CHECKING:
    from natsd.core.network import Reactor

Buffer: TypeAlias = bytes | bytearray | memoryview

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
# Errors of file systems that cannot reserve space: nothing is reserved then, and nothing is lost.
CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
# Errors of a directory that belongs to another user, or whose file system syncs no directories.
CANNOT_SYNC = CANNOT_ALLOCATE | {errno.EACCES, errno.EPERM, errno.EROFS}
DEPTH_MAX = 12  # depth of directories in a volume, since links may lead in a circle
SIDE_BY_SIDE_MIN = 64  # number of directories from which on they are synced in several threads
SYNCS_AT_ONCE = 8
SYNCS_PER_JOB = 64
REMOVED_SUFFIX = ".removed"
OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
# The process or the system has no descriptor or no memory left; nothing on the disk has changed.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})


class ShortWrite(OSError):
    """The file took fewer bytes than it was given, and keeps them; the error counts as no space."""

    def __init__(self, path: Path, wanted: int, written: int) -> None:
        super().__init__(errno.ENOSPC, f"short write ({written} of {wanted} bytes)", str(path))
        self.wanted = wanted
        self.written = written


class UnsyncedRename(OSError):
    """A file was renamed, and its new name may not be on disk.

    After a power cut either file may stand under the name. The error never counts as no space.
    """

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(errno.EIO, f"renamed, and the directory was not synced: {cause}")
        self.path = path
        # False: the sync was never begun, since a descriptor or memory was lacking; try it again.
        self.was_tried = cause.errno not in EXHAUSTED


class DirectoryLocked(StoreInUse):
    """Another process uses this directory; the text names the process in one line for the user."""

    def __init__(self, path: Path, holder_pid: int) -> None:
        holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(f"{path.parent} is in use by {holder} (it holds {path.name})")
        self.path = path
        self.holder_pid = holder_pid


class DiskFile(Protocol):
    """An open file; offsets and sizes are in bytes, and errors are `OSError`s."""

    @property
    def path(self) -> Path:
        """Path under which the file was opened."""

    def pread(self, n: int, offset: int) -> bytes:
        """Return up to `n` bytes from `offset`; fewer only where the file ends."""

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write all of `data` and return its length in bytes.

        Raises ShortWrite if only a part was written.
        """

    def fdatasync(self) -> None:
        """Put the file's bytes and its size on disk; after an error their state is unknown."""

    def fsync(self) -> None:
        """Put the file's bytes and all of its metadata on disk."""

    def allocate(self, offset: int, length: int) -> None:
        """Reserve space and extend the file by zeros; do nothing where that is not supported."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def fileno(self) -> int | None:
        """Return the descriptor, for callers that use the kernel directly; None: none."""

    def close(self) -> None:
        """Close the file."""


class Lock(Protocol):
    """A held lock; it ends with `release` or with the process."""

    def release(self) -> None:
        """Let other processes take the lock."""


class CommitJob(Protocol):
    """Steps on files that one worker does in order, until one fails; see commit_pool.pyx."""

    @property
    def token(self) -> object:
        """The object that was given to `CommitWorkers.job`."""

    @property
    def error(self) -> OSError | None:
        """The error of the failed step, once the job is done; None if none failed."""

    @property
    def failed_sync(self) -> bool:
        """Whether the failed step was a sync."""

    @property
    def failures(self) -> Sequence[tuple[int, OSError, bool]]:
        """The failed parts: index from 0, error, whether the failed step was a sync."""

    def begin_part(self) -> None:
        """Begin a part; a step that fails ends only its part, and the next part is still done."""

    def end_parts(self) -> None:
        """End the parts; the steps that follow are done only if no part failed."""

    def allocate(self, file: DiskFile, offset: int, length: int) -> None:
        """Add a step that reserves space (see `DiskFile.allocate`)."""

    def write(self, file: DiskFile, data: Buffer, offset: int) -> None:
        """Add a step that writes `data` at `offset`."""

    def write_zeros(self, file: DiskFile, offset: int, length: int) -> None:
        """Add a step that writes so many zeros."""

    def datasync(self, file: DiskFile) -> None:
        """Add a step that syncs the file's bytes."""

    def sync_directory(self, path: Path) -> None:
        """Add a step that syncs a directory."""

    def truncate(self, file: DiskFile, size: int) -> None:
        """Add a step that cuts the file to `size` bytes."""

    def make_directory(self, path: Path) -> None:
        """Add a step that creates one directory, whose parent exists."""

    def put_file(self, path: Path, data: Buffer) -> None:
        """Add a step that creates the file, or replaces its content, and syncs it."""

    def rename(self, source: Path, target: Path) -> None:
        """Add a step that renames a file, and replaces `target`, if there is one."""


class CommitWorkers(Protocol):
    """Threads that do jobs in parallel; all calls come from one thread."""

    @property
    def in_flight(self) -> int:
        """Number of jobs that were submitted and not yet taken back."""

    def job(self, token: object = None) -> CommitJob:
        """Return an empty job."""

    def submit(self, job: Any) -> None:
        """Start a job that these workers have made."""

    def take_completed(self) -> Sequence[CommitJob]:
        """Return the jobs that are done, in the order in which they ended."""

    def wait(self, timeout_s: float = -1) -> None:
        """Block until a job is done or the time is over; return at once if no job is out.

        `timeout_s` is in seconds; a negative one means no limit.
        """

    def watch(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[], object],
        reactor: Reactor | None = None,
    ) -> None:
        """Have the loop, or its reactor, call `callback()` whenever there are completed jobs."""

    def unwatch(self) -> None:
        """End `watch`."""

    def close(self) -> None:
        """End the threads once all jobs are done."""


class Disk(Protocol):
    """Files and directories by path; errors are `OSError`s."""

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> DiskFile:
        """Open a file; `create` makes a missing one, and `exclusive` fails if it exists."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target`, if any, in one step; durable after `sync_dir` of both directories."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must be free, in the same file system."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""

    def mkdir(self, path: Path) -> None:
        """Create one directory, whose parent exists."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: Path) -> None:
        """Put on disk all names that were created, renamed or removed in this directory."""

    def listdir(self, path: Path) -> list[str]:
        """Return the names in this directory, sorted."""

    def subdirectories(self, path: Path) -> list[str]:
        """Return the names of the directories in this directory, sorted."""

    def exists(self, path: Path) -> bool:
        """Return whether the path exists; a symbolic link counts even if its target is missing."""

    def is_directory(self, path: Path) -> bool:
        """Return whether the path is a directory."""

    def rmtree(self, path: Path) -> None:
        """Remove a directory with all of its contents; do nothing if it does not exist."""

    def lock(self, path: Path) -> Lock:
        """Lock `path` against all other processes, or raise `DirectoryLocked` at once."""

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that this process may still write to the file system of `path`."""

    def commit_workers(self, threads: int) -> CommitWorkers:
        """Return up to `threads` threads that write and sync."""


def is_out_of_space(error: BaseException) -> bool:
    """Return whether the error says that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in OUT_OF_SPACE


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed later.

    So it may if space, a descriptor or memory was lacking. Any other error means that the disk is
    broken. A failed sync never passes, whatever its error: callers must check that themselves.
    """
    if isinstance(error, OSError):
        return error.errno in OUT_OF_SPACE or error.errno in EXHAUSTED
    return isinstance(error, StoreFull | StoreUnavailable | MemoryError)


def below(directory: Path, paths: Iterable[Path]) -> list[Path]:
    """Return those of the paths that are in the directory, at any depth.

    The paths are compared as text, which a Path caches: there may be thousands, and the loop waits.
    """
    prefix = f"{directory}{os.sep}"
    return [path for path in paths if str(path).startswith(prefix)]


def make_directories(disk: Disk, path: Path) -> None:
    """Make `path` and its missing parents; on return each of them is on disk. Blocks."""
    missing = []
    while not disk.exists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            disk.mkdir(directory)
        try:
            disk.sync_dir(directory.parent)
        except OSError:  # the next call must not find the directory and believe it to be on disk
            with contextlib.suppress(OSError):
                disk.rmdir(directory)
            raise


def sync_names(disk: Disk, directory: Path) -> None:
    """Sync `directory`, all directories below it and all of its parents. Blocks.

    A process that was killed may have left names that it had not synced. Directories of another
    user are skipped.
    """
    for parent in reversed(directory.parents):
        with _unless_not_ours():
            disk.sync_dir(parent)
    found = [directory]
    for each in found:  # the loop appends to this list
        if len(each.parts) - len(directory.parts) < DEPTH_MAX:
            with _unless_not_ours():
                found += [each / name for name in disk.subdirectories(each)]
    if len(found) >= SIDE_BY_SIDE_MIN:
        _sync_side_by_side(disk, found)
        return
    for each in found:
        with _unless_not_ours():
            disk.sync_dir(each)


def _sync_side_by_side(disk: Disk, directories: Sequence[Path]) -> None:
    """Sync many directories in several threads, without the GIL."""
    workers, failures = disk.commit_workers(SYNCS_AT_ONCE), list[OSError]()
    try:
        for start in range(0, len(directories), SYNCS_PER_JOB):
            job = workers.job()
            for each in directories[start : start + SYNCS_PER_JOB]:
                job.begin_part()
                job.sync_directory(each)
            workers.submit(job)
        while workers.in_flight:
            workers.wait()
            for job in workers.take_completed():
                failures += [error for _, error, _ in job.failures]
    finally:
        workers.close()
    for failure in failures:
        if failure.errno not in CANNOT_SYNC:
            raise failure


@contextlib.contextmanager
def _unless_not_ours() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise


def rename_synced(disk: Disk, source: Path, target: Path) -> None:
    """Rename a file; the new name is on disk on return.

    Raises UnsyncedRename if the name changed but may not be on disk, and any other `OSError` if the
    name did not change. Blocks.
    """
    disk.rename(source, target)
    try:
        for directory in {source.parent, target.parent}:
            disk.sync_dir(directory)
    except OSError as error:
        raise UnsyncedRename(target, error) from error


def rename_removed(disk: Disk, directory: Path) -> Path:
    """Rename a directory that is to be removed; return its new path. Blocks.

    The new name is the old one with REMOVED_SUFFIX. On return the directory is gone under its old
    name, also after a crash. If this raises `OSError`, the directory has its old name. After
    UnsyncedRename it may nevertheless be gone after a power cut, so write nothing there that must
    last.
    """
    disk.sync_dir(directory.parent)  # if the directory cannot be synced, fail before any change
    target, number = directory.with_name(directory.name + REMOVED_SUFFIX), 0
    while disk.exists(target):
        number += 1
        target = directory.with_name(f"{directory.name}{REMOVED_SUFFIX}.{number}")
    try:
        rename_synced(disk, directory, target)
    except UnsyncedRename as error:
        rename_synced(disk, target, directory)
        raise OSError(errno.EIO, str(error), str(directory)) from error
    return target


def is_removed(name: str) -> bool:
    """Return whether this is the name of a directory whose removal has begun and must go on."""
    return REMOVED_SUFFIX in name
