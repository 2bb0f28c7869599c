"""Reading a file around the bytes that the disk cannot return.

    pages      │ 0 │ 1 │ 2 unreadable │ 3 │      one read of everything fails with EIO,
    result     │ bytes │ zeros        │ … │      so each page is read alone; page 2 is a hole

Promise
- Only errors that say that bytes on the medium are unreadable (`UNREADABLE`) make holes. Any other
  error, for example for lack of memory, is raised: the same read may succeed later.
- A hole is always whole pages, since systems read whole pages; so a hole may end behind the file.
- At most `HOLES_MAX` pages of a file are left out. If more cannot be read, the disk is gone, and
  reading every page could take hours; then the error is raised.
- The caller treats a hole as damage, never as the end of the file's data.
"""

import errno
import os
from dataclasses import dataclass
from typing import Final

from natsd.store.disk.disk import DiskFile

PAGE_BYTES: Final = 4096
HOLES_MAX: Final = 256
AGAIN_BYTES: Final = 1 << 20
# Errors for bytes that the medium cannot return, or that fail the file system's checksums.
UNREADABLE: Final = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EILSEQ", "ENODATA", "EUCLEAN", "EREMOTEIO")
    if hasattr(errno, name)
)


@dataclass(frozen=True, slots=True)
class Contents:
    """A file's bytes from its start, with zeros in its `holes`, which are offsets of pages."""

    data: bytes
    holes: tuple[int, ...] = ()

    @property
    def holes_end(self) -> int:
        """Offset where the last hole ends; 0 if there is none."""
        return self.holes[-1] + PAGE_BYTES if self.holes else 0


def is_unreadable(error: OSError) -> bool:
    """Return whether the error says that bytes on the medium cannot be read."""
    return error.errno in UNREADABLE


def read_around(file: DiskFile, size: int) -> Contents:
    """Read the first `size` bytes, or fewer if the file ends before, with zeros for holes.

    Blocks on the disk. Raises `OSError` if more than HOLES_MAX pages are unreadable, or for another
    reason than the medium.
    """
    try:
        return Contents(file.pread(size, 0))
    except OSError as error:
        if not is_unreadable(error):
            raise
    pages: list[bytes] = []
    holes: list[int] = []
    end = min(size, file.size())
    for at in range(0, end, PAGE_BYTES):
        length = min(PAGE_BYTES, end - at)
        try:
            pages.append(file.pread(length, at))
        except OSError as error:
            if not is_unreadable(error) or len(holes) == HOLES_MAX:
                raise
            holes.append(at)
            pages.append(bytes(length))
    return Contents(b"".join(pages), tuple(holes))


def read_from_medium(file: DiskFile, size: int) -> Contents:
    """Read as `read_around` does, but not from the page cache, and leave nothing in it.

    Bytes that are not on the medium yet still come from the page cache.
    """
    descriptor = file.fileno()
    if descriptor is None or not hasattr(os, "posix_fadvise"):
        return read_around(file, size)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        return read_around(file, size)
    finally:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(file: DiskFile) -> Contents:
    """Read a whole file as `read_around` does. Blocks on the disk; raises `OSError`."""
    return read_around(file, file.size())


def write_again(file: DiskFile, start: int, end: int, *, unit: int = AGAIN_BYTES) -> None:
    """Write the bytes from `start` to `end` once more, so that the next sync puts them on disk.

    After a sync that failed, perhaps in an earlier process, the page cache still shows bytes that
    are not on disk, and no later sync writes them. Unreadable bytes stay as they are. Blocks on the
    disk.
    """
    for at in range(start, end, unit):
        size = min(unit, end - at)
        try:
            file.pwrite(file.pread(size, at), at)
        except OSError as error:
            if not is_unreadable(error):
                raise
            if unit > PAGE_BYTES:
                write_again(file, at, at + size, unit=PAGE_BYTES)
