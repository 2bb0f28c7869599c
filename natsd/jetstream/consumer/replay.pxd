"""Replay as it was published, for compiled callers: see replay.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.record cimport RecordView


cdef class Replay:
    cdef bint is_on
    cdef uint64_t until         # what was there when it began
    cdef uint64_t sequence      # of the message that waits
    cdef int64_t due_ns         # until when; 0: not measured
    cdef int64_t time_ns        # of the message before; 0: none

    cdef int begin(self, bint is_on, uint64_t until) noexcept
    cdef int64_t due(self, RecordView* view, int64_t now_ns) noexcept
    cdef int sent(self, RecordView* view) noexcept
    cdef int read_before(self, uint64_t next_sequence) noexcept
