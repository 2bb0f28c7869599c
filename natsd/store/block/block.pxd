"""The declarations of block.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from natsd.store.block.array cimport Array
from natsd.store.codec.records cimport RecordView
from natsd.store.sequence_set cimport SequenceSet


cdef enum Found:
    COLD = -1                   # unknown: the needed data is not in memory
    ABSENT = 0
    FOUND = 1


cdef struct Point:              # a state to which a block can be rolled back
    uint32_t size
    uint64_t last_sequence
    uint64_t chain
    uint64_t commit_number
    uint64_t last_checksum


cdef class MsgBlock:
    cdef readonly uint32_t block_id
    cdef readonly uint32_t max_bytes
    cdef readonly uint64_t seed
    cdef readonly uint64_t base_sequence    # next sequence of the stream when the block began
    cdef readonly uint64_t last_sequence    # last one written or reserved; base_sequence - 1: none
    cdef readonly uint32_t size             # logical bytes, header included
    cdef readonly uint64_t live_bytes       # record bytes of messages that are not removed
    cdef readonly uint32_t message_count    # messages that are not removed
    cdef readonly uint64_t commit_number    # of the last mark
    cdef readonly BlockExtent in_flight     # being committed; None: nothing
    cdef Point taken, durable               # end of `in_flight`; end of the committed bytes

    # The arrays are the offsets and slots of the messages. Without them, `dead` holds every
    # sequence between base_sequence and last_sequence that is no live message.
    cdef BlockIndex index
    cdef readonly bint has_arrays
    cdef bint arrays_used       # since the last call of `take_arrays_used`
    cdef bint cache_used        # since the last call of `take_cache_used`
    cdef readonly SequenceSet dead          # None while has_arrays
    cdef readonly SequenceSet skipped       # reserved without a message; None: no sequence
    cdef Array interruptions                # uint32_t offsets of non-message records, ascending

    # The cached bytes, from `cache_start` on: the whole block, or only the bytes that were not on
    # disk when the cache was cleared.
    cdef object holder                      # BlockBuffer, loaded `bytes`, or None
    cdef unsigned char* data
    cdef uint32_t capacity                  # bytes at `data`; 0: `data` is read-only
    cdef uint32_t cache_start

    cdef uint64_t chain
    cdef uint64_t last_checksum             # of the last record that is no mark; 0: none
    # The last commit on disk is torn: its removals are void, and the next mark says so. An empty
    # record of removals is appended, so that there is a next mark.
    cdef readonly bint void_previous
    cdef readonly bint sealed               # accepts only removals from now on
    cdef uint8_t message_flags              # flags of appended messages: TOGETHER, or 0
    cdef list damage_found

    # Appending. Sequences increase. Returns the record's size in bytes. Raises SequenceMismatch for
    # a sequence that is not above the last one, or that is 2^32 or more above the first; raises
    # BlockFull past 2 GiB. The caller must respect `max_bytes`.
    cdef int64_t append(
        self, uint64_t sequence, int64_t time_ns, int64_t expires_ns,
        const char* subject, uint16_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, uint32_t slot,
    ) except -1
    cdef int64_t append_skip(self, uint64_t sequence, uint64_t count, int64_t time_ns) except -1
    # `encoded` is a SequenceSet's encoding; its sequences may belong to older blocks.
    cdef int64_t append_tombstones(self, bytes encoded, bint erased, int64_t time_ns) except -1
    cdef int64_t room(self) noexcept nogil  # bytes left up to max_bytes; <= 0: full

    # Reading. A view is valid until the block is changed.
    cdef Found find(self, uint64_t sequence) noexcept nogil
    cdef Found view(self, uint64_t sequence, RecordView* out) noexcept nogil
    cdef uint32_t slot_of(self, uint64_t sequence) noexcept nogil   # NO_SLOT: no such message
    cdef void set_slot(self, uint64_t sequence, uint32_t slot) noexcept nogil
    # Return the record's length in bytes, removed or not; 0: no such message, or no arrays.
    cdef uint32_t size_of(self, uint64_t sequence) noexcept nogil
    # Return the first live message at or after `sequence`; 0: none, or no arrays.
    cdef uint64_t next_live(self, uint64_t sequence) noexcept nogil

    # Removing, in memory only. Both return whether the message's state changed.
    cdef bint mark_dead(self, uint64_t sequence) noexcept nogil
    cdef bint mark_live(self, uint64_t sequence) noexcept nogil

    # Committing. At most one extent is in flight; records appended meanwhile go into the next one.
    # `take` returns None if nothing was appended since the last commit and `force` is false; with
    # `force` it takes a mark alone.
    cdef BlockExtent take(
        self, uint64_t commit_number, uint64_t first_sequence, uint64_t last_sequence,
        bint force, bint closing,
    )
    cdef int commit_done(self) except -1
    # Roll back everything that is not durable: the commit in flight and all that follows it.
    cdef int undo(self) except -1

    # Private
    cdef unsigned char* reserve(self, uint64_t sequence, size_t size) except NULL
    cdef int adopt_bytes(self, Scan scan) except -1
    cdef int adopt_arrays(self, Scan scan) except -1
    cdef int own_bytes(self, size_t capacity) except -1
    cdef int expect_full(self) except -1    # it will be filled: allocate all memory now
    # The capacity of a full block in bytes: a full block still takes marks and a few removals, and
    # moving it to a larger buffer would take milliseconds.
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
