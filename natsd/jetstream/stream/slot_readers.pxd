"""Which readers the subject of a slot concerns, found out once for each subject."""

from libc.stdint cimport uint32_t

from natsd.core.match_result cimport MatchResult
from natsd.store.subject_index cimport SubjectIndex

cdef enum:
    SLOT_PAGE_BITS = 10
    SLOT_PAGE = 1 << SLOT_PAGE_BITS

cdef struct KnownSlot:
    uint32_t birth              # 0: not known
    uint32_t readers            # an index into `sets`


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
