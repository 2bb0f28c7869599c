"""The readers that match the subject of a slot, found once for each subject; readers' filters."""

from libc.stdint cimport uint32_t

from natsd.core.routing cimport MatchResult, Sink
from natsd.store.log.subjects cimport Filter, SubjectIndex

cdef enum:
    SLOT_PAGE_BITS = 10
    SLOT_PAGE = 1 << SLOT_PAGE_BITS

cdef struct KnownSlot:
    uint32_t birth              # 0: the readers are not known
    uint32_t readers            # an index into `sets`


cdef class ReaderFilters(Sink):     # the sink of `subscriptions`
    cdef object reader          # the Reader with these filters; None: not in force
    cdef list subscriptions     # in the stream's SubList; empty: every message
    cdef readonly Filter filter     # the patterns, to search the log; None: every message
    cdef bint is_leaving        # they are being taken out of the SubList


# Tell whether any of the matching filters is in force.
cdef bint is_any_in_force(MatchResult found) except -1
# Return the readers of the matching filters that are in force, each of them once.
cdef set readers_in(MatchResult found)


cdef class SlotReaders:
    cdef KnownSlot** pages
    cdef uint32_t page_count
    cdef list sets              # tuples of readers
    cdef dict numbers           # the same tuples -> their index

    # Return the readers of the slot's present subject; None: not known.
    cdef tuple readers_of(self, SubjectIndex subjects, uint32_t slot)
    cdef tuple learn(self, SubjectIndex subjects, uint32_t slot, MatchResult found)
    cdef void forget(self) noexcept
    cdef void free_pages(self) noexcept
    cdef KnownSlot* place_for(self, uint32_t slot) except NULL
