"""The message ids that a stream knows, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.log.message_log cimport MessageLog


cdef class MessageIds(Actor):
    cdef StreamReaders stream
    cdef MessageLog log
    cdef DuplicateWindow window
    cdef int64_t window_ns              # 0: there is no duplicate window
    cdef char* last_id                  # id of the last message
    cdef size_t last_id_len             # 0: the last message has none
    cdef size_t last_id_room
    cdef uint64_t upto                  # the window has the ids up to this sequence
    cdef object recollecting            # the task that finds ids in the stored messages, or None
    cdef readonly bint is_recollecting  # the task has not ended

    # Return the sequence of the message of the last `window_ns` with the entry's id; 0: none.
    cdef uint64_t find(self, Entry* entry) noexcept nogil
    # Note the id of the entry, which is the last message from now on.
    cdef int remember(self, Entry* entry) except -1
    # Have the ids forgotten at the end of the window, if no deadline is set.
    cdef int watch(self, int64_t now_ns) except -1
    # Forget the ids above `durable`, which were not stored.
    cdef int forget_above(self, uint64_t durable) except -1

    cdef int set_last(self, const char* id, size_t length) except -1
    cdef int find_last(self) except -1
    cdef uint64_t recollect(self, uint64_t sequence, uint64_t upto) except 0
    cdef int watch_window(self, int64_t now_ns) except -1
