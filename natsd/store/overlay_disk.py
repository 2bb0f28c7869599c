"""A disk above another one: what is written stays in memory, and the disk below is only read.

So what a server would do when it opens a volume, replaying its journal and recovering its stores,
can be done to see what it would find, and not a byte of the volume changes.

Promise
- Reads give what was written here, or else what is below. No call writes below.
- A file is copied to memory when it is first opened for writing, so memory grows with what is
  written to: of a volume, the last block of each stream, and consumers' files.
- One thread at a time may write; syncs do nothing.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from natsd.store.disk import Buffer, CommitWorkers, Disk, DiskFile, Lock
from natsd.store.holes import read_all

GONE: Final = None


class OverlayFile:
    """A file in memory."""

    def __init__(self, path: Path, data: bytearray) -> None:
        self.path = path
        self._data = data

    def pread(self, n: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + n])

    def pwrite(self, data: Buffer, offset: int) -> int:
        view = memoryview(data).cast("B")
        self._extend(offset + view.nbytes)
        self._data[offset : offset + view.nbytes] = view
        return view.nbytes

    def _extend(self, size: int) -> None:
        self._data.extend(bytes(max(0, size - len(self._data))))

    def fdatasync(self) -> None:
        return

    def fsync(self) -> None:
        return

    def allocate(self, offset: int, length: int) -> None:
        self._extend(offset + length)

    def truncate(self, size: int) -> None:
        self._extend(size)
        del self._data[size:]

    def size(self) -> int:
        return len(self._data)

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        return


class OverlayDisk:
    """See the top of the file. `below` must not change meanwhile: hold its lock."""

    def __init__(self, below: Disk) -> None:
        self.below = below
        self._files: dict[Path, bytearray | None] = {}  # GONE: removed here
        self._directories: set[Path] = set()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> DiskFile:
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
        if self.is_directory(source):
            raise NotImplementedError("no store renames a directory")
        self._files[target] = self._copied(source)
        self._files[source] = GONE

    def link(self, source: Path, target: Path) -> None:
        self._files[target] = self._copied(source)

    def unlink(self, path: Path) -> None:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._files[path] = GONE

    def mkdir(self, path: Path) -> None:
        self._directories.add(path)

    def rmdir(self, path: Path) -> None:
        self._directories.discard(path)

    def sync_dir(self, path: Path) -> None:
        return

    def listdir(self, path: Path) -> list[str]:
        below = self.below.listdir(path) if self.below.exists(path) else []
        names = {name for name in below if self._files.get(path / name, b"") is not GONE}
        return sorted(names.union(self._names_here(path)))

    def _names_here(self, directory: Path) -> Iterator[str]:
        for path, data in self._files.items():
            if path.parent == directory and data is not GONE:
                yield path.name
        for path in self._directories:
            if path.parent == directory:
                yield path.name

    def exists(self, path: Path) -> bool:
        if path in self._files:
            return self._files[path] is not GONE
        return path in self._directories or self.below.exists(path)

    def is_directory(self, path: Path) -> bool:
        return path in self._directories or self.below.is_directory(path)

    def rmtree(self, path: Path) -> None:
        for name in self.listdir(path):
            if self.is_directory(path / name):
                self.rmtree(path / name)
            else:
                self.unlink(path / name)
        self._directories.discard(path)

    def lock(self, path: Path) -> Lock:
        return self.below.lock(path)

    def free_bytes(self, path: Path) -> int:
        return self.below.free_bytes(path)

    def commit_workers(self, threads: int) -> CommitWorkers:
        raise NotImplementedError("nothing is committed to an overlay")
