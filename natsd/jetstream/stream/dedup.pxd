"""Which message ids were seen within the duplicate window."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct SeenId:             # in the order of sequences and times
    uint64_t hash
    uint64_t sequence
    int64_t time_ns
    uint64_t text_at            # where its bytes begin, counted from the first ever
    uint32_t text_len
    bint is_dropped             # another message has the id since


cdef class DuplicateWindow:
    cdef SeenId* ring           # capacity a power of two; entries head .. tail - 1
    cdef uint64_t ring_mask
    cdef uint64_t head
    cdef uint64_t tail
    cdef char* text             # the ids' bytes, a ring as well, none of them broken in two
    cdef uint64_t text_capacity
    cdef uint64_t text_head
    cdef uint64_t text_tail
    cdef uint64_t* table        # number of an entry + 1, by hash; 0: none
    cdef uint64_t table_mask
    cdef uint64_t seed
    cdef readonly uint64_t count

    # The sequence of the message with that id that is younger than `since_ns`; 0: there is none.
    cdef uint64_t find(self, const char* id, size_t length, int64_t since_ns) noexcept nogil
    # Sequences increase. The id is copied.
    cdef int add(self, const char* id, size_t length, uint64_t sequence, int64_t time_ns) except -1
    # Forget what is of `until_ns` or older, at most `most` ids. True: there is more.
    cdef bint expire(self, int64_t until_ns, uint64_t most) noexcept nogil
    cdef int forget_above(self, uint64_t sequence) except -1
    cdef int64_t oldest_ns(self) noexcept nogil         # 0: none is known

    cdef uint64_t slot_of(self, uint64_t hash, const char* id, size_t length) noexcept nogil
    cdef void unlist(self, SeenId* seen, uint64_t number) noexcept nogil
    cdef int grow(self) except -1
    cdef int grow_text(self, size_t need) except -1
