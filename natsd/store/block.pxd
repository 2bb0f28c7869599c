"""See block.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from natsd.store.block_index cimport BlockIndex
from natsd.store.record cimport RecordView, StoredMessage
from natsd.store.scan cimport Scan


cdef enum Found:
    COLD = -1                   # it may be there, but what tells is not in memory
    ABSENT = 0
    FOUND = 1


cdef class BlockBuffer:
    """Bytes that never move; freed with the last extent that refers to them."""
    cdef unsigned char* data
    cdef uint32_t capacity


cdef class BlockExtent:
    """What one commit writes: bytes `offset` .. `offset + length` of the block."""
    cdef object holder          # keeps `data` where it is
    cdef const unsigned char* data
    cdef readonly uint32_t offset
    cdef readonly uint32_t length
    cdef readonly uint64_t commit_number
    cdef readonly uint64_t last_sequence


cdef class MsgBlock:
    cdef readonly uint32_t block_id
    cdef readonly uint32_t max_bytes
    cdef readonly uint64_t seed
    cdef readonly uint64_t base_sequence    # the next sequence of the stream when it began
    cdef readonly uint64_t last_sequence    # written or reserved; base_sequence - 1: none
    cdef readonly uint64_t max_skip_sequence
    cdef readonly uint32_t size             # logical bytes, header included
    cdef readonly uint32_t durable_size     # so many of them are on disk
    cdef readonly uint64_t live_bytes       # record bytes of messages that are not removed
    cdef readonly uint32_t message_count    # messages that are not removed
    cdef readonly uint64_t commit_number    # of the last mark
    cdef readonly uint64_t durable_commit_number
    cdef readonly BlockExtent in_flight          # taken, and neither committed nor rolled back

    # `arrays` are offsets and slots; without them nothing is known of single sequences.
    cdef BlockIndex index
    cdef bint arrays
    # The bytes from `cache_start` on; has_cache when that is 0.
    cdef object holder                      # BlockBuffer, or a bytes object that was loaded
    cdef unsigned char* data
    cdef uint32_t cache_start
    cdef uint32_t capacity

    cdef uint64_t chain, extent_chain, durable_chain
    cdef uint64_t durable_last_sequence, durable_max_skip, extent_max_skip
    cdef uint32_t* interruptions            # where other than messages stands, ascending
    cdef uint32_t interruption_count, interruption_capacity
    cdef bint void_previous, sealed
    cdef list damage
    cdef readonly object file               # DiskFile | None
    cdef readonly object disk
    cdef readonly object path
    cdef list unsaved_removals, unsaved_erasures

    # Appending. Sequences increase; the record's size is returned. Raises BlockFull past 2 GiB and
    # SequenceMismatch for a sequence that is not above the last or 2^32 and more above the base.
    cdef int64_t append(
        self, uint64_t sequence, int64_t time_ns, int64_t expires_ns,
        const char* subject, uint16_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, uint32_t slot,
    ) except -1
    cdef int64_t append_skip(self, uint64_t sequence, uint64_t count, int64_t time_ns) except -1
    # `encoded` is a SequenceSet's encoding; the sequences may be those of older blocks.
    cdef int64_t append_tombstones(self, bytes encoded, bint erased, int64_t time_ns) except -1
    cdef int64_t room(self) noexcept        # bytes left up to max_bytes; 0 or less: full

    # Reading. A view is good until the block is changed.
    cdef Found find(self, uint64_t sequence) noexcept nogil         # needs arrays
    cdef Found view(self, uint64_t sequence, RecordView* out) noexcept nogil  # arrays and cache
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
    # Undo everything that is not durable: in flight and after. Slots of the log stay its own.
    cdef int undo(self) except -1
