"""The operating system's files, as a `Disk`."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from natsd.store.disk.commit_pool import CommitPool
from natsd.store.disk.disk import (
    CANNOT_ALLOCATE,
    DIRECTORY_MODE,
    FILE_MODE,
    Buffer,
    CommitWorkers,
    DirectoryLocked,
    ShortWrite,
)


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

    def subdirectories(self, path: Path) -> list[str]:
        """Return the directories that `os.scandir` finds, or links to some."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

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
        return CommitPool(threads)
