"""One block together with its file, for use without a stream's log.

Promise
- Flushed bytes are on disk when `flush` returns. After a crash, the bytes of an unfinished flush
  are either complete or gone.
- A removal is a record of its own (a tombstone) that the next flush writes. Only
  `delete(secure_erase=True)` overwrites bytes, after the tombstone is on disk.
- After a write that finds no space, the file is cut back to the last commit, and appends and
  removals since then are undone. After any other failed write or sync nothing is written any more.
- All calls block on the disk; none belongs on an event loop. In a FileStore the log, the committer
  and the volume do the work of this class, for many blocks at once.

Source: MsgBlock of the .NET port of nats-server; this class has all of its operations.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from natsd.store.block import MsgBlock
from natsd.store.disk import Disk, DiskFile, is_passing, make_directories
from natsd.store.errors import (
    BlockSealed,
    BlockUnreadable,
    MessageDamaged,
    StoreClosed,
    StoreFull,
    StoreReadOnly,
)
from natsd.store.holes import read_all
from natsd.store.record import HEADER_BYTES, OVERHEAD_BYTES, StoredMessage, decode, erased
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet

Noise = Callable[[int], bytes]


def block_path(directory: Path, block_id: int) -> Path:
    """Return the path of a block's file, for example `000001.blk` in `directory`."""
    return directory / f"{block_id:06d}.blk"


class BlockFile(MsgBlock):
    """A block that reads and writes its own file; made by `create` or `recover`."""

    file: DiskFile | None
    disk: Disk
    path: Path
    _removed: SequenceSet  # sequences that were removed since the last commit
    _read_only: bool  # a write or a sync failed: nothing is written any more
    _unnamed: bool  # the file is new, and its directory is not synced yet

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: Path,
        block_id: int,
        max_bytes: int,
        first_sequence: int = 1,
        *,
        seed: int,
        created_ns: int = 0,
    ) -> Self:
        """Create an empty block and its file.

        `seed` is a random 64-bit number; `created_ns` is in nanoseconds since 1970. Raises
        FileExistsError if the file exists.
        """
        make_directories(disk, directory)
        path = block_path(directory, block_id)
        block = cls(block_id, seed, first_sequence, max_bytes, created_ns=created_ns)
        block._attach(disk, path, disk.open(path, create=True, exclusive=True))
        block._unnamed = True
        return block

    @classmethod
    def recover(cls, disk: Disk, directory: Path, block_id: int, max_bytes: int) -> Self:
        """Open an existing block file: cut a torn end, finish erasures, note damage in `damage`.

        Raises BlockUnreadable and leaves the file unchanged if its seed cannot be found or if it
        holds another block.
        """
        path = block_path(directory, block_id)
        file = disk.open(path)
        try:
            found = read_all(file)
            scan = Scan(found.data, proven=found.holes_end)
            if not scan.readable:
                raise BlockUnreadable(f"{path}: {BlockUnreadable.text}")
            if scan.block_id != block_id:
                raise BlockUnreadable(f"{path}: is block {scan.block_id}")
            if scan.torn_bytes:
                file.truncate(scan.end)
                file.fsync()
        except BaseException:
            file.close()
            raise
        tombstones = scan.tombstones
        block = cls.from_scan(scan, max_bytes)
        block._attach(disk, path, file)
        block._apply(tombstones)
        return block

    def _attach(self, disk: Disk, path: Path, file: DiskFile) -> None:
        self.disk = disk
        self.path = path
        self.file = file
        self._removed = SequenceSet()
        self._read_only = False
        self._unnamed = False

    def _apply(self, tombstones: list[tuple[int, bool, bytes]]) -> None:
        """Apply the block's tombstones and overwrite the messages that are to be erased."""
        for _, to_be_erased, encoded in tombstones:
            for sequence in SequenceSet.decode(encoded):
                if self.remove(sequence) and to_be_erased:
                    self._overwrite(sequence, os.urandom)
                elif to_be_erased:
                    self._finish_erasing(sequence)

    def _finish_erasing(self, sequence: int) -> None:
        """Finish an erasure that the end of the process may have left half done."""
        for found in self.damage:
            if found.first_sequence == found.last_sequence == sequence:
                noise = os.urandom(found.length - OVERHEAD_BYTES)
                self._write_over(erased(self.seed, sequence, noise), found.offset)
                self.forget_damage(found.offset)

    # Writing

    def write(
        self, subject: str | bytes, headers: bytes | None, payload: bytes, time_ns: int
    ) -> int:
        """Append a message and return its sequence; raise BlockSealed at `max_bytes`."""
        sequence = self.last_sequence + 1
        self.write_at(sequence, subject, headers, payload, time_ns)
        return sequence

    def write_at(
        self,
        sequence: int,
        subject: str | bytes,
        headers: bytes | None,
        payload: bytes,
        time_ns: int,
        expires_ns: int = 0,
    ) -> None:
        """Append a message under a given sequence, which must be above the last one.

        `time_ns` and `expires_ns` are in nanoseconds since 1970; `expires_ns` 0 means never. Raises
        SequenceMismatch, BlockSealed, StoreClosed or StoreReadOnly.
        """
        self._check_open_for_messages()
        self.put(sequence, subject, headers, payload, time_ns, expires_ns)

    def write_skip(self, sequence: int, count: int = 1, time_ns: int = 0) -> None:
        """Reserve `count` sequences without messages, beginning with `sequence`."""
        self._check_open_for_messages()
        self.skip(sequence, count, time_ns)

    def _check_open_for_messages(self) -> None:
        self._writable()
        if self.is_sealed:
            raise BlockSealed

    def _writable(self) -> DiskFile:
        """Return the open file; raise StoreClosed or StoreReadOnly if it cannot be written."""
        if self.file is None:
            raise StoreClosed
        if self._read_only:
            raise StoreReadOnly
        return self.file

    # Reading

    def read(self, sequence: int) -> StoredMessage | None:
        """Return a message from memory or from the file; None if it does not exist or was removed.

        Raises MessageDamaged if the bytes in the file do not verify.
        """
        message = self.get(sequence)
        if message is not None:
            return message
        if not self.offset_of(sequence) or not self.is_live(sequence):
            self._check_damage(sequence)
            return None
        return self._read_file(sequence)

    def _read_file(self, sequence: int) -> StoredMessage:
        if self.file is None:
            raise StoreClosed
        offset = self.offset_of(sequence)
        data = self.file.pread(self.record_bytes(sequence), offset)
        message = decode(data, self.seed)
        if message is None or message.sequence != sequence:
            raise MessageDamaged(sequence, str(self.path), offset)
        return message

    def _check_damage(self, sequence: int) -> None:
        """Raise MessageDamaged if a message of this sequence was lost to damage."""
        if self.is_deleted(sequence):
            return
        for found in self.damage:
            if found.covers(sequence):
                raise MessageDamaged(sequence, str(self.path), found.offset)

    def enumerate_non_deleted(self) -> Iterator[tuple[int, str]]:
        """Yield the sequence and the subject of every live message, in ascending order."""
        for sequence in self.live_sequences():
            message = self.read(sequence)
            if message is not None:
                yield sequence, message.subject

    # Removing

    def delete(self, sequence: int, secure_erase: bool = False, noise: Noise = os.urandom) -> bool:
        """Remove a message; return False if it does not exist.

        With `secure_erase` the removal is on disk on return, and the message's bytes are
        overwritten with `noise(n)` in the file and in memory. Otherwise the next flush writes the
        removal.
        """
        self._writable()
        if secure_erase:
            # A crash may leave a half overwritten message. In the last commit, recovery would take
            # it for a torn end and cut it, so the message must be in an earlier commit.

            self._commit()
        if not self.remove(sequence):
            return False
        if not secure_erase:
            self._removed.add(sequence)
            return True
        self._commit(erasing=sequence)
        self._sync()
        self._overwrite(sequence, noise)
        return True

    def _overwrite(self, sequence: int, noise: Noise) -> None:
        record = self.erase_record(sequence, noise(self.record_bytes(sequence) - OVERHEAD_BYTES))
        self._write_over(record, self.offset_of(sequence))

    def _write_over(self, record: bytes, offset: int) -> None:
        file = self._writable()
        try:
            file.pwrite(record, offset)
        except OSError as error:
            raise self._broken(error) from error
        self._sync()

    # Committing

    @property
    def pending_write_size(self) -> int:
        """Bytes that no flush has written yet."""
        return self.size - max(self.durable_size, HEADER_BYTES)

    @property
    def bytes_used(self) -> int:
        """Bytes of the block, including bytes that no flush has written yet."""
        return self.size

    @property
    def last_checksum(self) -> bytes | None:
        """The last eight bytes of the last record; None if no record was written."""
        return self.last_record_checksum

    def flush_pending(self) -> int:
        """Write the pending bytes as one commit without a sync; return the bytes written."""
        return self._commit()

    def flush(self) -> None:
        """Write and sync the pending bytes; the header of a new block is written in any case."""
        self._commit(force=self.durable_size == 0)
        self._sync()

    def close(self) -> None:
        """Flush, write a closing mark (it proves that nothing is missing) and close the file.

        A second call does nothing.
        """
        if self.file is None:
            return
        try:
            if not self._read_only:
                self.flush()
                self._commit(force=True, closing=True)
                self._sync()
        finally:
            file, self.file = self.file, None
            file.close()

    def _commit(self, *, erasing: int = 0, force: bool = False, closing: bool = False) -> int:
        file = self._writable()
        if erasing:
            self.put_tombstones(SequenceSet([erasing]).encode(), erased=True)
        if self._removed:
            self.put_tombstones(self._removed.encode())
        extent = self.take_extent(
            self.commit_number + 1, self.base_sequence, force=force, closing=closing
        )
        if extent is None:
            return 0
        try:
            file.pwrite(memoryview(extent), extent.offset)
        except OSError as error:
            self._take_back(erasing)
            raise self._cut_back(file, error) from error
        self.committed()
        self._removed = SequenceSet()
        return extent.length

    def _take_back(self, erasing: int) -> None:
        """Undo all appends and removals since the last commit, and the removal of `erasing`."""
        self.rolled_back()
        for sequence in self._removed:
            self.restore(sequence)
        self.restore(erasing)
        self._removed = SequenceSet()

    def _cut_back(self, file: DiskFile, error: OSError) -> StoreFull | StoreReadOnly:
        """Cut the file back to the last commit after a failed write; return the error to raise."""
        if not is_passing(error):
            return self._broken(error)
        try:
            file.truncate(self.durable_size)
        except OSError as second:
            return self._broken(second)
        return StoreFull(f"{self.path}: {error}")

    def _sync(self) -> None:
        try:
            self._writable().fdatasync()
            if self._unnamed:
                self.disk.sync_dir(self.path.parent)
                self._unnamed = False
        except OSError as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> StoreReadOnly:
        """Make the block read-only, since its file may hold anything; return the error to raise."""
        self._read_only = True
        return StoreReadOnly(f"{self.path}: {error}")
