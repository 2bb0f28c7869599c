"""See block.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from natsd.store.array cimport Array
from natsd.store.block_extent cimport BlockExtent
from natsd.store.block_index cimport BlockIndex
from natsd.store.record cimport RecordView
from natsd.store.scan cimport Scan
from natsd.store.sequence_set cimport SequenceSet


cdef enum Found:
    COLD = -1                   # it may be there, but what tells is not in memory
    ABSENT = 0
    FOUND = 1


cdef struct Point:              # what a block can be taken back to
    uint32_t size
    uint64_t last_sequence
    uint64_t chain
    uint64_t commit_number
    uint64_t last_checksum


cdef class MsgBlock:
    cdef readonly uint32_t block_id
    cdef readonly uint32_t max_bytes
    cdef readonly uint64_t seed
    cdef readonly uint64_t base_sequence    # the next sequence of the stream when it began
    cdef readonly uint64_t last_sequence    # written or reserved; base_sequence - 1: none
    cdef readonly uint32_t size             # logical bytes, header included
    cdef readonly uint64_t live_bytes       # record bytes of messages that are not removed
    cdef readonly uint32_t message_count    # messages that are not removed
    cdef readonly uint64_t commit_number    # of the last mark
    cdef readonly BlockExtent in_flight     # taken, and neither committed nor undone
    cdef Point taken, durable               # where that ends; what is on disk

    # `arrays` are offsets and slots: without them `dead` has what is no live message between
    # base_sequence and last_sequence.
    cdef BlockIndex index
    cdef readonly bint has_arrays
    cdef bint arrays_used       # since `take_arrays_used` asked
    cdef bint cache_used        # since `take_cache_used` asked
    cdef readonly SequenceSet dead          # None while has_arrays
    cdef readonly SequenceSet skipped       # reserved without a message; None: nothing
    cdef Array interruptions                # uint32_t offsets of what is no message, ascending

    # The bytes from `cache_start` on: all, or what was not on disk when the cache was cleared.
    cdef object holder                      # BlockBuffer, bytes that were loaded, or None
    cdef unsigned char* data
    cdef uint32_t capacity                  # room at `data`; 0: it is not to be written to
    cdef uint32_t cache_start

    cdef uint64_t chain
    cdef uint64_t last_checksum             # of the last record that is no mark; 0: none
    # The last commit on disk is torn: its removals are void, which the next mark says. So that
    # there is one, an empty record of removals waits for it.
    cdef readonly bint void_previous
    cdef readonly bint sealed               # nothing but removals is to be written any more
    cdef uint8_t message_flags              # of the messages that are appended: TOGETHER, or 0
    cdef list damage_found

    # Appending. Sequences increase; the record's size is returned. Raises SequenceMismatch for one
    # that is not above the last, or 2^32 and more above the first; BlockFull past 2 GiB.
    # `max_bytes` is the caller's to respect.
    cdef int64_t append(
        self, uint64_t sequence, int64_t time_ns, int64_t expires_ns,
        const char* subject, uint16_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, uint32_t slot,
    ) except -1
    cdef int64_t append_skip(self, uint64_t sequence, uint64_t count, int64_t time_ns) except -1
    # `encoded` is a SequenceSet's encoding; the sequences may be those of older blocks.
    cdef int64_t append_tombstones(self, bytes encoded, bint erased, int64_t time_ns) except -1
    cdef int64_t room(self) noexcept nogil  # bytes left up to max_bytes; 0 or less: full

    # Reading. A view is good until the block is changed.
    cdef Found find(self, uint64_t sequence) noexcept nogil
    cdef Found view(self, uint64_t sequence, RecordView* out) noexcept nogil
    cdef uint32_t slot_of(self, uint64_t sequence) noexcept nogil   # NO_SLOT: no such message
    cdef void set_slot(self, uint64_t sequence, uint32_t slot) noexcept nogil
    # The record's bytes, removed or not; 0: no such message, or no arrays.
    cdef uint32_t size_of(self, uint64_t sequence) noexcept nogil
    # The first live message at or after `sequence`; 0: none, or no arrays.
    cdef uint64_t next_live(self, uint64_t sequence) noexcept nogil

    # Removing, in memory: true if it was live (or, coming back, removed).
    cdef bint mark_dead(self, uint64_t sequence) noexcept nogil
    cdef bint mark_live(self, uint64_t sequence) noexcept nogil

    # Committing. At most one extent is in flight; what is appended meanwhile goes into the next.
    # None: nothing was appended since the last, and no mark was asked for with `force`.
    cdef BlockExtent take(
        self, uint64_t commit_number, uint64_t first_sequence, uint64_t last_sequence,
        bint force, bint closing,
    )
    cdef int commit_done(self) except -1
    # Take back everything that is not durable: in flight and after.
    cdef int undo(self) except -1

    # Inside
    cdef unsigned char* reserve(self, uint64_t sequence, size_t size) except NULL
    cdef int adopt_bytes(self, Scan scan) except -1
    cdef int adopt_arrays(self, Scan scan) except -1
    cdef int own_bytes(self, size_t capacity) except -1
    cdef int expect_full(self) except -1    # it will be filled: have all of its memory now
    # Marks and a few removals follow when it is full: to move all that is there takes milliseconds.
    cdef size_t full_bytes(self) noexcept nogil
    cdef uint32_t size_at(self, uint32_t place) noexcept nogil
    cdef void note_record(self, uint64_t checksum, size_t size) noexcept nogil
    cdef int interrupt(self) except -1
    cdef int void_torn(self) except -1
    cdef SequenceSet find_dead(self)
    cdef int note_skip(self, uint64_t sequence, uint64_t count) except -1
    cdef Point point(self) noexcept nogil
    cdef list forget_lost(self, Scan scan)
    cdef list lost_of_dead(self, Scan scan)
    cdef bytes erase(self, uint64_t sequence, bytes noise)
    cdef int apply_dead(self) except -1
