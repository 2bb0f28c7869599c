"""Filter: which subjects a reader wants, asked again and again for the same subjects.

Promise
- A verdict is remembered with the birth of the slot it is about, so a slot that got another subject
  is asked anew; births never repeat within 2^31 (subject_index.pxd).
- Patterns that another one includes are dropped: what is left may overlap, but none is redundant.
- What it costs to ask about a subject grows with its tokens, not with the patterns: those without
  wildcards are sorted, those with wildcards stand in a trie, unless they are few.
- No pattern at all, or an empty one, is `>`, as for nats-server.
- A filter of very many patterns is built in steps (`in_steps`), each of them about a millisecond.

A memo holds 4 bytes for each slot, in pages of 4,096 slots, made when first needed.
"""

from cpython.ref cimport Py_DECREF
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
    PER_STEP = 500                          # patterns that one step of building looks at


cdef inline bint is_wild(bytes pattern) noexcept:
    return not subject_is_literal(pattern, len(pattern))


cdef inline int64_t place_of(Node* node) noexcept:
    return (<Subscription> members_of(&node.plain)[0]).weight


def interest_in(patterns):
    """Build, in steps, a trie of the patterns with wildcards; the place of each pattern is the
    weight of its subscription."""
    cdef Interest interest = Interest()
    for place, pattern in enumerate(patterns):
        if is_wild(pattern):
            interest.insert(Subscription(pattern, weight=place))
        if place % PER_STEP == PER_STEP - 1:
            yield
    return interest


cdef Subscription including(Interest wild, bytes pattern, bint is_itself):
    """One of the trie that includes the pattern: itself, or another one; None: there is none. A
    walk for its text, wildcards and all, finds each that does, and some that do not."""
    cdef Subscription other
    cdef uint32_t at
    if wild.find(pattern, len(pattern)) < 0:
        raise MemoryError()
    for at in range(wild.found.count):
        other = <Subscription> members_of(&wild.found.items[at].plain)[0]
        if (
            (other.subject_bytes == pattern) == is_itself
            and subject_is_subset(pattern, len(pattern), other.text, other.subject_len)
        ):
            return other
    return None


def sorted_patterns(patterns):
    """Sort the patterns, in steps, each of them once. Raises InvalidSubject."""
    cdef bytes text
    cdef set found = set()
    cdef list wanted = []
    cdef list run = []
    for pattern in patterns or (b">",):
        text = wire_bytes(pattern) or b">"
        if text not in found:
            if not subject_is_valid(text, len(text)):
                raise InvalidSubject(f"invalid filter subject {text.decode(errors='replace')!r}")
            found.add(text)
            run.append(text)
        if len(run) == PER_STEP:
            wanted += sorted(run)
            run.clear()
            yield
    wanted += sorted(run)
    yield
    wanted.sort()       # what was sorted in steps is only merged
    yield
    return wanted


def needed_patterns(patterns):
    """Find, in steps, the patterns that no other includes, and a trie of those with wildcards;
    None: there is no trie of just these patterns."""
    cdef Interest wild
    cdef list needed = []
    wanted = yield from sorted_patterns(patterns)
    if len(wanted) == 1 or not any(is_wild(pattern) for pattern in wanted):
        return tuple(wanted), None
    wild = yield from interest_in(wanted)
    for place, pattern in enumerate(wanted):
        if including(wild, pattern, False) is None:
            needed.append(pattern)
        if place % PER_STEP == PER_STEP - 1:
            yield
    return tuple(needed), wild if len(needed) == len(wanted) else None


cdef int take_patterns(Filter to, tuple patterns, Interest wild) except -1:
    cdef bytes pattern
    to.patterns = patterns
    to.count = len(patterns)
    to.each = <NatsPattern*> calloc(to.count, sizeof(NatsPattern))
    to.literals = <uint32_t*> calloc(to.count, sizeof(uint32_t))
    if to.each == NULL or to.literals == NULL:
        raise MemoryError()
    for at, pattern in enumerate(patterns):
        to.each[at].text = pattern
        to.each[at].length = len(pattern)
        to.each[at].is_literal = not is_wild(pattern)
        if to.each[at].is_literal:
            to.literals[to.literal_count] = at
            to.literal_count += 1
    to.is_everything = patterns[0] == b">"
    to.is_literal = to.count == 1 and to.each.is_literal
    if to.count > FEW and to.literal_count < to.count:
        to.wild = wild
    return 0


cdef class Filter:
    def __init__(self, patterns):
        for _ in self.build(patterns):
            pass

    @staticmethod
    def in_steps(patterns):
        """Build the filter in steps: a generator that returns it."""
        cdef Filter wanted = Filter.__new__(Filter)
        yield from wanted.build(patterns)
        return wanted

    def build(self, patterns):
        """Take the patterns, in steps, once."""
        cdef Interest wild
        cdef tuple needed
        assert self.each == NULL
        needed, wild = yield from needed_patterns(patterns)
        if wild is None and len(needed) > FEW and any(is_wild(pattern) for pattern in needed):
            wild = yield from interest_in(needed)
        take_patterns(self, needed, wild)

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

    def release(self):
        """Empty the trie, in steps, of a filter that nobody asks any more: to free the trie of very
        many patterns at once takes as long as to build it."""
        cdef Interest wild = self.wild
        cdef Subscription subscription
        self.wild = None
        for place, pattern in enumerate(() if wild is None else self.patterns):
            subscription = including(wild, pattern, True)
            if subscription is not None:
                wild.remove(subscription)
                Py_DECREF(subscription)     # which was the trie's reference
            if place % PER_STEP == PER_STEP - 1:
                yield

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
