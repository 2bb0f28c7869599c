"""Filter: which subjects a reader wants, asked again and again for the same subjects.

Promise
- A verdict is remembered with the birth of the slot it is about, so a slot that got another subject
  is asked anew; births never repeat within 2^31 (subject_index.pxd).
- Patterns that another one includes are dropped: what is left may overlap, but none is redundant.
- No pattern at all, or an empty one, is `>`, as for nats-server.

A memo holds 4 bytes for each slot, in pages of 4,096 slots, made when first needed.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from natsd.core.subject cimport (
    subject_is_literal, subject_is_subset, subject_is_valid, subject_matches, wire_bytes,
)
from natsd.store.subject_index cimport SubjectIndex

from natsd.core.subject import InvalidSubject


cdef bint includes(bytes pattern, bytes other):
    return subject_is_subset(other, len(other), pattern, len(pattern))


cdef tuple needed_patterns(patterns):
    """Without those that another includes."""
    wanted = sorted({wire_bytes(pattern) or b">" for pattern in patterns} or {b">"})
    for pattern in wanted:
        if not subject_is_valid(pattern, len(pattern)):
            raise InvalidSubject(f"invalid filter subject {pattern.decode(errors='replace')!r}")
    if len(wanted) == 1:
        return tuple(wanted)
    return tuple(
        pattern for pattern in wanted
        if not any(other != pattern and includes(other, pattern) for other in wanted)
    )


cdef class Filter:
    def __cinit__(self, patterns):
        cdef bytes pattern
        self.patterns = needed_patterns(patterns)
        self.count = len(self.patterns)
        self.each = <NatsPattern*> calloc(self.count, sizeof(NatsPattern))
        if self.each == NULL:
            raise MemoryError()
        for at, pattern in enumerate(self.patterns):
            self.each[at].text = pattern
            self.each[at].length = len(pattern)
            self.each[at].is_literal = subject_is_literal(pattern, len(pattern))
        self.is_everything = self.patterns[0] == b">"
        self.is_literal = self.count == 1 and self.each.is_literal

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.page_count):
            free(self.pages[at])
        free(self.pages)
        free(self.each)

    cdef bint matches(self, const char* subject, Py_ssize_t length) noexcept nogil:
        cdef uint32_t at
        if self.is_everything:
            return True
        for at in range(self.count):
            if subject_matches(subject, length, self.each[at].text, self.each[at].length):
                return True
        return False

    cdef int known(self, SubjectIndex subjects, uint32_t slot) noexcept nogil:
        cdef uint32_t page = slot >> MEMO_PAGE_BITS, memo
        if page >= self.page_count or self.pages[page] == NULL:
            return -1
        memo = self.pages[page][slot & (MEMO_PAGE - 1)]
        # As long as no slot was given back, there is no need to look at the record: a cache miss.
        if memo == 0 or self.frees != subjects.frees and memo >> 1 != subjects.record(slot).birth:
            return -1
        return memo & 1

    cdef int learn(self, SubjectIndex subjects, uint32_t slot, bint verdict) except -1:
        cdef uint32_t page = slot >> MEMO_PAGE_BITS
        cdef uint32_t birth = subjects.record(slot).birth
        cdef uint32_t** pages
        assert 0 < birth
        if not self.has_learned:
            self.has_learned = True
            self.frees = subjects.frees
        if page >= self.page_count:
            pages = <uint32_t**> realloc(self.pages, (page + 1) * sizeof(uint32_t*))
            if pages == NULL:
                raise MemoryError()
            memset(&pages[self.page_count], 0, (page + 1 - self.page_count) * sizeof(uint32_t*))
            self.pages = pages
            self.page_count = page + 1
        if self.pages[page] == NULL:
            self.pages[page] = <uint32_t*> calloc(MEMO_PAGE, sizeof(uint32_t))
            if self.pages[page] == NULL:
                raise MemoryError()
        self.pages[page][slot & (MEMO_PAGE - 1)] = birth << 1 | verdict
        return 0

    def is_match(self, subject) -> bool:
        cdef bytes name = wire_bytes(subject)
        return self.matches(name, len(name))

    @property
    def memory_bytes(self) -> int:
        cdef uint32_t at
        cdef size_t total = self.count * sizeof(NatsPattern) + self.page_count * sizeof(uint32_t*)
        for at in range(self.page_count):
            if self.pages[at] != NULL:
                total += MEMO_PAGE * sizeof(uint32_t)
        return total
