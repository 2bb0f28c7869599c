"""The one small interface between the store and the files.

Everything the store reads or writes passes through a `Disk`, so that a simulated one can lose
power, tear writes and fail calls (tests/store/faulty_disk.py). `RealDisk` is the system's own.

Promise
- Nothing is retried and nothing hidden: a write is whole or raises `ShortWrite`; a failed sync is
  an `OSError` and says nothing about what is on disk. Interrupted calls (EINTR) go on.
- A call returns when the kernel has it; only `fdatasync`, `fsync` and `sync_dir` put it on disk. A
  file is found after a power cut only once the directory that names it was synced too.
- Directories are made 0700 and files 0600 (nats-server 2.14 reference 11.1). A file that is a
  symbolic link is not opened: another user could have put it there.
- All calls may block, so none belongs on an event loop but for files that are known to be cached;
  they release the GIL and may come from any thread.
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
# What a file system answers that cannot reserve space: then nothing is reserved, or lost.
CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
# What a directory answers that is another user's, or on a file system that syncs no directories.
CANNOT_SYNC = CANNOT_ALLOCATE | {errno.EACCES, errno.EPERM, errno.EROFS}
DEPTH_MAX = 12  # of directories in a volume: links may lead in a circle
SIDE_BY_SIDE_MIN = 64  # directories; fewer are synced one after the other
SYNCS_AT_ONCE = 8
REMOVED_SUFFIX = ".removed"
OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
# The process or the system has no descriptor or no memory left: the disk is as it was.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN})


class ShortWrite(OSError):
    """The file took fewer bytes than it was given; what it took stays there. Counts as no space."""

    def __init__(self, path: Path, wanted: int, written: int) -> None:
        super().__init__(errno.ENOSPC, f"short write ({written} of {wanted} bytes)", str(path))
        self.wanted = wanted
        self.written = written


class UnsyncedRename(OSError):
    """A file was renamed, and it is not known whether the disk has its new name: after a power cut
    either of the two may stand there. Never counts as no space."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(errno.EIO, f"renamed, and the directory was not synced: {cause}")
        self.path = path
        self.was_tried = cause.errno not in EXHAUSTED  # else the sync may be tried again


class DirectoryLocked(StoreInUse):
    """Another process serves this directory; says which, in one line for the user."""

    def __init__(self, path: Path, holder_pid: int) -> None:
        holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(f"{path.parent} is in use by {holder} (it holds {path.name})")
        self.path = path
        self.holder_pid = holder_pid


class DiskFile(Protocol):
    """An open file. Offsets and sizes are bytes; errors are `OSError`s."""

    @property
    def path(self) -> Path: ...

    def pread(self, n: int, offset: int) -> bytes:
        """Up to `n` bytes; fewer only where the file ends."""

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write all of `data` and return its length, or raise (`ShortWrite`: some of it stayed)."""

    def fdatasync(self) -> None:
        """The bytes, and the size they need, are on disk. After an error nobody knows."""

    def fsync(self) -> None:
        """The same with all of the file's metadata."""

    def allocate(self, offset: int, length: int) -> None:
        """Reserve space, extending the file by zeros; nothing where that is not supported."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def fileno(self) -> int | None:
        """The descriptor, for those who call the kernel themselves; None where there is none."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock; it ends with `release` or with the process."""

    def release(self) -> None: ...


class CommitJob(Protocol):
    """Steps on files that one worker does in order, until one fails; see commit_pool.pyx."""

    @property
    def token(self) -> object: ...

    @property
    def error(self) -> OSError | None:
        """What the failed step raised, once the job is done."""

    @property
    def failed_sync(self) -> bool:
        """Whether that step should have put bytes on disk."""

    @property
    def failures(self) -> Sequence[tuple[int, OSError, bool]]:
        """The parts that failed: index from 0, error, whether a sync was what failed."""

    def begin_part(self) -> None:
        """The steps that follow fail alone: they end this part, and the next goes on."""

    def end_parts(self) -> None:
        """The steps that follow are done if all parts went well."""

    def allocate(self, file: DiskFile, offset: int, length: int) -> None: ...

    def write(self, file: DiskFile, data: Buffer, offset: int) -> None: ...

    def datasync(self, file: DiskFile) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def truncate(self, file: DiskFile, size: int) -> None: ...


class CommitWorkers(Protocol):
    """Threads that do jobs, side by side; all calls come from one thread."""

    @property
    def in_flight(self) -> int:
        """Jobs that were submitted and not yet taken."""

    def job(self, token: object = None) -> CommitJob:
        """An empty job."""

    def submit(self, job: Any) -> None:
        """Have the job done, a job of these workers."""

    def take_completed(self) -> Sequence[CommitJob]:
        """The jobs that are done, in the order in which they ended."""

    def wait(self, timeout_s: float = -1) -> None:
        """Sleep until a job is done; at once if none is out."""

    def watch(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[], object],
        reactor: Reactor | None = None,
    ) -> None:
        """Have the loop, or its reactor, call `callback()` whenever there are jobs to be taken."""

    def unwatch(self) -> None: ...

    def close(self) -> None:
        """End the threads once all jobs are done."""


class Disk(Protocol):
    """Files and directories by path; errors are `OSError`s."""

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> DiskFile:
        """Open a file; `create` makes it where it is missing, `exclusive` insists that it was."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target`, if any, at once; on disk after `sync_dir` of both directories."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, in the same file system, that is not taken."""

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None:
        """Make one directory whose parent exists."""

    def rmdir(self, path: Path) -> None:
        """Remove a directory that is empty."""

    def sync_dir(self, path: Path) -> None:
        """What was created, renamed and removed in this directory is on disk."""

    def listdir(self, path: Path) -> list[str]:
        """Names in this directory, sorted."""

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def rmtree(self, path: Path) -> None:
        """Remove a directory with all that is in it, or nothing if it is not there."""

    def lock(self, path: Path) -> Lock:
        """Hold `path` against all other processes, or raise `DirectoryLocked` at once."""

    def free_bytes(self, path: Path) -> int:
        """Bytes that this process may still write to the file system that holds `path`."""

    def commit_workers(self, threads: int) -> CommitWorkers:
        """Up to that many threads that write and sync."""


def is_out_of_space(error: BaseException) -> bool:
    """Whether more room on the disk would help."""
    return isinstance(error, OSError) and error.errno in OUT_OF_SPACE


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed later: room, a descriptor or memory was missing. Any other
    error means that the disk is broken. A failed sync is never passing, whatever its error."""
    if isinstance(error, OSError):
        return error.errno in OUT_OF_SPACE or error.errno in EXHAUSTED
    return isinstance(error, StoreFull | StoreUnavailable | MemoryError)


def below(directory: Path, paths: Iterable[Path]) -> list[Path]:
    """Those of the paths that are in the directory, at any depth.

    By their texts, which a Path keeps: there may be thousands, and the loop waits.
    """
    prefix = f"{directory}{os.sep}"
    return [path for path in paths if str(path).startswith(prefix)]


def make_directories(disk: Disk, path: Path) -> None:
    """Make `path` and its missing parents; each is on disk, named by a synced parent, on return."""
    missing = []
    while not disk.exists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            disk.mkdir(directory)
        try:
            disk.sync_dir(directory.parent)
        except OSError:  # or the next call would find it, and take it for one that is on disk
            with contextlib.suppress(OSError):
                disk.rmdir(directory)
            raise


def sync_names(disk: Disk, directory: Path) -> None:
    """Have every name in `directory`, and in those below and its parents, on disk: a process that
    was killed may have left some that it had not synced. What another user keeps there is left
    out. Blocks."""
    for parent in reversed(directory.parents):
        with _unless_not_ours():
            disk.sync_dir(parent)
    found = [directory]
    for each in found:  # which grows
        if len(each.parts) - len(directory.parts) < DEPTH_MAX:
            with _unless_not_ours():
                names = disk.listdir(each)
                found += [path for name in names if disk.is_directory(path := each / name)]
    if len(found) < SIDE_BY_SIDE_MIN:
        for each in found:
            _sync_ours(disk, each)
        return
    with ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="natsd-sync") as pool:
        for _ in pool.map(partial(_sync_ours, disk), found):  # raises what one of them raised
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
    """Rename, on disk on return. Raises UnsyncedRename if the name changed, and any other `OSError`
    if it did not."""
    disk.rename(source, target)
    try:
        for directory in {source.parent, target.parent}:
            disk.sync_dir(directory)
    except OSError as error:
        raise UnsyncedRename(target, error) from error


def rename_removed(disk: Disk, directory: Path) -> Path:
    """Give a directory that is to be removed another name, its own with REMOVED_SUFFIX: on return
    it is gone, also after a crash.

    Raises `OSError`: then it is there as before. After UnsyncedRename it may be gone after a power
    cut nevertheless: nothing that is to last may be written there any more.
    """
    disk.sync_dir(directory.parent)  # what keeps this from working shows before anything changed
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
    """Whether this is the name of a directory that was being removed: the rest of it goes too."""
    return REMOVED_SUFFIX in name


def _full_sync() -> Callable[[int], object]:
    """macOS's fsync leaves bytes in the drive's cache; F_FULLFSYNC does not."""
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
        data = os.pread(self._fd, n, offset)
        if len(data) == n:
            return data
        pieces = [data]
        while data and (missing := n - sum(map(len, pieces))):
            data = os.pread(self._fd, missing, offset + n - missing)
            pieces.append(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, offset: int) -> int:
        size = memoryview(data).nbytes
        written = os.pwrite(self._fd, data, offset)
        if written != size:
            raise ShortWrite(self.path, size, written)
        return written

    def fdatasync(self) -> None:
        _fdatasync(self._fd)

    def fsync(self) -> None:
        _fsync(self._fd)

    def allocate(self, offset: int, length: int) -> None:
        if sys.platform == "darwin":
            return
        try:
            os.posix_fallocate(self._fd, offset, length)
        except OSError as error:
            if error.errno not in CANNOT_ALLOCATE:
                raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class FileLock:
    """An advisory lock (flock) on a file that holds its owner's pid."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def release(self) -> None:
        """Let others in. The file stays: to remove it would race with who has just opened it."""
        self._file.close()


def lock_to_read(path: Path) -> FileLock:
    """Hold a lock file together with others who only read; who wants it alone is refused meanwhile.

    Not a byte is written, so a disk that cannot be written to will do. Raises DirectoryLocked while
    somebody has it alone, `OSError` where there is no such file.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", 0)
    _lock(file, fcntl.LOCK_SH, path)
    return FileLock(file)


def _lock(file: IO[bytes], how: int, path: Path) -> None:
    """Raises DirectoryLocked, and closes the file, where somebody has it."""
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
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return RealFile(path, os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE))

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path, DIRECTORY_MODE)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _fsync(fd)
        finally:
            os.close(fd)

    def listdir(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def rmtree(self, path: Path) -> None:
        if self.exists(path):
            shutil.rmtree(path)

    def lock(self, path: Path) -> FileLock:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.fdopen(os.open(path, flags, FILE_MODE), "r+b", 0)
        _lock(file, fcntl.LOCK_EX, path)
        file.truncate(0)
        file.write(b"%d" % os.getpid())
        return FileLock(file)

    def free_bytes(self, path: Path) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def commit_workers(self, threads: int) -> CommitWorkers:
        from natsd.store.commit_pool import CommitPool  # it knows this module's errors

        return CommitPool(threads)
