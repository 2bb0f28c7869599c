"""The atomic batches of a stream, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.checks cimport Admission, Batch, Entry, PublishHeaders
from natsd.jetstream.stream.publishing cimport Ingest
from natsd.store.block.blocks cimport MsgBlock


cdef enum BatchCommit:
    NO_COMMIT = 0
    COMMIT = 1                  # `1`: this is the last message
    COMMIT_BEFORE = 2           # `eob`: the message before this one was the last
    BAD_COMMIT = 3


cdef class SoFar:               # the effects of the part of a batch that was checked
    cdef set message_ids
    cdef dict subjects          # written subject -> number of messages
    cdef uint64_t count
    cdef uint64_t bytes         # bytes of records
    cdef dict rewritten         # number -> (headers, payload, Scheduling) to store


cdef class Storing:             # a batch that goes into the log in slices
    cdef AtomicBatch batch
    cdef SoFar so_far
    cdef bytes reply
    cdef MsgBlock block         # the block that holds the batch
    cdef int64_t now_ns         # time of all of its messages
    cdef uint64_t done          # messages that are in the log


cdef class AtomicBatches(Admission):
    cdef Ingest ingest
    cdef object abandoned       # called with a batch's id and the reason
    cdef list untold            # (id, reason) of abandoned batches to report
    cdef int64_t staged_bytes
    # A large batch that is going into the log, and the publishes that wait behind it.
    cdef Storing storing        # None: no batch is being stored
    cdef object held            # deque of (subject, headers, data, reply, size)
    cdef int64_t held_bytes

    cdef int take(
        self, bytes id, uint64_t number, BatchCommit commit, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1
    cdef bytes refuse_to_begin(self, uint64_t number, uint64_t size)
    cdef bytes too_many(self)
    cdef bytes unsupported(self, str header)
    cdef bytes check_message(
        self, AtomicBatch batch, uint64_t number, uint64_t size, BatchCommit commit, Entry* entry,
        PublishHeaders* headers,
    )
    cdef AtomicBatch begin(self, bytes id)
    cdef bint stage(self, AtomicBatch batch, Entry* entry) except -1
    cdef int abandon(self, Batch batch, str reason) except -1
    cdef int answer(self, bytes refused, const char* reply, Py_ssize_t reply_len) except -1

    cdef int commit(self, AtomicBatch batch, const char* reply, Py_ssize_t reply_len) except -1
    cdef bytes check(self, AtomicBatch batch, SoFar so_far)
    cdef int load(
        self, AtomicBatch batch, uint64_t number, Entry* entry, PublishHeaders* headers
    ) except -1
    cdef bytes check_all(self, AtomicBatch batch, SoFar so_far)
    cdef bytes count(self, Entry* entry, PublishHeaders* headers, SoFar so_far)
    cdef bytes check_scheduling(self, Entry* entry, PublishHeaders* headers, SoFar so_far)
    cdef bytes rewrite(self, Entry* entry, SoFar so_far)
    cdef bytes check_one(self, Entry* entry, PublishHeaders* headers, SoFar so_far)
    cdef bytes check_headers(self, Entry* entry, PublishHeaders* headers, SoFar so_far)
    cdef int note_id(self, Entry* entry, PublishHeaders* headers) except -1
    cdef bytes check_sequences(
        self, Entry* entry, PublishHeaders* headers, bytes subject, SoFar so_far
    )
    cdef bytes check_rollup(self, bytes subject, PublishHeaders* headers, SoFar so_far)
    cdef bytes check_room(self, bytes subject, bint is_rollup, SoFar so_far)
    cdef int apply(self, AtomicBatch batch, SoFar so_far) except -1
    cdef uint64_t apply_some(
        self, AtomicBatch batch, SoFar so_far, uint64_t done, int64_t now_ns, uint64_t bytes_max
    ) except? 0
    cdef int begin_storing(
        self, AtomicBatch batch, SoFar so_far, const char* reply, Py_ssize_t reply_len
    ) except -1
    cdef int store_some(self, uint64_t bytes_max) except -1
    cdef int stored(self, AtomicBatch batch, const char* reply, Py_ssize_t reply_len) except -1
    cdef int release_some(self) except -1
