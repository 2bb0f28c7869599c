"""SlotReaders: a memo from a subject's slot to the readers whose filters match it.

ReaderFilters are the filters of one reader. There may be 20,000 of them, so they come into the
stream's SubList, and leave it, in steps (stream_readers.pyx). One pointer, `reader`, says whether
they are in force: it is set when the last filter is in, and cleared before the first one is taken
out.

Promise
- Filters that are not in force match nothing.
- A result is noted with the birth of its slot: a slot that got another subject is looked up anew
  (subject_index.pxd). When filters change, or the index is replaced, all results are forgotten.
- Subjects with the same readers share one tuple; the memo costs 8 bytes for each slot, in pages
  that are made when first needed, and SETS_MAX tuples at most.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from natsd.core.routing cimport MatchResult, Sink, plain_at
from natsd.store.log.subjects cimport SubjectIndex

cdef enum:
    SETS_MAX = 65_536


cdef class ReaderFilters(Sink):
    """The filters of one reader; slot_readers.pxd lists the fields."""

    def __cinit__(self):
        self.subscriptions = []


cdef inline object reader_at(MatchResult found, uint32_t at):
    """Return the reader of the matching filter at `at`; None: the filter is not in force."""
    return (<ReaderFilters?> plain_at(found, at).sink).reader


cdef bint is_any_in_force(MatchResult found) except -1:
    cdef uint32_t at
    for at in range(found.plain_local.count):
        if reader_at(found, at) is not None:
            return True
    return False


cdef set readers_in(MatchResult found):
    cdef uint32_t at
    cdef set readers = set()
    for at in range(found.plain_local.count):
        readers.add(reader_at(found, at))
    readers.discard(None)
    return readers


cdef class SlotReaders:
    def __cinit__(self):
        self.sets = []
        self.numbers = {}

    def __dealloc__(self):
        self.free_pages()

    cdef void free_pages(self) noexcept:
        cdef uint32_t at
        for at in range(self.page_count):
            free(self.pages[at])
        free(self.pages)
        self.pages = NULL
        self.page_count = 0

    cdef void forget(self) noexcept:
        self.free_pages()
        self.sets.clear()
        self.numbers.clear()

    cdef tuple readers_of(self, SubjectIndex subjects, uint32_t slot):
        cdef uint32_t page = slot >> SLOT_PAGE_BITS
        cdef KnownSlot* known
        if page >= self.page_count or self.pages[page] == NULL:
            return None
        known = &self.pages[page][slot & (SLOT_PAGE - 1)]
        if known.birth == 0 or known.birth != subjects.record(slot).birth:
            return None
        return <tuple> self.sets[known.readers]

    cdef tuple learn(self, SubjectIndex subjects, uint32_t slot, MatchResult found):
        cdef KnownSlot* known
        readers = tuple(sorted(readers_in(found), key=id))
        number = self.numbers.get(readers)
        if number is None:
            if len(self.sets) >= SETS_MAX:
                self.forget()
            number = len(self.sets)
            self.sets.append(readers)
            self.numbers[readers] = number
        known = self.place_for(slot)
        known.birth = subjects.record(slot).birth
        known.readers = number
        return readers

    cdef KnownSlot* place_for(self, uint32_t slot) except NULL:
        cdef uint32_t page = slot >> SLOT_PAGE_BITS
        cdef KnownSlot** pages
        if page >= self.page_count:
            pages = <KnownSlot**> realloc(self.pages, (page + 1) * sizeof(KnownSlot*))
            if pages == NULL:
                raise MemoryError()
            memset(&pages[self.page_count], 0, (page + 1 - self.page_count) * sizeof(KnownSlot*))
            self.pages = pages
            self.page_count = page + 1
        if self.pages[page] == NULL:
            self.pages[page] = <KnownSlot*> calloc(SLOT_PAGE, sizeof(KnownSlot))
            if self.pages[page] == NULL:
                raise MemoryError()
        return &self.pages[page][slot & (SLOT_PAGE - 1)]
