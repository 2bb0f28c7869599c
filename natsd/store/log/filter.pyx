"""Filter: tells which subjects a reader wants; made for many questions about the same subjects.

Promise
- A verdict is remembered with the birth of its slot, so a slot that was given to another subject is
  checked again; births never repeat within 2^31 (subject_index.pxd).
- Patterns that another pattern includes are dropped: the rest may overlap, but none is redundant.
- The cost of matching a subject grows with its tokens, not with the number of patterns: patterns
  without wildcards are sorted; those with wildcards stand in a trie, unless they are few.
- No pattern at all, or an empty one, means `>`, as in nats-server.
- A filter of very many patterns is built in steps (`in_steps`) of about a millisecond each.

The memo holds 4 bytes for each slot, in pages of 4,096 slots, each allocated when first needed.
"""

from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from natsd.core.routing cimport (
    Interest, Node, Subscription, members_of, subject_is_literal, subject_is_subset,
    subject_is_valid, subject_matches, wire_bytes,
)

from natsd.core.routing import InvalidSubject

cdef enum:
    FEW = 8                                 # up to so many patterns are tried one by one
    PER_STEP = 500                          # patterns that one step of building handles


cdef inline bint is_wild(bytes pattern) noexcept:
    return not subject_is_literal(pattern, len(pattern))


cdef inline int64_t place_of(Node* node) noexcept:
    return (<Subscription> members_of(&node.plain)[0]).weight


def interest_in(patterns):
    """Build, in steps, a trie of the patterns with wildcards and return it.

    The weight of each subscription is the index of its pattern.
    """
    cdef Interest interest = Interest()
    for place, pattern in enumerate(patterns):
        if is_wild(pattern):
            interest.insert(Subscription(pattern, weight=place))
        if place % PER_STEP == PER_STEP - 1:
            yield
    return interest


cdef Subscription including(Interest wild, bytes pattern, bint is_itself):
    """Return a subscription of the trie that includes the pattern; None: there is none.

    With `is_itself` only the pattern's own subscription counts, else only others. A lookup of the
    pattern's text, wildcards and all, finds each subscription that includes it, and some that do
    not.
    """
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
    """Sort the patterns, in steps, and return them without duplicates. Raises InvalidSubject."""
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
    wanted.sort()       # merges the sorted runs, which is cheap
    yield
    return wanted


def needed_patterns(patterns):
    """Find, in steps, the patterns that no other pattern includes.

    Returns them with a trie of those that have wildcards, or with None if there is no trie of
    exactly these patterns.
    """
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
    """A set of NATS patterns. Raises InvalidSubject for an invalid one."""

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
        """Set the patterns, in steps; called once."""
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
        """Return whether any pattern matches; tries them one by one."""
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
        """Return the index in `each` of the equal pattern without wildcards; -1: none.

        Uses bisection: these patterns are sorted by their bytes.
        """
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
        # As long as no slot was freed, the record need not be read, which would be a cache miss.
        if memo == 0 or self.frees != subjects.frees and memo >> 1 != subjects.record(slot).birth:
            return -1
        return memo & 1

    cdef int learn(self, SubjectIndex subjects, uint32_t slot, bint verdict) except -1:
        """Remember the verdict on the slot's present subject. Raises MemoryError."""
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
        """Empty the trie of a filter that is not used any more, in steps.

        Freeing the trie of very many patterns at once takes as long as building it.
        """
        cdef Interest wild = self.wild
        cdef Subscription subscription
        self.wild = None
        for place, pattern in enumerate(() if wild is None else self.patterns):
            subscription = including(wild, pattern, True)
            if subscription is not None:
                wild.remove(subscription)
                Py_DECREF(subscription)     # the reference that the trie held
            if place % PER_STEP == PER_STEP - 1:
                yield

    def is_match(self, subject) -> bool:
        """Return whether any pattern matches the subject."""
        cdef bytes name = wire_bytes(subject)
        return self.matches(name, len(name))

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for the patterns and the remembered verdicts, without the trie."""
        cdef uint32_t at
        cdef size_t total = self.count * sizeof(NatsPattern) + self.page_count * sizeof(uint32_t*)
        for at in range(self.page_count):
            if self.pages[at] != NULL:
                total += MEMO_PAGE * sizeof(uint32_t)
        return total
