"""The replay at the original pace, for compiled callers; see replay.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.codec.records cimport RecordView


cdef class Replay:
    cdef bint is_on
    cdef uint64_t until         # last sequence that was visible when the replay began
    cdef uint64_t sequence      # sequence of the message that waits
    cdef int64_t due_ns         # when that message is sent; 0: not known
    cdef int64_t time_ns        # time of the message before; 0: none

    cdef int begin(self, bint is_on, uint64_t until) noexcept
    cdef int64_t due(self, RecordView* view, int64_t now_ns) noexcept
    cdef int sent(self, RecordView* view) noexcept
    cdef int read_before(self, uint64_t next_sequence) noexcept
