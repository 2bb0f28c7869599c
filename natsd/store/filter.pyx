"""Filter: which subjects a reader wants, asked again and again for the same subjects.

Promise
- A verdict is remembered with the birth of the slot it is about, so a slot that got another subject
  is asked anew; births never repeat within 2^31 (subject_index.pxd).
- Patterns that another one includes are dropped: what is left may overlap, but none is redundant.
- What it costs to ask about a subject grows with its tokens, not with the patterns: those without
  wildcards are sorted, those with wildcards stand in a trie, unless they are few.
- No pattern at all, or an empty one, is `>`, as for nats-server.

A memo holds 4 bytes for each slot, in pages of 4,096 slots, made when first needed.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from natsd.core.interest cimport Interest, Node, members_of
from natsd.core.subject cimport (
    subject_is_literal, subject_is_subset, subject_is_valid, subject_matches, wire_bytes,
)
from natsd.core.subscription cimport Subscription
from natsd.store.subject_index cimport SubjectIndex

from natsd.core.subject import InvalidSubject

cdef enum:
    FEW = 8                                 # patterns that are asked one by one


cdef inline bint is_wild(bytes pattern) noexcept:
    return not subject_is_literal(pattern, len(pattern))


cdef inline int64_t place_of(Node* node) noexcept:
    return (<Subscription> members_of(&node.plain)[0]).weight


cdef Interest interest_in(patterns):
    """A trie of those with wildcards; the place of each is the weight of its subscription."""
    cdef Interest interest = Interest()
    for place, pattern in enumerate(patterns):
        if is_wild(pattern):
            interest.insert(Subscription(pattern, weight=place))
    return interest


cdef bint is_included(Interest wild, bytes pattern) except -1:
    """Does another one include the pattern? A walk for its text, wildcards and all, finds each
    pattern that does, and some that do not."""
    cdef Subscription other
    cdef uint32_t at
    if wild.find(pattern, len(pattern)) < 0:
        raise MemoryError()
    for at in range(wild.found.count):
        other = <Subscription> members_of(&wild.found.items[at].plain)[0]
        if (
            other.subject_bytes != pattern
            and subject_is_subset(pattern, len(pattern), other.text, other.subject_len)
        ):
            return True
    return False


cdef tuple needed_patterns(patterns):
    """Those that no other includes, and a trie of those with wildcards; None: there is none of just
    these."""
    cdef Interest wild
    wanted = sorted({wire_bytes(pattern) or b">" for pattern in patterns} or {b">"})
    for pattern in wanted:
        if not subject_is_valid(pattern, len(pattern)):
            raise InvalidSubject(f"invalid filter subject {pattern.decode(errors='replace')!r}")
    if len(wanted) == 1 or not any(is_wild(pattern) for pattern in wanted):
        return tuple(wanted), None
    wild = interest_in(wanted)
    needed = tuple(pattern for pattern in wanted if not is_included(wild, pattern))
    return needed, wild if len(needed) == len(wanted) else None


cdef class Filter:
    def __cinit__(self, patterns):
        cdef bytes pattern
        cdef Interest wild
        self.patterns, wild = needed_patterns(patterns)
        self.count = len(self.patterns)
        self.each = <NatsPattern*> calloc(self.count, sizeof(NatsPattern))
        self.literals = <uint32_t*> calloc(self.count, sizeof(uint32_t))
        if self.each == NULL or self.literals == NULL:
            raise MemoryError()
        for at, pattern in enumerate(self.patterns):
            self.each[at].text = pattern
            self.each[at].length = len(pattern)
            self.each[at].is_literal = not is_wild(pattern)
            if self.each[at].is_literal:
                self.literals[self.literal_count] = at
                self.literal_count += 1
        self.is_everything = self.patterns[0] == b">"
        self.is_literal = self.count == 1 and self.each.is_literal
        if self.count > FEW and self.literal_count < self.count:
            self.wild = interest_in(self.patterns) if wild is None else wild

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.page_count):
            free(self.pages[at])
        free(self.pages)
        free(self.each)
        free(self.literals)

    cdef bint matches(self, const char* subject, Py_ssize_t length) noexcept nogil:
        cdef int walked
        if self.is_everything:
            return True
        if self.count <= FEW:
            return self.matches_any(subject, length)
        if self.find_literal(subject, length) >= 0:
            return True
        if self.wild is None:
            return False
        walked = self.wild.find(subject, length)
        return self.wild.found.count > 0 if walked >= 0 else self.matches_any(subject, length)

    cdef bint matches_any(self, const char* subject, Py_ssize_t length) noexcept nogil:
        """One by one."""
        cdef uint32_t at
        for at in range(self.count):
            if subject_matches(subject, length, self.each[at].text, self.each[at].length):
                return True
        return False

    cdef int64_t first_match(self, const char* subject, Py_ssize_t length) except -2:
        cdef uint32_t at
        cdef int64_t literal, wild = -1
        cdef Node* node
        if self.count <= FEW:
            for at in range(self.count):
                if subject_matches(subject, length, self.each[at].text, self.each[at].length):
                    return at
            return -1
        literal = self.find_literal(subject, length)
        if self.wild is None:
            return literal
        if self.wild.find(subject, length) < 0:
            raise MemoryError()
        for at in range(self.wild.found.count):
            node = self.wild.found.items[at]
            if wild < 0 or place_of(node) < wild:
                wild = place_of(node)
        if literal < 0 or 0 <= wild < literal:
            return wild
        return literal

    cdef int64_t find_literal(self, const char* subject, Py_ssize_t length) noexcept nogil:
        """By halves: they are in the order of their bytes."""
        cdef uint32_t low = 0, high = self.literal_count, middle
        cdef NatsPattern* pattern
        cdef int order
        while low < high:
            middle = (low + high) >> 1
            pattern = &self.each[self.literals[middle]]
            order = memcmp(pattern.text, subject, <size_t> min(pattern.length, length))
            if order == 0 and pattern.length == length:
                return self.literals[middle]
            if order < 0 or order == 0 and pattern.length < length:
                low = middle + 1
            else:
                high = middle
        return -1

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
