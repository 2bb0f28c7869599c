"""Matches: the live subjects of an index that a filter matches, in slices, while others write.

A subject that several patterns match is returned for the first of them. A subject that appears or
disappears between two slices may be returned or not; one that exists all the time is returned once.
Between slices (after `pause`) nothing of the trie is held. After PATTERNS_AT_ONCE patterns without
a match, `next` and `take` return although patterns are left: a filter may have 20,000.
"""

cimport cython
from libc.stdint cimport int64_t

from natsd.trie.in_memory cimport PATTERN_END, PatternCursor, prefetch_cell


cdef enum:
    PATTERNS_AT_ONCE = 256      # patterns tried in one call, about 200 us
    NONE_YET = -3


@cython.final    # called for each subject, so the calls should be direct
cdef class Matches:
    """The slots of the live subjects that a filter matches, each once."""

    def __cinit__(self, SubjectIndex subjects, Filter wanted):
        self.subjects = subjects
        self.filter = wanted

    cdef int64_t next(self) except -2:
        cdef int64_t slot
        cdef NatsPattern* wanted
        cdef uint32_t stop = min(self.pattern + PATTERNS_AT_ONCE, self.filter.count)
        while self.pattern < stop:
            wanted = &self.filter.each[self.pattern]
            if wanted.is_literal:
                self.name = wanted.text
                self.name_len = wanted.length
                slot = self.subjects.find(wanted.text, wanted.length)
                self.pattern += 1
            else:
                slot = self.follow()
                if slot < 0:
                    self.pattern += 1
                    self.cursor = None
            if slot >= 0 and self.is_asked_for(slot):
                return slot
        return -1 if stop == self.filter.count else NONE_YET

    cdef int take(self, int64_t* slots, int room) except -1:
        """Fill `slots` with up to `room` slots; return how many, 0: none yet, or no more.

        `name` is not set. All records are prefetched into the cache before the first is read,
        because cache misses take most of the time.
        """
        cdef int taken = 0
        cdef int wanted = 0
        cdef int at
        while taken == 0:
            wanted = self.find_some(slots, room)
            if wanted == 0:
                return 0
            for at in range(wanted):
                if self.is_asked_for(slots[at]):
                    slots[taken] = slots[at]
                    taken += 1
        return taken

    cdef int find_some(self, int64_t* slots, int room) except -1:
        """Fill `slots` with matched subjects, with or without messages; return how many."""
        cdef int found = 0
        cdef int64_t slot
        cdef uint32_t stop = min(self.pattern + PATTERNS_AT_ONCE, self.filter.count)
        while found < room and self.pattern < stop:
            if self.filter.each[self.pattern].is_literal:
                slot = self.next()
            else:
                slot = self.follow()
                if slot < 0:
                    self.pattern += 1
                    self.cursor = None
                    continue
            if slot < 0:
                break
            prefetch_cell(self.subjects.record(slot))
            slots[found] = slot
            found += 1
        return found

    cdef int64_t follow(self) except -2:
        """Return the next slot that the current pattern matches and no earlier one; -1: no more."""
        cdef int64_t slot
        if self.cursor is None:
            self.cursor = PatternCursor(self.subjects.trie, self.filter.patterns[self.pattern])
            self.cursor.pin()
        elif self.is_paused:
            if self.cursor.restart() < 0:
                raise MemoryError()
            self.cursor.pin()
        self.is_paused = False
        while True:
            slot = self.cursor.next()
            if slot == PATTERN_END:
                return -1
            if slot < 0:
                raise MemoryError()
            self.name = <const char*> self.cursor.key
            self.name_len = self.cursor.key_len
            if not self.is_repeated():
                return slot

    cdef bint is_asked_for(self, int64_t slot) noexcept nogil:
        return (self.subjects.record(slot).count == 0) == self.only_ghosts

    cdef bint is_repeated(self) except -1:
        """Return whether a pattern before the current one matches the name too."""
        if self.pattern == 0:
            return False
        return self.filter.first_match(self.name, self.name_len) < self.pattern

    cdef int pause(self) except -1:
        """Release the trie until the next call."""
        if self.cursor is not None and not self.is_paused:
            self.cursor.unpin()
            self.cursor.close()
            self.is_paused = True
        return 0
