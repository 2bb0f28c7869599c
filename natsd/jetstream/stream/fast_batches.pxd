"""The fast batches of a stream, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.jetstream.stream.admission cimport Admission, Batch
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.fast_reply cimport FastReply
from natsd.jetstream.stream.headers cimport PublishHeaders
from natsd.jetstream.stream.publish cimport Ingest


cdef class FastBatch(Batch):
    cdef uint32_t number        # of this stream's batches; ids come again
    cdef bint gaps_allowed
    cdef uint32_t flow_max      # that its publisher allows
    cdef uint32_t flow          # messages between two flow messages
    cdef uint64_t last          # the highest sequence of the batch that came
    cdef uint64_t taken         # … and that was stored, or needs not be
    cdef uint64_t told          # … of the last flow message
    cdef uint64_t stored        # in the stream: its last message; 0: none
    cdef uint64_t wait          # what is answered rests on all up to there


cdef class FastBatches(Admission):
    cdef Ingest ingest
    cdef FastBatch recent       # the one that was looked for last, or None
    cdef uint32_t begun         # the number of the batch that began last

    cdef FastBatch find(self, FastReply* said)
    cdef bytes refuse_to_begin(self, FastReply* said)
    cdef FastBatch begin(self, FastReply* said)
    cdef int refuse(self, bytes refused, const char* reply, Py_ssize_t reply_len) except -1

    cdef int ping(
        self, FastBatch batch, uint64_t sequence, const char* reply, Py_ssize_t reply_len
    ) except -1
    # False: the batch ended with a gap.
    cdef bint follows(
        self, FastBatch batch, uint64_t sequence, const char* reply, Py_ssize_t reply_len
    ) except -1
    cdef int store(
        self, FastBatch batch, FastReply* said, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1
    cdef int duplicate(
        self, FastBatch batch, FastReply* said, uint64_t original, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    cdef int refused(
        self, FastBatch batch, FastReply* said, bytes refused, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    cdef int commit(self, FastBatch batch, const char* reply, Py_ssize_t reply_len) except -1
    cdef int answered(self, FastBatch batch) noexcept   # the answer pushed last is of this batch
    # True: a flow message was due, and is on its way.
    cdef bint tell_flow(
        self, FastBatch batch, const char* reply, Py_ssize_t reply_len
    ) except -1
    cdef int send_flow(
        self, FastBatch batch, uint64_t wait, uint64_t sequence, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
