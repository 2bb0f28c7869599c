"""Which readers the subject of a slot concerns, found out once for each subject; their filters."""

from libc.stdint cimport uint32_t

from natsd.core.match_result cimport MatchResult
from natsd.core.subscription cimport Sink
from natsd.store.filter cimport Filter
from natsd.store.subject_index cimport SubjectIndex

cdef enum:
    SLOT_PAGE_BITS = 10
    SLOT_PAGE = 1 << SLOT_PAGE_BITS

cdef struct KnownSlot:
    uint32_t birth              # 0: not known
    uint32_t readers            # an index into `sets`


cdef class ReaderFilters(Sink):     # the sink of `subscriptions`
    cdef object reader          # the Reader that they speak for; None: they are not in force
    cdef list subscriptions     # in the stream's SubList; empty: every message is wanted
    cdef readonly Filter filter     # the same patterns, to search the log with; None: every message
    cdef bint is_leaving        # they are being taken out of the SubList


# Whether any filter that is in force is among those that a subject matches.
cdef bint is_any_in_force(MatchResult found) except -1
# The readers whose filters are in force and among those; each of them once.
cdef set readers_in(MatchResult found)


cdef class SlotReaders:
    cdef KnownSlot** pages
    cdef uint32_t page_count
    cdef list sets              # tuples of readers
    cdef dict numbers           # the same tuples -> their index

    # The readers of the subject that this slot is now of; None: not known.
    cdef tuple readers_of(self, SubjectIndex subjects, uint32_t slot)
    cdef tuple learn(self, SubjectIndex subjects, uint32_t slot, MatchResult found)
    cdef void forget(self) noexcept
    cdef void free_pages(self) noexcept
    cdef KnownSlot* place_for(self, uint32_t slot) except NULL
