"""The fast batches of a stream, for compiled callers."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.jetstream.stream.checks cimport Admission, Batch, Entry, PublishHeaders
from natsd.jetstream.stream.publishing cimport FastReply, Ingest


cdef class FastBatch(Batch):
    cdef uint32_t number        # unique within the stream, unlike ids
    cdef bint gaps_allowed
    cdef uint32_t flow_max      # maximum that its publisher allows
    cdef uint32_t flow          # messages between two flow messages
    cdef uint64_t last          # highest batch sequence that arrived
    cdef uint64_t taken         # highest stored one, duplicate or end of a gap
    cdef uint64_t told          # batch sequence of the last flow message
    cdef uint64_t stored        # stream sequence of its last message; 0: none
    cdef uint64_t wait          # answers wait until this sequence is durable


cdef class FastBatches(Admission):
    cdef Ingest ingest
    cdef FastBatch recent       # the batch that was found last, or None
    cdef uint32_t begun         # number of the batch that began last

    cdef FastBatch find(self, FastReply* said)
    cdef bytes refuse_to_begin(self, FastReply* said)
    cdef FastBatch begin(self, FastReply* said)
    cdef int refuse(self, bytes refused, const char* reply, Py_ssize_t reply_len) except -1

    cdef int ping(
        self, FastBatch batch, uint64_t sequence, const char* reply, Py_ssize_t reply_len
    ) except -1
    # False: the batch ended because of a gap.
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
    # Mark the last pushed answer as this batch's.
    cdef int answered(self, FastBatch batch) noexcept
    # Send a flow message if one is due. True: it was due.
    cdef bint tell_flow(
        self, FastBatch batch, const char* reply, Py_ssize_t reply_len
    ) except -1
    cdef int send_flow(
        self, FastBatch batch, uint64_t wait, uint64_t sequence, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
