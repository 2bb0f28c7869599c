"""A MessageLog with commits, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.log.subjects cimport SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


cdef class TransactionalLog(MessageLog):
    cdef Sealed sealed                      # the commit in flight, or None

    cdef Edges known(self) noexcept         # the durable edges, or those in flight
    cdef int write_removals(self) except -1
    cdef list take_blocks(self, uint64_t commit_number, bint closing)
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
