"""Answers of direct gets and of pull consumers, into a MessageBatch."""

from libc.stdint cimport int64_t, uint64_t

from natsd.spark.wire.frames cimport Frame, Intake
from natsd.spark.rows.message_batch cimport MessageBatch
from natsd.spark.network.time_stamp cimport Second


cdef struct Described:          # what a direct get says of a message
    const char* subject
    size_t subject_len
    uint64_t sequence
    int64_t time_ns
    int64_t pending
    size_t own_len              # of the block of headers: the publisher's part


cdef class RangeIntake(Intake):
    cdef public MessageBatch batch
    cdef public uint64_t last               # sequence seen; what is not behind it is dropped
    cdef public uint64_t upto               # rows behind it are dropped
    cdef MessageBatch late_rows             # or go here, if there is one, and end nothing
    cdef bint has_late
    cdef public int64_t start_ns
    cdef public int64_t end_ns
    cdef public uint64_t stop_at_frames     # so that somebody can ask for more
    cdef readonly uint64_t frames           # messages that came, wanted or not
    cdef readonly uint64_t row_bytes            # of them
    cdef public uint64_t missing_from       # the first sequence that did not come; 0: all came
    cdef readonly int64_t pending           # matches behind the last one, where the server says so
    cdef readonly int status                # of the end; 0: it has not come yet
    cdef readonly bytes status_block        # its headers
    cdef public bint is_over                # what still comes is dropped, but a status

    cdef int accept(
        self, const char* subject, size_t subject_len, uint64_t sequence, int64_t time_ns,
        const char* headers, size_t headers_len, const char* data, size_t data_len,
    ) except -1 nogil
    cdef bint is_reached(self) noexcept nogil
    cdef int keep_status(self, const Frame* frame) except -1 nogil


cdef class DirectIntake(RangeIntake):
    cdef Second second           # of the last message

    cdef bint describe(self, const Frame* frame, Described* to) noexcept nogil
    cdef bint describe_bare(self, const Frame* frame, Described* to) noexcept nogil


cdef class PullIntake(RangeIntake):
    cdef public uint64_t consumer_sequence  # of the last delivery
    cdef public bint is_out_of_order        # a delivery is missing
    cdef public bint is_bare                # payloads stay on the server, which says their size
