"""The live subjects that a filter matches, for compiled callers."""

from libc.stdint cimport int64_t, uint32_t

from natsd.trie.in_memory cimport PatternCursor


cdef class Matches:
    cdef SubjectIndex subjects
    cdef Filter filter
    cdef uint32_t pattern               # index of the pattern that is being followed
    cdef PatternCursor cursor           # None: not created yet
    cdef bint is_paused
    cdef bint only_ghosts               # return only subjects without a message instead
    cdef const char* name               # the last subject; valid until the next call of `next`
    cdef Py_ssize_t name_len

    # Return the slot of the next subject with a message, each subject once; -1: no more; NONE_YET:
    # call again.
    cdef int64_t next(self) except -2
    cdef int take(self, int64_t* slots, int room) except -1
    cdef int find_some(self, int64_t* slots, int room) except -1
    cdef int64_t follow(self) except -2
    cdef bint is_asked_for(self, int64_t slot) noexcept nogil
    cdef bint is_repeated(self) except -1
    cdef int pause(self) except -1
