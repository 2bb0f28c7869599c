"""The commits of a log, for compiled callers."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from natsd.store.log.subjects cimport SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


@cython.final
cdef class LogCommits:
    cdef readonly MessageLog log
    cdef Sealed sealed                      # the commit in flight, or None
    cdef readonly SequenceSet erased        # durably removed, to be overwritten by the store now

    cdef Edges known(self) noexcept         # the durable edges, or those in flight
    cdef bint awaits_replicas(self) noexcept    # the commit in flight must not be written yet
    cdef bint has_changes(self) except -1   # whether there is a change that no commit has taken
    cpdef list take(self, uint64_t commit_number, bint force=*, bint closing=*)
    cdef list take_blocks(self, uint64_t commit_number, bint closing)
    cdef int write_removals(self) except -1
    cdef bint leaves_out(self) except -1
    cpdef list committed(self)
    cpdef list rolled_back(self)
    cdef list return_to_first_state(self)
    cdef int undo_changes(self) except -1
    cdef int undo_appends(self) except -1


cdef class Sealed:
    cdef UndoLog undo_log
    cdef size_t removals
    cdef Py_ssize_t begun
    cdef Py_ssize_t retired
    cdef Py_ssize_t replaced
    cdef uint32_t expired
    cdef uint32_t removed_names
    cdef SubjectIndex subjects
    cdef Edges edges
    cdef SequenceSet erasures
    cdef list blocks
    cdef uint64_t applied_index
