"""The message ids that were seen within the duplicate window."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    SEEN_PAGE_BITS = 8
    SEEN_PAGE = 1 << SEEN_PAGE_BITS
    BUCKET_SLOTS = 7
    BUCKET_PAGE_BITS = 7
    BUCKET_PAGE = 1 << BUCKET_PAGE_BITS

cdef struct SeenId:
    uint64_t sequence
    int64_t time_ns
    uint32_t tag
    uint32_t text_at            # offset in the text of its page
    uint32_t text_len
    bint is_listed              # False: a later message has the same id

cdef struct SeenPage:
    SeenId ids[SEEN_PAGE]
    char* text
    uint32_t text_used
    uint32_t text_room

cdef struct IdSlot:
    uint32_t tag                # 32 bits of the id's hash; 0: the slot is empty
    uint32_t number             # the id's number modulo 2^32

cdef struct IdBucket:           # a cache line
    IdSlot slots[BUCKET_SLOTS]  # the empty ones are the last ones of the chain
    IdBucket* more              # NULL: the chain ends


cdef class DuplicateWindow:
    # Ids are numbered in the order of their arrival; those from `head` to `tail` - 1 are kept.
    cdef SeenPage** pages       # the page of number n: pages[(n >> SEEN_PAGE_BITS) - page_base]
    cdef uint64_t page_base
    cdef uint64_t page_count
    cdef uint64_t page_room
    cdef uint64_t head
    cdef uint64_t tail
    # Linear hashing: one more bucket for each IDS_PER_BUCKET ids more.
    cdef IdBucket** buckets
    cdef uint64_t bucket_count
    cdef uint64_t bucket_pages
    cdef uint64_t mask          # 2^n - 1, at least bucket_count - 1
    cdef uint64_t seed
    cdef readonly uint64_t count        # number of listed ids

    # Return the sequence of the message with that id whose time is after `since_ns`; 0: none.
    cdef uint64_t find(self, const char* id, size_t length, int64_t since_ns) noexcept nogil
    # Add an id, which is copied; sequences increase.
    cdef int add(self, const char* id, size_t length, uint64_t sequence, int64_t time_ns) except -1
    # Returns 1 if it was here.
    cdef int forget(self, const char* id, size_t length) noexcept nogil
    # Forget ids of messages of `until_ns` or older, `most` ids at most. True: there are more.
    cdef bint expire(self, int64_t until_ns, uint64_t most) except -1
    # Forget ids of messages above `sequence`, `most` ids at most. True: there are more.
    cdef bint forget_above(self, uint64_t sequence, uint64_t most) except -1
    cdef int64_t oldest_ns(self) noexcept nogil         # Time of the oldest id; 0: none.

    cdef SeenId* entry(self, uint64_t number) noexcept nogil
    cdef const char* text_of(self, uint64_t number) noexcept nogil
    cdef uint32_t tag_of(self, const char* id, size_t length) noexcept nogil
    cdef uint64_t number_of(self, IdSlot* slot) noexcept nogil
    cdef IdBucket* bucket(self, uint64_t index) noexcept nogil
    cdef IdBucket* bucket_of(self, uint32_t tag) noexcept nogil
    # Return the slot of an id; NULL: it is not listed.
    cdef IdSlot* look_up(self, uint32_t tag, const char* id, size_t length) noexcept nogil
    cdef void unlist(self, uint64_t number) noexcept nogil
    cdef int add_page(self) except -1
    cdef int add_bucket(self) except -1
    # Remove the last bucket; its ids move back to the bucket they came from. False: not now.
    cdef bint drop_bucket(self) noexcept nogil
    cdef SeenPage* page_for(self, uint64_t number) except NULL
    cdef int add_text(self, SeenPage* page, const char* id, uint32_t length) except -1
    cdef void drop_first_page(self) noexcept nogil
    cdef void release(self) noexcept nogil
