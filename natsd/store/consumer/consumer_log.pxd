"""The log of a consumer's changes: batches of entries, each with a checksum.

    file    0  magic "NATSDOBS" │ 8 version u16: 2 │ 10 zero u16 │ 12 log id u32 │ 16 seed u64
            24 total u64, entries before this log │ 32 zeros │ 56 XXH64 of 0..56
            64 batch, batch, … │ zeros (preallocated)

    batch    0 XXH64 of 8..32 │ 8 XXH64 of the entries │ 16 total u64, entries so far, with these
            24 entries u32 │ 28 zero u32 │ 32 entry, entry, …

    entry    0 kind u8 │ 1 flags u8 │ 2 count u16 │ 4 zero u32 │ 8 a u64 │ 16 b u64 │ 24 c u64

    kind          a                  b                 c
    DELIVERED     consumer sequence  stream sequence   time_ns i64      count: number of deliveries
    ACKED         consumer sequence  stream sequence
    SKIPPED       stream sequence: nothing up to it is to be delivered
    FORGOTTEN     stream sequence: delivery counts below it are dropped
    HELD          first of a run     last of it        read, and to be delivered later
    LET_GO        first of a run     last of it        its held messages are not to be delivered
    TERMINATED    stream sequence: pending, and never to be delivered again

All integers are little-endian. Both checksums of a batch are seeded with the log's seed and the
batch's offset in the file: a batch that was written elsewhere, or in another log, does not verify.
A batch is one commit. `total` tells whether entries are missing before it.

Version 1 had a checksum in bytes 4..8 of each entry, and behind the entries of each commit parity
slots and two slots of kind 5, whose `a` is the total. It is read, and never written.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t


cdef enum:
    ENTRY_BYTES = 32
    LOG_HEADER_BYTES = 64
    BATCH_HEADER_BYTES = 32
    DELIVERY_COUNT_MAX = 0xffff

cdef enum EntryKind:
    DELIVERED = 1
    ACKED = 2
    SKIPPED = 3
    FORGOTTEN = 4
    MARK_OF_VERSION_1 = 5
    HELD = 6
    LET_GO = 7
    TERMINATED = 8

cdef enum EntryFlag:
    DROPPED = 1                 # DELIVERED: too often; not pending any more

cdef struct Entry:
    uint8_t kind
    uint8_t flags
    uint16_t count
    uint64_t a
    uint64_t b
    uint64_t c


cdef void read_entry(const unsigned char* at, Entry* out) noexcept nogil


cdef class EntryBuffer:
    """Entries that are not in the file yet."""
    cdef unsigned char* entries
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef int add(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1
    cpdef void clear(self) noexcept
    cpdef bytes seal(self, uint64_t seed, uint64_t offset, uint64_t total)
    # Return the entries' bytes, and empty the buffer.
    cdef bytes take(self)


cdef class EntryListener:
    """Is told of each entry, before its change is made."""
    cdef int note(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1
