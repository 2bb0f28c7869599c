"""The messages that a consumer has still to read; see pending_cursor.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog, NEEDS_BLOCK, NumPending, Outcome
from natsd.store.log.subjects cimport Filter


cdef class PendingCursor:
    cdef MessageLog log
    cdef Filter filter                  # None: every message
    cdef readonly uint64_t next         # all before it was read or skipped, but for the start list
    cdef uint64_t first                 # the value of `next` at the beginning
    cdef uint64_t search_from           # nothing matches in next .. search_from - 1
    cdef int64_t count                  # filtered: number of matches in next .. visible
    cdef NumPending counting            # None: `count` is right
    cdef readonly bint must_count       # counting begins with the next slice

    cdef uint64_t* starts               # messages to read first, in order; GONE_BIT: removed
    cdef Py_ssize_t start_count
    cdef Py_ssize_t start_at
    cdef Py_ssize_t starts_live         # entries from start_at on that are not known to be removed

    cdef int set_filter(self, Filter wanted) except -1
    cdef int begin(self, uint64_t next_sequence, uint64_t resume, starts) except -1
    cdef int appeared(self, uint64_t sequence) except -1
    cdef int vanished(self, uint64_t sequence) except -1
    # Count for a while. True: everything is counted. Raises ColdBlock.
    cdef bint count_some(self, uint64_t visible, uint64_t budget) except? -1
    # Return the number of visible messages to be read; exact unless `is_counting`.
    cdef int64_t size(self, uint64_t visible) noexcept
    # Find the next message to read, up to `visible`: DONE and `found`; GONE: there is none;
    # NEEDS_BLOCK: `log.wanted`; PENDING: call again.
    cdef Outcome find(self, uint64_t visible, uint64_t* found) except? NEEDS_BLOCK
    # Tell whether this message, visible or not, is still to be read.
    cdef bint is_unread(self, uint64_t sequence) noexcept
    # View a message: DONE; GONE: it is removed or damaged; NEEDS_BLOCK.
    cdef Outcome look(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK
    # Note that the message that `find` gave is read.
    cdef int passed(self, uint64_t sequence) except -1
    # Count anew, and search again from there on.
    cdef int look_again(self, uint64_t from_sequence) except -1

    cdef uint64_t next_start(self) noexcept
    cdef Py_ssize_t place_of_start(self, uint64_t sequence) noexcept nogil
    cdef int free_starts(self) except -1
    cdef int drop_start(self, uint64_t sequence) except -1
