"""Parsers that write answers of direct gets and deliveries of pull consumers to a MessageBatch."""

from libc.stdint cimport int64_t, uint64_t

from natsd.spark.wire.frames cimport MessageFrame, FrameHandler
from natsd.spark.rows.message_batch cimport MessageBatch
from natsd.core.timestamp cimport ParsedSecond


cdef struct Described:          # fields of a direct get's answer
    const char* subject
    size_t subject_len
    uint64_t sequence
    int64_t time_ns
    int64_t pending
    size_t own_len              # bytes of the header block that are the publisher's


cdef class RangeDecoder(FrameHandler):
    cdef public MessageBatch batch
    cdef public uint64_t last               # last sequence seen; messages up to it are dropped
    cdef public uint64_t upto               # rows behind it are dropped
    cdef MessageBatch late_rows             # batch for those rows; then no sequence ends the read
    cdef bint has_late
    cdef public int64_t start_ns
    cdef public int64_t end_ns
    cdef public uint64_t stop_at_frames     # number of frames after which `take` returns STOP
    cdef readonly uint64_t frames           # received messages, wanted or not
    cdef readonly uint64_t row_bytes            # bytes of their subjects, headers and data
    cdef public uint64_t missing_from       # first missing sequence; 0: none is missing
    cdef readonly int64_t pending           # matching messages behind the last one; -1: unknown
    cdef readonly int status                # status code of the end; 0: not ended
    cdef readonly bytes status_block        # header block of the status
    cdef public bint is_over                # further messages are dropped, but not a status

    cdef int accept(
        self, const char* subject, size_t subject_len, uint64_t sequence, int64_t time_ns,
        const char* headers, size_t headers_len, const char* data, size_t data_len,
    ) except -1 nogil
    cdef bint is_reached(self) noexcept nogil
    cdef int keep_status(self, const MessageFrame* frame) except -1 nogil


cdef class DirectDecoder(RangeDecoder):
    cdef ParsedSecond second     # last parsed second of a time stamp

    cdef bint describe(self, const MessageFrame* frame, Described* to) noexcept nogil
    cdef bint describe_bare(self, const MessageFrame* frame, Described* to) noexcept nogil


cdef class PullDecoder(RangeDecoder):
    cdef public uint64_t consumer_sequence  # consumer sequence of the last delivery
    cdef public bint is_out_of_order        # a delivery is missing
    cdef public bint is_bare                # headers_only: `Nats-Msg-Size` is removed
