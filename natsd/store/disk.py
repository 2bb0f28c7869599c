"""The interface between the store and the files.

Everything the store reads or writes passes through a `Disk`, so that a simulated one can lose
power, tear writes and fail calls (tests/store/faulty_disk.py). `RealDisk` is the system's own.

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
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias

from natsd.store.errors import StoreFull, StoreInUse, StoreUnavailable

if TYPE_CHECKING:
    from natsd.core.reactor import Reactor

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

    def datasync(self, file: DiskFile) -> None:
        """Add a step that syncs the file's bytes."""

    def sync_directory(self, path: Path) -> None:
        """Add a step that syncs a directory."""

    def truncate(self, file: DiskFile, size: int) -> None:
        """Add a step that cuts the file to `size` bytes."""


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


def is_passing(error: BaseException) -> bool:
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
                names = disk.listdir(each)
                found += [path for name in names if disk.is_directory(path := each / name)]
    if len(found) < SIDE_BY_SIDE_MIN:
        for each in found:
            _sync_ours(disk, each)
        return
    with ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="natsd-sync") as pool:
        for _ in pool.map(partial(_sync_ours, disk), found):  # raises the first error
            pass


def _sync_ours(disk: Disk, directory: Path) -> None:
    with _unless_not_ours():
        disk.sync_dir(directory)


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


def _full_sync() -> Callable[[int], object]:
    """Return the system's full sync.

    On macOS fsync leaves bytes in the drive's cache, and only F_FULLFSYNC writes them.
    """
    if sys.platform == "darwin":
        return lambda fd: fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    return os.fsync


_fsync = _full_sync()
_fdatasync: Callable[[int], object] = getattr(os, "fdatasync", _fsync)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def __repr__(self) -> str:
        return f"RealFile({str(self.path)!r}, fd={self._fd})"

    def pread(self, n: int, offset: int) -> bytes:
        """Read with `pread`, repeated until `n` bytes came or the file ends."""
        data = os.pread(self._fd, n, offset)
        if len(data) == n:
            return data
        pieces = [data]
        while data and (missing := n - sum(map(len, pieces))):
            data = os.pread(self._fd, missing, offset + n - missing)
            pieces.append(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write with one `pwrite`."""
        size = memoryview(data).nbytes
        written = os.pwrite(self._fd, data, offset)
        if written != size:
            raise ShortWrite(self.path, size, written)
        return written

    def fdatasync(self) -> None:
        """Call fdatasync; where the system has none, a full sync."""
        _fdatasync(self._fd)

    def fsync(self) -> None:
        """Call fsync; on macOS F_FULLFSYNC."""
        _fsync(self._fd)

    def allocate(self, offset: int, length: int) -> None:
        """Reserve space with `posix_fallocate`; do nothing on macOS."""
        if sys.platform == "darwin":
            return
        try:
            os.posix_fallocate(self._fd, offset, length)
        except OSError as error:
            if error.errno not in CANNOT_ALLOCATE:
                raise

    def truncate(self, size: int) -> None:
        """Call `ftruncate`."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """Return the size from `fstat`."""
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class FileLock:
    """An advisory lock (flock) on a file that holds its owner's process id."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def release(self) -> None:
        """Release the lock and leave the file.

        Removing the file would race with a process that has just opened it.
        """
        self._file.close()


def lock_to_read(path: Path) -> FileLock:
    """Lock a lock file together with other readers; a process that wants it alone is refused.

    No byte is written, so this works on a disk that cannot be written to. Raises DirectoryLocked
    while a process holds the lock alone, and `OSError` if the file does not exist.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", 0)
    _lock(file, fcntl.LOCK_SH, path)
    return FileLock(file)


def _lock(file: IO[bytes], how: int, path: Path) -> None:
    """Lock the file; if another process holds it, close the file and raise DirectoryLocked."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        text = file.read(20)
        file.close()
        raise DirectoryLocked(path, int(text) if text.isdigit() else 0) from None
    except OSError:
        file.close()
        raise


class RealDisk:
    """The operating system's files."""

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> RealFile:
        """Open a file with mode 0600; a symbolic link is refused."""
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return RealFile(path, os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))

    def rename(self, source: Path, target: Path) -> None:
        """Call `os.replace`."""
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Call `os.link`."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Call `os.unlink`."""
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        """Create a directory with mode 0700."""
        os.mkdir(path, DIRECTORY_MODE)

    def rmdir(self, path: Path) -> None:
        """Call `os.rmdir`."""
        os.rmdir(path)

    def sync_dir(self, path: Path) -> None:
        """Open the directory and sync it."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _fsync(fd)
        finally:
            os.close(fd)

    def listdir(self, path: Path) -> list[str]:
        """Return the sorted result of `os.listdir`."""
        return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        """Return whether the path exists; symbolic links are not followed."""
        return os.path.lexists(path)

    def is_directory(self, path: Path) -> bool:
        """Return whether the path is a directory, or a link to one."""
        return path.is_dir()

    def rmtree(self, path: Path) -> None:
        """Remove the directory with `shutil.rmtree`, if it exists."""
        if self.exists(path):
            shutil.rmtree(path)

    def lock(self, path: Path) -> FileLock:
        """Lock the file with flock and write the process id into it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.fdopen(os.open(path, flags, FILE_MODE), "r+b", 0)
        _lock(file, fcntl.LOCK_EX, path)
        file.truncate(0)
        file.write(b"%d" % os.getpid())
        return FileLock(file)

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes that unprivileged users may use (`statvfs`)."""
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def commit_workers(self, threads: int) -> CommitWorkers:
        """Return a CommitPool (commit_pool.pyx) of up to `threads` threads."""
        from natsd.store.commit_pool import CommitPool  # it imports this module

        return CommitPool(threads)
