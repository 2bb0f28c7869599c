"""Reading a log at length: see search.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.filter cimport Filter
from natsd.store.log cimport MessageLog, Outcome
from natsd.store.matches cimport Matches
from natsd.store.subject_index cimport SubjectIndex


cdef class Operation:
    cdef MessageLog log
    cdef SubjectIndex subjects          # those it began with
    cdef Filter filter
    cdef Matches matches                # None: all seen
    cdef readonly object result

    # Some of it; True: all is done. Raises ColdBlock, and nothing is lost by that.
    cpdef bint step(self, uint64_t budget) except? -1
    cdef bint work(self, uint64_t budget) except? -1
    cdef int begin(self) except -1
    cdef int need(self, Outcome outcome) except -1
