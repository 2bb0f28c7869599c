"""Encoder and decoder of the batches that consumer_log.pxd draws. No files, no clock: only bytes.

Promise of reading, whatever the bytes are
- A batch comes back as it was written, or not at all. Bytes that are not zero where a batch's
  header would begin are damage: a header lies in one sector, so no crash leaves a part of it.
- Entries behind a gap are returned as `late`: they happened, but the state that they build upon is
  unknown.
- All damage is reported with its offset. Zeros in place of the last header are a torn end.

The layout and the rules are our own; see docs/store.md for durability.
"""

import struct

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from natsd.store.codec.records cimport read_u16, read_u32, read_u64, write_u32, write_u64
from natsd.store.codec.xxh64 cimport xxh64

from natsd.store.codec.records import checksum

cdef enum:
    ENTRY_CAPACITY_MIN = 64

LOG_VERSION = 2


cdef inline uint64_t seed_at(uint64_t seed, uint64_t place) noexcept nogil:
    return seed ^ place * <uint64_t> 0x9E3779B97F4A7C15


cdef void read_entry(const unsigned char* at, Entry* out) noexcept nogil:
    out.kind = at[0]
    out.flags = at[1]
    out.count = read_u16(at + 2)
    out.a = read_u64(at + 8)
    out.b = read_u64(at + 16)
    out.c = read_u64(at + 24)


def encode_log_header(log_id: int, seed: int, total: int) -> bytes:
    """Return the first 64 bytes of a log file; `total` counts the entries before this log."""
    start = struct.pack("<8sHHIQQ24x", b"NATSDOBS", LOG_VERSION, 0, log_id, seed, total)
    return start + struct.pack("<Q", checksum(start, 0))


# Writing

cdef class EntryBuffer:

    def __dealloc__(self) -> None:
        free(self.entries)

    cdef int add(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1:
        """Add an entry. Raises MemoryError, with nothing changed."""
        cdef unsigned char* to
        cdef Py_ssize_t capacity
        if self.count == self.capacity:
            capacity = max(<Py_ssize_t> ENTRY_CAPACITY_MIN, self.capacity * 2)
            to = <unsigned char*> realloc(self.entries, capacity * ENTRY_BYTES)
            if to == NULL:
                raise MemoryError
            self.entries = to
            self.capacity = capacity
        to = self.entries + self.count * ENTRY_BYTES
        count = min(count, <uint64_t> DELIVERY_COUNT_MAX)
        write_u32(to, kind | <uint32_t> flags << 8 | <uint32_t> count << 16)
        write_u32(to + 4, 0)
        write_u64(to + 8, a)
        write_u64(to + 16, b)
        write_u64(to + 24, c)
        self.count += 1
        return 0

    cpdef void clear(self) noexcept:
        """Drop all entries, and free a buffer that has grown large."""
        self.count = 0
        if self.capacity > 1024 * ENTRY_CAPACITY_MIN:
            free(self.entries)
            self.entries = NULL
            self.capacity = 0

    cpdef bytes seal(self, uint64_t seed, uint64_t offset, uint64_t total):
        """Return the entries as a batch for that offset in the file, and empty the buffer.

        `total`: number of all entries ever, these included. There must be an entry.
        """
        cdef Py_ssize_t size = self.count * ENTRY_BYTES
        cdef bytes batch = PyBytes_FromStringAndSize(NULL, BATCH_HEADER_BYTES + size)
        cdef unsigned char* to = <unsigned char*> PyBytes_AS_STRING(batch)
        assert self.count
        seed = seed_at(seed, offset)
        memcpy(to + BATCH_HEADER_BYTES, self.entries, size)
        write_u64(to + 8, xxh64(to + BATCH_HEADER_BYTES, size, seed))
        write_u64(to + 16, total)
        write_u32(to + 24, <uint32_t> self.count)
        write_u32(to + 28, 0)
        write_u64(to, xxh64(to + 8, BATCH_HEADER_BYTES - 8, seed))
        self.clear()
        return batch

    cdef bytes take(self):
        cdef bytes entries = PyBytes_FromStringAndSize(
            <const char*> self.entries, self.count * ENTRY_BYTES
        )
        self.clear()
        return entries


cdef class EntryListener:
    cdef int note(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1:
        raise NotImplementedError


# Reading

cdef class LogScan:
    """The content of a log file.

    `entries` and `late` are the bytes of entries. `total` counts all entries up to the last whole
    batch, lost ones included; `end` is the offset for the next batch. `damage` lists (offset,
    length, description, whether nothing was lost). `torn`: bytes behind `end` are not zero.
    """
    cdef readonly bytearray entries
    cdef readonly bytearray late
    cdef readonly list damage
    cdef readonly uint64_t total
    cdef readonly Py_ssize_t end
    cdef readonly bint torn
    cdef bint lost

    def __cinit__(self, uint64_t total) -> None:
        self.entries = bytearray()
        self.late = bytearray()
        self.damage = []
        self.total = total
        self.end = LOG_HEADER_BYTES

    cdef int report(self, Py_ssize_t offset, Py_ssize_t end, str what) except -1:
        self.lost = True
        self.damage.append((offset, end - offset, what, False))
        return 0

    cdef int keep(self, object entries) except -1:
        cdef bytearray to = self.late if self.lost else self.entries
        to += entries
        return 0

    cdef int read_batches(self, bytes data, uint64_t seed) except -1:
        cdef const unsigned char* base = <const unsigned char*> PyBytes_AS_STRING(data)
        cdef const unsigned char* header
        cdef Py_ssize_t at = LOG_HEADER_BYTES, end, size = len(data)
        cdef uint64_t seed_here, total
        while at + BATCH_HEADER_BYTES <= size:
            header, seed_here = base + at, seed_at(seed, at)
            if xxh64(header + 8, BATCH_HEADER_BYTES - 8, seed_here) != read_u64(header):
                at += ENTRY_BYTES       # look for the next batch
                continue
            if at > self.end:
                self.report(self.end, at, "no batch verifies")
            end = at + BATCH_HEADER_BYTES + read_u32(header + 24) * <Py_ssize_t> ENTRY_BYTES
            at += BATCH_HEADER_BYTES
            if end > size or xxh64(base + at, end - at, seed_here) != read_u64(header + 8):
                self.report(at - BATCH_HEADER_BYTES, min(end, size), "batch does not verify")
            else:
                total = read_u64(header + 16)
                if not self.lost and self.total + (end - at) // ENTRY_BYTES != total:
                    self.report(self.end, at, "changes are missing")
                self.keep(data[at:end])
                self.total = total
            at = self.end = min(end, size)
        at = self.end + BATCH_HEADER_BYTES
        self.torn = bool(data[self.end:].strip(b"\0"))
        if self.torn and at <= size and data[self.end:at].strip(b"\0"):
            self.report(self.end, size, "no batch verifies")
        return 0

    cdef int read_version_1(self, bytes data, uint64_t seed) except -1:
        """Read the entries that verify before each mark; a mark tells whether there were more."""
        cdef const unsigned char* base = <const unsigned char*> PyBytes_AS_STRING(data)
        cdef const unsigned char* slot
        cdef bytearray found = bytearray()
        cdef Py_ssize_t at
        for at in range(LOG_HEADER_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
            slot = base + at
            if read_u32(slot + 4) != <uint32_t> xxh64(
                slot + 8, 24, seed_at(seed, at // ENTRY_BYTES) ^ read_u32(slot)
            ):
                continue
            if slot[0] != MARK_OF_VERSION_1:
                found += slot[:ENTRY_BYTES]
                continue
            if self.total + len(found) // ENTRY_BYTES != read_u64(slot + 8):
                self.report(self.end, at, "changes are missing")
            self.keep(found)
            found = bytearray()
            self.total = read_u64(slot + 8)
            self.end = at + ENTRY_BYTES
        return 0


def scan_log(data: bytes, seed: int, total: int, version: int = LOG_VERSION) -> LogScan:
    """Read the bytes of a log file, header included; `total` entries came before the file."""
    cdef LogScan scan = LogScan(total)
    if version == LOG_VERSION:
        scan.read_batches(data, seed)
    else:
        scan.read_version_1(data, seed)
    return scan
