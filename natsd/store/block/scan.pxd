"""The declarations of scan.pyx."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from natsd.store.block.array cimport Array
from natsd.store.codec.records cimport BlockHeader, Mark, RecordHeader


cdef enum DamageKind:
    BAD_BLOCK_HEADER = 0
    BAD_RECORDS = 1             # no header verifies from here to the next record
    BAD_BODY = 2                # the header verifies, the record does not
    BAD_MARK = 3                # one of the two marks of a commit
    BAD_ORDER = 4               # a valid record whose sequence is not above the one before
    BAD_CHAIN = 5               # every record verifies, but the commit's chain does not

cdef struct Damaged:
    uint32_t offset
    uint32_t length
    uint64_t first_sequence     # 0: the damage covers no message
    uint64_t last_sequence      # 0: unknown
    int kind

cdef struct Tombstones:         # the body of a record of removals
    uint32_t offset
    uint32_t length
    bint erased

cdef struct Skip:
    uint32_t offset
    uint64_t sequence
    uint64_t count


cdef class Scan:
    # Results
    cdef readonly bytes data
    cdef readonly bint readable             # the seed is known, from the header or from a mark
    cdef readonly bint header_is_whole
    cdef readonly bint closed               # the last mark says: all before it was synced
    cdef readonly bint torn_commit          # the last commit is torn: its removals do not count
    cdef readonly uint32_t end              # end of the last commit, where the block goes on
    cdef readonly uint32_t torn_bytes       # bytes behind `end`, up to the last nonzero one
    cdef readonly uint64_t first_sequence   # first one not removed, by the last mark; 0: unknown
    cdef readonly uint64_t last_sequence    # last one written, reserved or named by a mark
    cdef readonly uint64_t commit_number
    cdef readonly uint64_t live_bytes       # of all records in `index` that are not removed
    cdef BlockHeader header
    cdef readonly uint32_t live_count       # messages, erased ones excluded
    cdef uint64_t chain
    cdef uint64_t last_checksum             # of the last record that is no mark; 0: none
    cdef BlockIndex index                   # the messages that verify; without slots
    cdef Array interruptions                # uint32_t offsets of marks, skips, removals, damage
    cdef Array removals                     # Tombstones
    cdef Array reserved                     # Skip
    cdef Array damaged                      # Damaged

    # State of the walk
    cdef const unsigned char* bytes_at
    cdef uint32_t size
    cdef uint32_t extent_start              # of the commit that is being read
    cdef uint64_t extent_chain
    cdef bint extent_whole
    cdef bint extent_altered                # has erased messages, so its chain cannot verify
    cdef uint32_t tombstones_before         # number of `removals` before the extent
    cdef Mark mark                          # the last mark
    cdef bint has_mark
    cdef bint last_commit_whole
    cdef uint64_t floor_before              # `first_sequence` of the commit before the last
    cdef uint32_t last_tombstones[2]        # range of the last commit's tombstones in `removals`
    cdef uint64_t committed_sequence
    cdef uint64_t committed_checksum
    # While walking again: the records before the offset `highest_upto` have no sequence above
    # `highest`.
    cdef uint64_t highest
    cdef uint32_t highest_upto
    cdef uint32_t walked_again_to           # the mark's offset

    # Return the subject of the message at that place of the index; the place must be neither a hole
    # nor an erased message.

    cdef bint open_header(self, uint64_t first_sequence) noexcept nogil
    cdef bint find_seed(self, uint64_t* seed, uint32_t* block_id) noexcept nogil
    cdef bint mark_is_ours(self, const Mark* mark, uint32_t at) noexcept nogil
    cdef bint is_twin(self, const Mark* mark) noexcept nogil
    cdef int walk(self) noexcept nogil
    cdef bint may_be_misled(self, const Mark* mark, uint32_t at) noexcept nogil
    cdef uint64_t last_damaged(self) noexcept nogil
    cdef uint64_t first_in_extent(self, const Mark* mark) noexcept nogil
    cdef uint32_t walk_back(self) noexcept nogil
    cdef bint is_in_order(self, const RecordHeader* header, uint32_t at) noexcept nogil
    cdef int take_mark(self, const Mark* mark, uint32_t at) noexcept nogil
    cdef int judge(self, const Mark* mark) noexcept nogil
    cdef bint extent_verifies(self, const Mark* mark) noexcept nogil
    cdef int take_record(self, const RecordHeader* header, uint32_t at) noexcept nogil
    cdef int take_message(self, const RecordHeader* header, uint32_t at) noexcept nogil
    cdef bint can_be_sent(self, uint32_t at) noexcept nogil
    cdef int take_skip(self, const RecordHeader* header, uint32_t at) noexcept nogil
    cdef uint32_t resync(self, uint32_t at, uint32_t upto) noexcept nogil
    cdef int note_bad_body(self, const RecordHeader* header, uint32_t at) noexcept nogil
    cdef bint verifies(self, uint32_t at, uint64_t* sequence) noexcept nogil
    cdef int note_gap(self, uint32_t at, uint32_t upto) noexcept nogil
    cdef int note_damage(
        self, uint32_t at, uint32_t length, uint64_t first, uint64_t last, int kind
    ) noexcept nogil
    cdef int finish(self, uint32_t walked, uint32_t proven) noexcept nogil
    cdef void cut(self) noexcept nogil
    cdef void drop_tombstones(self, uint32_t first, uint32_t upto) noexcept nogil
    cdef void drop_batches(self) noexcept nogil
