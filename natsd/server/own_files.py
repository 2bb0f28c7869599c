"""Protection of the server's files from other users, since the server may run as root.

- A file is opened for writing only if it belongs to the server's user or to root. A symbolic link,
  a hard link or a file that another user put in its place is refused. A symbolic link of the
  server's user or of root is followed: `-l /dev/stdout` is one.
- A directory that another user could have created or may write to is refused if it is the server's
  default, and causes a warning if the user configured it.
- A refusal is an `OSError` with a reason that reads well after the path.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

ROOT: Final = 0
PRIVATE_MODE: Final = 0o700
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def open_own(path: Path, flags: int, mode: int) -> int:
    """Open a file for writing and return its descriptor. Raises OSError.

    `flags` must not contain O_TRUNC: the file must not be truncated before its owner is checked.
    """
    assert not flags & os.O_TRUNC
    flags |= os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        if not _is_own(os.lstat(path)):
            raise _refusal(path, "is a symbolic link of another user") from None
        fd = os.open(path, flags, mode)
    try:
        _check_file(path, os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def write_own(path: Path, content: bytes, mode: int) -> None:
    """Replace the content of a small file. Raises OSError."""
    fd = open_own(path, os.O_WRONLY | os.O_CREAT, mode)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, content)
    finally:
        os.close(fd)


def make_private(directory: Path) -> None:
    """Create a directory that only this user may enter, or check an existing one.

    Raises OSError if other users can write to the existing directory or could have created it.
    """
    try:
        directory.mkdir(PRIVATE_MODE, parents=True)
    except FileExistsError:
        reason = _shared(os.lstat(directory))
        if reason:
            raise _refusal(directory, reason) from None


def refuse_foreign_link(path: Path) -> None:
    """Raise OSError if the path is a symbolic link of another user."""
    if path.is_symlink() and not _is_own(os.lstat(path)):
        raise _refusal(path, "is a symbolic link of another user")


def shared_reason(directory: Path) -> str:
    """Return why other users could put files into a directory; empty: they cannot.

    Raises OSError if the directory does not exist.
    """
    return _shared(directory.stat())


def _check_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        return  # a write to a terminal or pipe overwrites no data
    if not _is_own(status):
        raise _refusal(path, "belongs to another user")
    if status.st_nlink > 1:
        raise _refusal(path, "has a second name (a hard link)")


def _shared(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if not _is_own(status):
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & _OTHERS_MAY_WRITE:
        return "can be written to by other users"
    return ""


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), ROOT)


def _refusal(path: Path, reason: str) -> OSError:
    return OSError(errno.EPERM, reason, str(path))
