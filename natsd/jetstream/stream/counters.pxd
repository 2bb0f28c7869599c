"""A stream's counters, for compiled callers."""

from natsd.core.routing cimport SubjectTransform
from natsd.jetstream.stream.state cimport StreamReaders
from natsd.store.block.blocks cimport MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog


cdef enum LastCount:            # what is known of the last total of a subject
    NONE = 0                    # the subject has no message
    KNOWN = 1
    COLD_COUNT = 2              # `StreamCounters.wanted` is the block, which is not in memory
    BROKEN = 3


cdef struct Room:               # a buffer that is reused
    char* at
    Py_ssize_t length


cdef class StreamCounters:
    cdef StreamReaders stream
    cdef MessageLog log
    cdef Preconditions preconditions
    cdef object publish         # Ingest.publish_internal
    cdef readonly MsgBlock wanted   # the block that a refusal as not ready waits for
    cdef HeaderValue total      # total of the entry that was counted last
    cdef Room body              # payload of that entry
    cdef Room headers           # headers of that entry
    cdef bytes rewritten        # headers of a sourced entry
    # subject -> (total, sources) while a batch is checked; None: no batch
    cdef dict staged
    cdef list kept              # payloads and headers that the entries of that batch point to
    cdef object waiting         # deque of publishes, in order, that wait for a block
    cdef Py_ssize_t waiting_bytes
    cdef object going_on        # the task that fetches it and publishes them; or None
    cdef bint is_going_on       # the task is publishing
    cdef bint is_lacking        # the publish needs a block that is not in memory
    cdef bint is_unreadable     # the block cannot be read

    # Return the refusal of an increment that breaks the rules for counters, or None. These rules
    # come before all others.
    cdef bytes check(self, Entry* entry, PublishHeaders* headers)
    # Replace the increment by the new total, which is stored, or return the refusal. `entry.data`
    # and `entry.headers` hold until the next entry is counted, or, within a batch, until
    # `end_batch`.
    cdef bytes count(self, Entry* entry, PublishHeaders* headers)
    # Do the same for a message that another stream stored: see counters.pyx.
    cdef bytes count_sourced(self, Entry* entry)
    cdef bytes tail(self)       # Return the total as the PubAck shows it.
    # While a batch is checked, each of its entries counts for the later ones.
    cdef int begin_batch(self) except -1
    cdef int end_batch(self) except -1

    # Tell whether a publish must wait for a block, or behind one that waits. If so, call `hold`,
    # which returns False if there is no room.
    cdef bint must_wait(
        self, SubjectTransform transform, const char* subject, Py_ssize_t subject_len
    ) except -1
    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1

    cdef bytes find_initial(self, Entry* entry, Number* initial, HeaderValue* sources)
    cdef LastCount find_last(
        self, const char* subject, Py_ssize_t subject_len, RecordView* out
    ) except? BROKEN
    cdef LastCount last_total(
        self, Entry* entry, HeaderValue* total, HeaderValue* sources
    ) except? BROKEN
    cdef bint read_total(self, const char* data, Py_ssize_t length, HeaderValue* out) except -1
    cdef int add(self, Entry* entry, const Number* initial, const Number* change) except -1
    cdef int carry_sources(self, Entry* entry, HeaderValue* sources) except -1
    cdef bytes merge(self, Entry* entry, const Number* initial, bytes there, bytes before)
    cdef int stage(self, Entry* entry, HeaderValue* sources) except -1
    cdef int publish_first(self) except -1
