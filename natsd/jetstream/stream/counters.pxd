"""A stream's counters, for compiled callers."""

from natsd.core.subject_transform cimport SubjectTransform
from natsd.jetstream.stream.core cimport StreamCore
from natsd.jetstream.stream.decimal_sum cimport Number
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport HeaderValue, PublishHeaders
from natsd.jetstream.stream.preconditions cimport Preconditions
from natsd.store.block cimport MsgBlock
from natsd.store.log cimport MessageLog
from natsd.store.record cimport RecordView


cdef enum LastCount:            # of a subject
    NONE = 0                    # it has no message
    KNOWN = 1
    COLD_COUNT = 2              # its block is not in memory: `Counters.wanted`
    BROKEN = 3


cdef struct Room:               # bytes that are reused
    char* at
    Py_ssize_t length


cdef class Counters:
    cdef StreamCore stream
    cdef MessageLog log
    cdef Preconditions preconditions
    cdef object publish         # Ingest.publish_internal
    cdef readonly MsgBlock wanted   # by what is not ready
    cdef HeaderValue total      # of the entry that was counted last
    cdef Room body              # of it
    cdef Room headers           # of it
    cdef bytes rewritten        # the headers of a sourced one
    cdef dict staged            # subject -> (total, sources) of a batch that is checked, or None
    cdef list kept              # what the entries of that batch point to
    cdef object waiting         # publishes in the order they came, while a block is fetched
    cdef Py_ssize_t waiting_bytes
    cdef object going_on        # the task that fetches it, and publishes what waits; or None
    cdef bint is_going_on       # it is publishing
    cdef bint is_lacking        # and the message needs a block
    cdef bint is_unreadable     # which cannot be read

    # The rules that come before all others: the answer to a publish that breaks one, or None.
    cdef bytes check(self, Entry* entry, PublishHeaders* headers)
    # Make the increment the new total, which is what is stored: `entry.data` and `entry.headers`
    # are good until the next one is counted, or, of a batch, until `end_batch`. Or the answer.
    cdef bytes count(self, Entry* entry, PublishHeaders* headers)
    # The same of a message that another stream stored: see counters.pyx.
    cdef bytes count_sourced(self, Entry* entry)
    cdef bytes tail(self)       # of the publisher's ack
    # While a batch is checked, each of its entries counts for those behind it.
    cdef int begin_batch(self) except -1
    cdef int end_batch(self) except -1

    # Does it have to wait for a block, or behind one that has? Then `hold` it: False if there is no
    # room for more.
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
