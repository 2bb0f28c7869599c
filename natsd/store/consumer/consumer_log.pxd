"""The log of a consumer's changes: slots of 32 bytes, sealed in extents.

    file    0  magic "NATSDOBS" │ 8 version u16 │ 10 zero u16 │ 12 log id u32 │ 16 seed u64
            24 total u64, entries before this log │ 32 zeros │ 56 XXH64 of 0..56
            64 extent, extent, … │ zeros (preallocated)

    extent  ┌───────┬───────┬─────┬────────┬─────┬──────┬──────┐
            │ entry │ entry │  …  │ parity │  …  │ mark │ mark │     all slots of 32 bytes
            └───────┴───────┴─────┴────────┴─────┴──────┴──────┘

    slot     0 kind u8 │ 1 flags u8 │ 2 count u16 │ 4 check u32 │ 8 a u64 │ 16 b u64 │ 24 c u64

    kind          a                  b                 c
    DELIVERED     consumer sequence  stream sequence   time_ns i64      count: number of deliveries
    ACKED         consumer sequence  stream sequence
    SKIPPED       stream sequence: nothing up to it is to be delivered
    FORGOTTEN     stream sequence: delivery counts below it are dropped
    MARK          entries in all     digest            low half: entries of this extent,
                                                       high half: parity slots behind them
    HELD          first of a run     last of it        read, and to be delivered later
    LET_GO        first of a run     last of it        its held messages are not to be delivered
    TERMINATED    stream sequence: pending, and never to be delivered again

All integers are little-endian. `check` is the low half of the XXH64 of bytes 8..32, seeded with the
log's seed, the slot's place in the file, and bytes 0..4: a slot that was written elsewhere, or in
another log, does not verify. The digest chains the full checksums of the extent's entries.

There are as many parity slots as entries, up to 16. Each is the exclusive or of all entries whose
place in the extent equals its own, modulo the number of parity slots: entries lost to a flipped bit
or to a sector of 512 bytes can be computed from the rest. Parity slots need no checksum, because
the computed entries have one. The mark is written twice.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t


cdef enum:
    SLOT_BYTES = 32
    LOG_HEADER_BYTES = 64
    PARITY_SLOTS_MAX = 16
    DELIVERY_COUNT_MAX = 0xffff

cdef enum SlotKind:
    DELIVERED = 1
    ACKED = 2
    SKIPPED = 3
    FORGOTTEN = 4
    MARK = 5
    HELD = 6
    LET_GO = 7
    TERMINATED = 8

cdef enum SlotFlag:
    DROPPED = 1                 # DELIVERED: too often; not pending any more
    SECOND = 1                  # MARK: the second of the two
    CLOSING = 2                 # MARK: written when everything before it was synced

cdef struct Slot:
    uint8_t kind
    uint8_t flags
    uint16_t count
    uint64_t a
    uint64_t b
    uint64_t c


cdef void read_slot(const unsigned char* at, Slot* out) noexcept nogil


cdef class EntryBuffer:
    """Entries that are not in the file yet."""
    cdef unsigned char* slots
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef int add(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1
    cpdef void clear(self) noexcept
    cpdef bytes seal(self, uint64_t seed, uint64_t first_slot, uint64_t total, bint closing)
