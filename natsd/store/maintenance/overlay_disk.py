"""A disk on top of another disk: writes stay in memory, and the disk below is only read.

With it a server's work at the opening of a volume, replaying the journal and recovering the stores,
can be done to see its result, while not a byte of the volume changes.

Promise
- Reads return the bytes written here, or else those of the disk below. No call writes below.
- A file is copied to memory when it is first opened for writing, so memory grows with the files
  written to: in a volume, the last block of each stream, and consumers' files.
- One thread at a time may write; syncs do nothing.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from natsd.store.disk.disk import Buffer, CommitWorkers, Disk, DiskFile, Lock
from natsd.store.disk.holes import read_all

GONE: Final = None


class OverlayFile:
    """A file in memory; see DiskFile."""

    def __init__(self, path: Path, data: bytearray) -> None:
        self.path = path
        self._data = data

    def pread(self, n: int, offset: int) -> bytes:
        """Return up to `n` bytes from `offset`; fewer only at the end of the file."""
        return bytes(self._data[offset : offset + n])

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write all of `data` at `offset` and return its length in bytes."""
        view = memoryview(data).cast("B")
        self._extend(offset + view.nbytes)
        self._data[offset : offset + view.nbytes] = view
        return view.nbytes

    def _extend(self, size: int) -> None:
        self._data.extend(bytes(max(0, size - len(self._data))))

    def fdatasync(self) -> None:
        """Do nothing."""
        return

    def fsync(self) -> None:
        """Do nothing."""
        return

    def allocate(self, offset: int, length: int) -> None:
        """Extend the file by zeros to `offset + length` bytes, if it is shorter."""
        self._extend(offset + length)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it by zeros, to `size` bytes."""
        self._extend(size)
        del self._data[size:]

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return len(self._data)

    def fileno(self) -> None:
        """Return None: the file has no descriptor."""
        return None

    def close(self) -> None:
        """Do nothing."""
        return


class OverlayDisk:
    """The disk on top of `below`, which must not change meanwhile: hold its lock."""

    def __init__(self, below: Disk) -> None:
        self.below = below
        self._files: dict[Path, bytearray | None] = {}  # contents by path; GONE: removed here
        self._directories: set[Path] = set()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> DiskFile:
        """Open a file; one opened for writing is copied to memory first."""
        if not self.exists(path):
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._files[path] = bytearray()
        elif create and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if path not in self._files and not write:
            return self.below.open(path, write=False)
        return OverlayFile(path, self._copied(path))

    def _copied(self, path: Path) -> bytearray:
        data = self._files.get(path)
        if data is None:
            file = self.below.open(path, write=False)
            try:
                data = self._files[path] = bytearray(read_all(file).data)
            finally:
                file.close()
        return data

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source`, in memory. Raises NotImplementedError for a directory."""
        if self.is_directory(source):
            raise NotImplementedError("no store renames a directory")
        self._files[target] = self._copied(source)
        self._files[source] = GONE

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, in memory."""
        self._files[target] = self._copied(source)

    def unlink(self, path: Path) -> None:
        """Hide the file. Raises FileNotFoundError."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._files[path] = GONE

    def mkdir(self, path: Path) -> None:
        """Make a directory, in memory."""
        self._directories.add(path)

    def rmdir(self, path: Path) -> None:
        """Remove a directory that was made here."""
        self._directories.discard(path)

    def sync_dir(self, path: Path) -> None:
        """Do nothing."""
        return

    def listdir(self, path: Path) -> list[str]:
        """Return the names in the directory, sorted."""
        below = self.below.listdir(path) if self.below.exists(path) else []
        names = {name for name in below if self._files.get(path / name, b"") is not GONE}
        return sorted(names.union(self._names_here(path)))

    def subdirectories(self, path: Path) -> list[str]:
        """Return the names of all directories in this one, here or below, sorted."""
        return [name for name in self.listdir(path) if self.is_directory(path / name)]

    def _names_here(self, directory: Path) -> Iterator[str]:
        for path, data in self._files.items():
            if path.parent == directory and data is not GONE:
                yield path.name
        for path in self._directories:
            if path.parent == directory:
                yield path.name

    def exists(self, path: Path) -> bool:
        """Return whether the file or directory exists, here or below."""
        if path in self._files:
            return self._files[path] is not GONE
        return path in self._directories or self.below.exists(path)

    def is_directory(self, path: Path) -> bool:
        """Return whether the path is a directory, here or below."""
        return path in self._directories or self.below.is_directory(path)

    def rmtree(self, path: Path) -> None:
        """Hide all files in the directory, at any depth."""
        for name in self.listdir(path):
            if self.is_directory(path / name):
                self.rmtree(path / name)
            else:
                self.unlink(path / name)
        self._directories.discard(path)

    def lock(self, path: Path) -> Lock:
        """Lock `path` on the disk below. Raises `DirectoryLocked`."""
        return self.below.lock(path)

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes of the disk below."""
        return self.below.free_bytes(path)

    def commit_workers(self, threads: int) -> CommitWorkers:
        """Raise NotImplementedError: nothing is committed to an overlay."""
        raise NotImplementedError("nothing is committed to an overlay")
