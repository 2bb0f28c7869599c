"""See scan.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block_index cimport BlockIndex
from natsd.store.record cimport BlockHeader, Mark


cdef enum DamageKind:
    BAD_BLOCK_HEADER = 1
    BAD_RECORDS = 2             # no header verifies from here to the next record
    BAD_BODY = 3                # the header verifies, the record does not
    OUT_OF_ORDER = 4            # a whole record whose sequence is not above the one before
    BAD_CHAIN = 5               # every record verifies, but not the commit that they make up

cdef struct Damaged:
    uint32_t offset
    uint32_t length
    uint64_t first_sequence     # 0: unknown, or no message's
    uint64_t last_sequence
    DamageKind kind

cdef struct Tombstones:         # where a record of removals stands
    uint32_t offset
    uint32_t length             # of its body
    bint erased

cdef struct Skip:
    uint32_t offset
    uint64_t sequence
    uint64_t count


cdef class Scan:
    cdef readonly bytes data
    cdef readonly bint readable             # the seed is known, from the header or a mark
    cdef readonly bint header_is_whole
    cdef readonly bint closed               # the last mark says that all before it was synced
    cdef readonly bint torn_commit          # the last commit is not whole, its removals not applied
    cdef readonly uint32_t end              # behind the last commit: the block goes on here
    cdef readonly uint32_t torn_bytes       # behind `end`, not zero: to be cut
    cdef readonly uint64_t last_sequence
    cdef readonly uint64_t max_skip_sequence
    cdef readonly uint64_t live_bytes
    cdef BlockHeader header
    cdef Mark mark                          # the last one; the floor is mark.first_sequence
    cdef readonly uint64_t first_sequence   # that floor
    cdef readonly uint64_t chain
    cdef BlockIndex index                   # all messages that verify; no slots
    cdef uint32_t* interruptions
    cdef uint32_t interruption_count, interruption_capacity
    cdef Tombstones* tombstones
    cdef uint32_t tombstone_count, tombstone_capacity
    cdef Skip* skips
    cdef uint32_t skip_count, skip_capacity
    cdef Damaged* damage
    cdef uint32_t damage_count, damage_capacity
