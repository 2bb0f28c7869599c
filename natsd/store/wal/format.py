"""The bytes of a write-ahead log: a segment is a header and batches, and a batch holds entries.

The journal of a volume (write_ahead_log.py) and the logs of RAFT groups (natsd/raft/storage) are
both written in this format. They differ in the magic of their headers, and in what the kind, name
and offset of an entry mean.

    header, 64 bytes in each of the first two sectors
      +-------+---------+---+-------+------+---------------------+
      | magic | version | 0 | epoch | seed | XXH64 of bytes 0..32 |
      +-------+---------+---+-------+------+---------------------+
      0       8         10  16      24     32
    batch, at a multiple of 512 bytes; one for each sync
      +-------+-----------------+--------+-------+---+----------------------+
      | magic | bytes of entries | number | count | 0 | XXH64 of bytes 0..24 |
      +-------+-----------------+--------+-------+---+----------------------+
      0       4                 8        16      20  24                     32
    entry, one after another in a batch
      +-------------+----------+------+---+--------+------------+------------+------+------+
      | data length | name len | kind | 0 | offset | XXH64 of   | XXH64 of   | name | data |
      |             |          |      |   |        | name, data | bytes 0..24|      |      |
      +-------------+----------+------+---+--------+------------+------------+------+------+
      0             4          6      7   8        16           24           32

Promise
- All checksums are seeded with the segment's random seed, so neither a batch of an earlier epoch
  nor a batch inside an entry's data is taken for a batch of this epoch.
- Reading raises nothing: whatever does not verify is left out, and the reader is told where. After
  bytes that are no batch, the next batch is looked for at each sector.

Source: docs/store.md. The layout is our own.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import xxhash

SECTOR_BYTES: Final = 512
HEADER_BYTES: Final = 2 * SECTOR_BYTES

HEADER: Final = struct.Struct("<8sHHIQQ")
BATCH: Final = struct.Struct("<4sIQII")
BATCH_MAGIC: Final = b"JBAT"
ENTRY: Final = struct.Struct("<IHBBQQ")
CHECKSUM: Final = struct.Struct("<Q")
BATCH_HEADER_BYTES: Final = BATCH.size + CHECKSUM.size
ENTRY_HEADER_BYTES: Final = ENTRY.size + CHECKSUM.size


class Header(NamedTuple):
    """The content of a segment's header."""

    magic: bytes
    version: int
    epoch: int
    seed: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch whose header verifies; its entries begin at `offset + BATCH_HEADER_BYTES`."""

    number: int
    offset: int
    size: int
    count: int

    @property
    def end(self) -> int:
        """Offset of the first byte behind the batch."""
        return self.offset + batch_bytes(self.size)


@dataclass(frozen=True, slots=True)
class FoundBatches:
    """The batches of a segment in the order of their numbers.

    `gaps` are the start and end of bytes before a batch that are no batch; `end` is the end of the
    last batch.
    """

    batches: list[Batch]
    gaps: list[tuple[int, int]]
    end: int


def batch_bytes(size: int) -> int:
    """Return the bytes in the file of a batch whose entries have `size` bytes."""
    return -(-(BATCH_HEADER_BYTES + size) // SECTOR_BYTES) * SECTOR_BYTES


def encode_header(magic: bytes, version: int, epoch: int, seed: int) -> bytes:
    """Return both copies of a segment's header, each padded to one sector."""
    fields = HEADER.pack(magic, version, 0, 0, epoch, seed)
    sector = (fields + CHECKSUM.pack(xxhash.xxh64_intdigest(fields))).ljust(SECTOR_BYTES, b"\0")
    return sector + sector


def encode_batch(seed: int, number: int, count: int, entries: bytes) -> bytes:
    """Return a batch padded to whole sectors.

    `entries` are the encoded bytes of `count` entries.
    """
    fields = BATCH.pack(BATCH_MAGIC, len(entries), number, count, 0)
    checksum = CHECKSUM.pack(xxhash.xxh64_intdigest(fields, seed))
    padding = bytes(-(len(entries) + BATCH_HEADER_BYTES) % SECTOR_BYTES)
    return b"".join((fields, checksum, entries, padding))


def read_headers(data: bytes) -> list[Header]:
    """Return those of the two copies of a segment's header that verify."""
    found = [_read_header(data[at : at + SECTOR_BYTES]) for at in (0, SECTOR_BYTES)]
    return [header for header in found if header is not None]


def _read_header(sector: bytes) -> Header | None:
    fields = sector[: HEADER.size]
    checksum = sector[HEADER.size : HEADER.size + CHECKSUM.size]
    if checksum != CHECKSUM.pack(xxhash.xxh64_intdigest(fields)):
        return None
    magic, version, _, _, epoch, seed = HEADER.unpack(fields)
    return Header(magic, version, epoch, seed)


def read_batch_header(data: bytes, offset: int, seed: int) -> Batch | None:
    """Return the batch that begins at `offset`; None if none does."""
    if data[offset : offset + 4] != BATCH_MAGIC or offset + BATCH_HEADER_BYTES > len(data):
        return None
    fields = data[offset : offset + BATCH.size]
    (checksum,) = CHECKSUM.unpack_from(data, offset + BATCH.size)
    if checksum != xxhash.xxh64_intdigest(fields, seed):
        return None
    _, size, number, count, _ = BATCH.unpack(fields)
    return Batch(number, offset, size, count)


def find_batches(data: bytes, seed: int) -> FoundBatches:
    """Return all batches of a segment whose header verifies, with growing numbers."""
    batches: list[Batch] = []
    gaps: list[tuple[int, int]] = []
    offset = end = HEADER_BYTES
    while offset + BATCH_HEADER_BYTES <= len(data):
        batch = read_batch_header(data, offset, seed)
        if batch is None or (batches and batch.number <= batches[-1].number):
            offset = _next_magic(data, offset + SECTOR_BYTES)
            continue
        if offset != end:
            gaps.append((end, offset))
        batches.append(batch)
        offset = end = batch.end
    return FoundBatches(batches, gaps, end)


def _next_magic(data: bytes, offset: int) -> int:
    """Return the first sector from `offset` on that may begin a batch; else the end of the data."""
    while (found := data.find(BATCH_MAGIC, offset)) != -1:
        if found % SECTOR_BYTES == 0:
            return found
        offset = found + 1
    return len(data)
