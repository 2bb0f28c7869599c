"""One page of a SequenceSet: the subset of 65,536 neighbouring sequences that the set contains.

    Entry   key    ┌─────────────────────── 48 ┬── 16 ┐
                   │ page = sequence >> 16     │ kind │
                   └───────────────────────────┴──────┘
            body   FULL      number of whole pages from this one on
                   ONE, TWO  that many runs, here: [first u16, last u16] [first u16, last u16]
                   RUNS      ─▶ Page ┌ size u32 │ count u16 │ capacity u16 ┐ [first, last]…
                   BITMAP    ─▶ Page ┌ size u32 │     -     │      -       ┐ 65,536 bits

Runs are sorted, with at least one absent sequence between them. A page with more than RUNS_MAX runs
is a bitmap: alternating sequences cost two bits each, a lone run 16 bytes. No entry is empty, and a
page that has all its sequences is FULL (sequence_set.pyx ensures both).
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef enum:
    PAGE_BITS = 16
    PAGE_SIZE = 1 << 16
    RUNS_MAX = 2048             # runs that take as much memory as a bitmap

cdef enum PageKind:
    FULL = 0
    ONE = 1
    TWO = 2
    RUNS = 3
    BITMAP = 4

cdef struct Run:
    uint16_t first
    uint16_t last

cdef struct Page:
    uint32_t size               # number of the page's sequences in the set
    uint16_t count              # number of runs
    uint16_t capacity

cdef union Body:
    uint64_t pages
    Run runs[2]
    Page* page

cdef struct Entry:
    uint64_t key
    Body body


cdef inline uint64_t page_of(const Entry* entry) noexcept nogil:
    return entry.key >> PAGE_BITS


cdef inline uint32_t kind_of(const Entry* entry) noexcept nogil:
    return <uint32_t> (entry.key & 0xffff)


# Only `page_free` and `page_bytes` accept a FULL entry. Places in a page are 0..65,535; PAGE_SIZE
# means none.
cdef uint32_t page_size(const Entry* entry) noexcept nogil
cdef bint page_contains(const Entry* entry, uint32_t place) noexcept nogil
cdef uint32_t page_next_present(const Entry* entry, uint32_t place) noexcept nogil
cdef uint32_t page_next_absent(const Entry* entry, uint32_t place) noexcept nogil
# Return one more than the last absent place at or below `place`; 0: none.
cdef uint32_t page_absent_before(const Entry* entry, uint32_t place) noexcept nogil
cdef uint32_t page_rank(const Entry* entry, uint32_t through) noexcept nogil
# Return how many sequences were added or removed; -1: out of memory, and nothing changed.
cdef int page_add(Entry* entry, uint32_t first, uint32_t last) noexcept nogil
cdef int page_discard(Entry* entry, uint32_t first, uint32_t last) noexcept nogil
cdef int page_copy(Entry* to, const Entry* entry) noexcept nogil
cdef int page_copy_as_bits(Entry* to, const Entry* entry) noexcept nogil
cdef void page_free(Entry* entry) noexcept nogil
cdef size_t page_bytes(const Entry* entry) noexcept nogil
