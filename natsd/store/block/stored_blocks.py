"""The files of one stream's blocks: their paths, their encoding, and their committed bytes.

    000007.blk      plain: the logical bytes as they are (record.pxd)
                    wrapped: the 64 bytes of the block's header, then envelopes (envelope.py)
    000007.blk.new  the replacement of the file, until it is renamed over it

    block header's flags (bytes 10 and 11)   1 WRAPPED: envelopes follow
                                             2 FOLLOWED: a newer block has been on disk

Promise
- A block's file is made when its first extent is to be written, and exists under its name once that
  extent is committed. Its bytes from `physical_end` on mean nothing.
- In an encrypted stream only the blocks' headers are in clear.
- A function that waits for the disk is marked "Blocks on the disk."; it may run in any thread. All
  other functions belong to the store's thread. A file is read as far as it was committed when the
  read was requested.
"""

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from natsd.store.block.blocks import BlockExtent, MsgBlock, Scan
from natsd.store.block.damage import Damage
from natsd.store.codec.block_encoding import (
    Seal,
    Unwrapped,
    begins_with_envelope,
    find_seed,
    unwrap,
    wrap,
    wrap_block,
)
from natsd.store.codec.records import checksum
from natsd.store.crypto.keys import DataKey
from natsd.store.disk.disk import Disk, DiskFile, rename_synced
from natsd.store.disk.holes import read_around, read_from_medium

HEADER_BYTES: Final = 64
IDENTITY: Final = struct.Struct("<QQ")
"""Bytes 40 to 56 of a block's header: store id, follows (block_identity.py)."""
WRAPPED: Final = 1
FOLLOWED: Final = 2
NEW_SUFFIX: Final = ".new"
BLOCK_SUFFIX: Final = ".blk"
_FLAGS = slice(10, 12)
_MARK_BYTES = 104
_KIND_MARK = b"\4"
_MARK_MAGIC = b"MARK"
_ZEROS_OF_CHECKSUM_MAX = 8
_CHECKED = slice(0, 56)
_SEED = slice(16, 24)

RandomBytes = Callable[[int], bytes]

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class StoredBlock:
    """A block and its file.

    The first `physical_end` bytes of the file are committed; `allocated` bytes are reserved. `file`
    is None while the file is closed.
    """

    block: MsgBlock
    path: Path
    is_wrapped: bool
    physical_end: int = 0
    allocated: int = 0
    file: DiskFile | None = None
    is_named: bool = False  # the file's name is on disk
    is_followed: bool = False  # a newer block has been on disk; this header may not say so
    # Held while the file is read into memory, or its committed bytes change.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self.file is not None:
            self.file.close()
            self.file = None


@dataclass(frozen=True, slots=True)
class Read:
    """The content of a block's file.

    `unwrapped` maps logical bytes to their place in the file; None: the file is plain. `damage` is
    the scan's, with offsets and lengths in the file, and that of envelopes; the offsets in
    `scan.damage` are logical. `holes_end` is the end of the last bytes that the disk could not
    return; 0: it returned all.
    """

    scan: Scan
    unwrapped: Unwrapped | None
    damage: list[Damage]
    holes_end: int = 0

    def physical_offset(self, logical_offset: int) -> int:
        """Return the offset in the file of the logical byte at `logical_offset`."""
        if self.unwrapped is None:
            return logical_offset
        return self.unwrapped.physical_offset(logical_offset)


def block_name(block_id: int) -> str:
    """Return the file name of a block, `000001.blk` for block 1."""
    return f"{block_id:06d}{BLOCK_SUFFIX}"


def block_id_of(name: str) -> int | None:
    """Return the number of the block that a file of this name holds; None: it holds no block."""
    stem = name.removesuffix(BLOCK_SUFFIX)
    if stem == name or not stem.isdecimal() or block_name(int(stem)) != name:
        return None
    return int(stem)


class StoredBlocks:
    """The block files in one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        random_bytes: RandomBytes,
        *,
        block_bytes_max: int,
        data_key: DataKey | None = None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.random_bytes = random_bytes
        self.block_bytes_max = block_bytes_max
        self.data_key = data_key
        self.store_id = 0  # see block_identity.py; 0: unknown
        self.place = 0  # checksum of the stream's path, see block_identity.py; 0: unknown
        self._stored: dict[int, StoredBlock] = {}
        self.next_id = 1

    def __getitem__(self, block: MsgBlock) -> StoredBlock:
        return self._stored[block.block_id]

    def find(self, block_id: int) -> StoredBlock | None:
        """Return the block with this number; None if there is none."""
        return self._stored.get(block_id)

    @property
    def all(self) -> list[StoredBlock]:
        """Every block that has a file or will have one."""
        return list(self._stored.values())

    def seal(self, seed: int, block_id: int) -> Seal | None:
        """Return the encryption of that block; None if the stream is not encrypted."""
        if self.data_key is None:
            return None
        return self.data_key.seal(seed, block_id, self.random_bytes)

    def path_of(self, block_id: int) -> Path:
        """Return the path of that block's file."""
        return self.directory / block_name(block_id)

    # The blocks

    def create(self, base_sequence: int, created_ns: int, follows: int) -> MsgBlock:
        """Return a new block in memory; `open_file` makes its file later.

        `follows` is the stream's last sequence before the block.
        """
        flags = 0 if self.data_key is None else WRAPPED
        block = MsgBlock(
            self.next_id,
            int.from_bytes(self.random_bytes(8), "little"),
            base_sequence,
            self.block_bytes_max,
            created_ns=created_ns,
            salt=IDENTITY.pack(self.store_id, follows),
            flags=flags,
        )
        self.add(StoredBlock(block, self.path_of(block.block_id), bool(flags)))
        return block

    def add(self, stored: StoredBlock) -> None:
        """Add a block that has a file already, or will have one."""
        self._stored[stored.block.block_id] = stored
        self.next_id = max(self.next_id, stored.block.block_id + 1)

    def drop(self, stored: StoredBlock) -> None:
        """Drop a block; the caller removes its file."""
        self._stored.pop(stored.block.block_id, None)

    # Writing

    def open_file(self, stored: StoredBlock) -> DiskFile:
        """Open the block's file for writing; create it if it is missing. Blocks on the disk."""
        return self.disk.open(stored.path, create=True)

    def wrapped(self, stored: StoredBlock, extent: BlockExtent) -> bytes:
        """Return the bytes to write to the file of a wrapped block for this logical extent."""
        block = stored.block
        data = memoryview(extent)
        clear = data[: max(0, HEADER_BYTES - extent.offset)]
        records = data[clear.nbytes :]
        seal = self.seal(block.seed, block.block_id)
        wrapped = wrap(records, extent.offset + clear.nbytes, block.seed, seal)
        return bytes(clear) + wrapped

    # Reading

    def read(
        self, stored: StoredBlock, physical_end: int, proven: int, *, from_medium: bool = False
    ) -> Read:
        """Read and verify the block's committed bytes, the first `physical_end` bytes of its file.

        `proven` as in `scan`; `from_medium`: not from the page cache. Blocks on the disk. Raises
        `OSError`.
        """
        with contextlib.closing(self.disk.open(stored.path, write=False)) as file:
            found = (read_from_medium if from_medium else read_around)(file, physical_end)
        data, block_id = found.data, stored.block.block_id
        is_whole = header_verifies(data)
        if not is_whole:  # the header is known: its damage costs no message
            data = encode_header(stored) + data[HEADER_BYTES:]
        read = self.scan(data, block_id, proven=proven, holes_end=found.holes_end)
        if not is_whole:
            read.damage.insert(0, Damage(0, HEADER_BYTES, 0, 0, "block header damaged"))
        if read.scan.readable and read.scan.seed == stored.block.seed:
            return (
                read
                if read.scan.end >= proven
                else replace(read, scan=_filled(read.scan.data, proven))
            )
        return self.missing(stored, proven, len(data), "another block's bytes")

    def missing(
        self, stored: StoredBlock, proven: int, length: int = 0, what: str = "file unreadable"
    ) -> Read:
        """Return the content of a file of `length` bytes that has nothing of the block."""
        block = stored.block
        damage = [Damage(0, length, block.base_sequence, block.last_sequence, what)]
        return Read(_filled(encode_header(stored), proven), None, damage)

    def scan(
        self,
        data: bytes,
        block_id: int,
        *,
        proven: int = 0,
        size_min: int = 0,
        first_sequence: int = 0,
        holes_end: int = 0,
    ) -> Read:
        """Verify the bytes of a block's file, whatever they are; mostly without the GIL.

        `proven` is the number of logical bytes that are known to have been synced; -1: all of them
        up to a mark, except the zeros at the end, and at least `size_min`. `holes_end` is the end
        of the last hole in `data`, where the disk could not return bytes (holes.py); 0: there is
        none. The missing bytes were synced once, so a hole is damage, not a torn end.
        """
        unwrapped = self._unwrap(data, block_id)
        logical = data if unwrapped is None else bytes(unwrapped.logical)
        if unwrapped is None:
            proven = max(proven, holes_end) if proven >= 0 else proven
            size_min = max(size_min, holes_end)
        is_short = max(proven, size_min) > len(logical)
        is_short = is_short or (unwrapped is not None and holes_end > unwrapped.physical_end)
        is_whole = proven < 0 or is_short
        if unwrapped is not None:
            proven = len(logical) if is_whole else proven
        elif proven < 0:
            proven = max(len(logical.rstrip(b"\0")), size_min)
        scan = Scan(logical, proven=proven, first_sequence=first_sequence)
        if unwrapped is None:
            damage = list(scan.damage)
            if is_whole and not is_short:
                damage += _lost_end(scan, logical)
            return Read(scan, None, damage, holes_end)
        damage = located(scan.damage, unwrapped)
        if is_short or (is_whole and unwrapped.torn):
            damage.append(_lost_envelopes(scan, unwrapped, len(data)))
        return Read(scan, unwrapped, damage, holes_end)

    def _unwrap(self, data: bytes, block_id: int) -> Unwrapped | None:
        """Return the unwrapped bytes; None if the file holds the logical bytes themselves.

        In an encrypted stream no file does.
        """
        seed = self._seed_of_wrapped(data)
        if seed is None and self.data_key is None:
            return None
        return unwrap(data, seed or 0, self.seal(seed or 0, block_id))

    def _seed_of_wrapped(self, data: bytes) -> int | None:
        """Return the seed of a wrapped block's file; None if the file is plain."""
        seed = header_seed(data)
        if seed is not None:
            return seed if data[_FLAGS.start] & WRAPPED else None
        # The header is damaged. A payload may hold envelopes, so look for plain marks first.
        if not begins_with_envelope(data) and Scan(data).readable:
            return None
        return find_seed(data)

    # Replacing

    def sealed_bytes(
        self, logical: bytes, block: MsgBlock, *, compress: bool, is_followed: bool = False
    ) -> bytes:
        """Return the file of a block that nothing is appended to any more. May take long."""
        is_wrapped = compress or self.data_key is not None
        head = with_flags(logical[:HEADER_BYTES], encode_flags(is_wrapped, is_followed))
        if not is_wrapped:
            return head + logical[HEADER_BYTES:]
        seal = self.seal(block.seed, block.block_id)
        if compress:
            return wrap_block(head + logical[HEADER_BYTES:], block.seed, seal)
        return head + wrap(logical[HEADER_BYTES:], HEADER_BYTES, block.seed, seal)

    def replace_file(self, path: Path, data: bytes, *, wipe: bool = False) -> None:
        """Replace the file by these bytes; after a crash it has either the old or the new ones.

        `wipe`: overwrite the old file's bytes once it has no name any more; a failure of that is
        logged. Raises UnsyncedRename if the new bytes are there now, and the old ones may be after
        a power cut; any other `OSError` if nothing has changed. Blocks on the disk.
        """
        new = path.with_name(path.name + NEW_SUFFIX)
        with contextlib.closing(self.disk.open(new, create=True)) as file:
            file.truncate(0)
            file.pwrite(data, 0)
            file.fsync()
        with contextlib.ExitStack() as stack:
            if wipe:
                old = stack.enter_context(contextlib.closing(self.disk.open(path)))
            rename_synced(self.disk, new, path)
            if wipe:
                self._wipe(old)

    def _wipe(self, old: DiskFile) -> None:
        """Overwrite a file that has no name any more; log a failure. Blocks on the disk."""
        try:
            old.pwrite(self.random_bytes(old.size()), 0)
            old.fdatasync()
        except OSError as error:
            _logger.error("%s: what was erased may be found on the disk: %s", old.path, error)

    def remove_files(self, paths: list[Path]) -> None:
        """Unlink the files and sync the directory. Blocks on the disk. Raises `OSError`."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self.disk.unlink(path)
        if paths:
            self.disk.sync_dir(self.directory)


def _filled(logical: bytes, proven: int) -> Scan:
    """Return the scan of a block that should have `proven` bytes, padded with zeros to them."""
    return Scan(logical.ljust(proven, b"\0"), proven=proven)


def located(damage: list[Damage], unwrapped: Unwrapped) -> list[Damage]:
    """Return damage with offsets and lengths in the file, in order.

    It is that of logical bytes, and that of envelopes that returned nothing.
    """
    found = []
    for logical in damage:
        start, end = unwrapped.physical_range(logical.offset, logical.length)
        found.append(logical._replace(offset=start, length=end - start))
    for hole in unwrapped.damage:
        end = hole.offset + hole.length
        if not any(f.offset < end and hole.offset < f.offset + f.length for f in found):
            found.append(Damage(hole.offset, hole.length, 0, 0, hole.what))
    return sorted(found)


def _lost_end(scan: Scan, logical: bytes) -> list[Damage]:
    """Return the damage of a block that was written to its end and does not end with a mark."""
    reaches_end = any(found.offset + found.length >= len(logical) for found in scan.damage)
    if reaches_end or not scan.readable or ends_with_mark(logical.rstrip(b"\0")):
        return []
    return [Damage(len(logical), 0, scan.last_sequence + 1, 0, "end of the block missing")]


def _lost_envelopes(scan: Scan, unwrapped: Unwrapped, file_bytes: int) -> Damage:
    """Return the damage behind the last whole envelope of a block written to its end."""
    end = unwrapped.physical_end
    first = 0 if scan.closed else scan.last_sequence + 1
    return Damage(end, max(0, file_bytes - end), first, 0, "envelopes missing or damaged")


def ends_with_mark(logical: bytes) -> bool:
    """Return whether the last record looks like a mark; it may still not verify."""
    for cut in range(_ZEROS_OF_CHECKSUM_MAX):  # a checksum's last bytes may be zeros
        last = logical.ljust(len(logical) + cut, b"\0")[-_MARK_BYTES:]
        if last[4:5] == _KIND_MARK and last[32:36] == _MARK_MAGIC:
            return True
    return False


def header_verifies(data: bytes) -> bool:
    """Return whether these bytes begin with a whole block header."""
    return (
        len(data) >= HEADER_BYTES
        and checksum(data[_CHECKED]).to_bytes(8, "little") == data[_CHECKED.stop : HEADER_BYTES]
    )


def encode_header(stored: StoredBlock) -> bytes:
    """Return a header for the file of an open block.

    Its creation time, store id and `follows` are 0.
    """
    block, flags = stored.block, encode_flags(stored.is_wrapped, stored.is_followed)
    new = MsgBlock(block.block_id, block.seed, block.base_sequence, block.max_bytes, flags=flags)
    extent = new.take_extent(0, block.base_sequence, force=True)
    assert extent is not None, "a new block has its header to write"
    return bytes(memoryview(extent)[:HEADER_BYTES])


def header_seed(data: bytes) -> int | None:
    """Return the seed of a block header; None if the header does not verify."""
    return int.from_bytes(data[_SEED], "little") if header_verifies(data) else None


def header_flags(data: bytes) -> int:
    """Return the flags of a block header that verifies."""
    return int.from_bytes(data[_FLAGS], "little")


def is_followed(data: bytes) -> bool:
    """Return whether a block's header verifies and says that a newer block was on disk."""
    return header_verifies(data) and bool(header_flags(data) & FOLLOWED)


def encode_flags(is_wrapped: bool, is_followed: bool) -> int:
    """Return the flags of a block's header."""
    return (WRAPPED if is_wrapped else 0) | (FOLLOWED if is_followed else 0)


def with_flags(header: bytes, flags: int) -> bytes:
    """Return the header with these flags; one that does not verify is returned unchanged."""
    if not header_verifies(header):
        return header
    changed = bytearray(header[:HEADER_BYTES])
    changed[_FLAGS] = flags.to_bytes(2, "little")
    changed[_CHECKED.stop :] = checksum(bytes(changed[_CHECKED])).to_bytes(8, "little")
    return bytes(changed)
