"""The declarations of subject_snapshot.pyx."""

from libc.stdint cimport int64_t

from natsd.trie.in_memory cimport PatternCursor


cdef class SubjectSnapshot:
    cdef readonly SubjectIndex index
    cdef FrozenSubjects frozen
    cdef PatternCursor cursor
    cdef bint begun                         # the piece has a name; the next may share bytes
    cdef bytearray piece
    cdef bytearray name                     # the last written name

    cdef bint was_there(self, int64_t slot, Subject* record) noexcept
    cdef int write(
        self, const unsigned char* name, Py_ssize_t length, const Subject* record
    ) except -1
    cdef void release(self) noexcept
