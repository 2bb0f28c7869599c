"""Miniature stores: a file of fixed-size numbered pieces that a committer commits."""

import struct
from pathlib import Path

from natsd.store.commit.commits import CommitSource
from natsd.store.commit.committer import Committer
from natsd.store.disk.disk import Disk
from natsd.store.errors import StoreError, StoreFull
from natsd.store.wal.entries import Extent, grown_allocation

PIECE = struct.Struct("<IIQ")  # source + 1, number, a value that depends on both
BLOCK_BYTES_MAX = 1 << 20


def piece(source: int, number: int) -> bytes:
    """Return the bytes at offset `number * PIECE.size`; they are never all zeros."""
    return PIECE.pack(source + 1, number, (source + 1) * 1_000_003 + number)


class Pieces(CommitSource):
    """A commit source that appends pieces to its file.

    According to the committer, `acknowledged` pieces are on disk.
    """

    def __init__(self, disk: Disk, path: Path, source: int, count: int = 0) -> None:
        is_new = not disk.exists(path)
        self.file = disk.open(path, create=True)
        self.source = source
        self.appended = self.taken = self.written = self.acknowledged = count
        self.errors: list[StoreError] = []
        self._ends: list[int] = []  # number of written pieces after each commit
        self.has_space = True
        self._new_in = path.parent if is_new else None
        self._allocated = 0

    def append(self, count: int = 1) -> None:
        """Append `count` pieces, which wait for a commit."""
        self.appended += count

    def take_extent(self) -> Extent | None:
        """Return an extent with all pieces that wait, or None."""
        if self.appended == self.written:
            return None
        self.taken = self.appended
        data = b"".join(piece(self.source, n) for n in range(self.written, self.taken))
        end = self.taken * PIECE.size
        allocate_to = 0
        if end > self._allocated:
            allocate_to = self._allocated = grown_allocation(end, BLOCK_BYTES_MAX)
        return Extent(self.file, self.written * PIECE.size, data, allocate_to, self._new_in)

    def committed(self) -> None:
        """Note that the extent is written."""
        assert self.taken > self.written
        self.written = self.taken
        self._ends.append(self.written)
        self._new_in = None

    def on_disk(self, writes: int) -> None:
        """Note that the pieces of the first `writes` extents are on disk."""
        self.acknowledged = self._ends[writes - 1]

    def failed(self, error: StoreError) -> None:
        """Drop the pieces that wait; after StoreFull the source has no space."""
        self.errors.append(error)
        self.appended = self.taken = self.written
        self._allocated = 0
        self.has_space = not isinstance(error, StoreFull)

    def resumed(self) -> None:
        """Note that there is space again."""
        self.has_space = True


def open_pieces(
    committer: Committer, disk: Disk, directory: Path, count: int, written: int = 0
) -> list[Pieces]:
    """Open `count` sources with `written` pieces each, and attach them to the committer."""
    found = [Pieces(disk, directory / f"{i:04}", i, written) for i in range(count)]
    for source in found:
        committer.attach(source)
    return found


def count_whole(disk: Disk, directory: Path, source: int) -> int:
    """Return how many pieces in a row, from the first one on, the file holds after a crash."""
    path = directory / f"{source:04}"
    if not disk.exists(path):
        return 0
    file = disk.open(path, write=False)
    data = file.pread(file.size(), 0)
    file.close()
    count = 0
    while data[count * PIECE.size : (count + 1) * PIECE.size] == piece(source, count):
        count += 1
    return count
