"""The decision about publishes that belong to a batch, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.stream.state cimport Actor, Scheduler


cdef class Batch:
    cdef bytes id
    cdef int64_t active_ns      # time of its last message


cdef class Admission(Actor):
    cdef Scheduler scheduler
    cdef InflightBatches inflight
    cdef dict batches           # id -> Batch: the open batches
    cdef bint holds                 # publishes that arrive now must go to `hold`

    # Check, store and answer a message of a batch, now or later. The message is within the limits
    # of the server, the account and the stream. No pointer into it is kept after the call.
    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1
    # A commit failed: drop the messages above `durable`; their publishers have been told.
    cdef int forget_above(self, uint64_t durable) except -1
    # A message was lost that these batches rest on; their publishers have been told.
    cdef int forget(self, set numbers) except -1
    # Queue any publish behind the batch that is being stored. False: there is no room.
    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    # Put all of the batch that is being stored into the log, before something else is appended.
    cdef int finish(self) except -1

    # `add` opens a batch, `end` ends it, `touch` notes that a message came, `give_up` ends it
    # because none came for too long.
    cdef int add(self, Batch batch) except -1
    cdef int end(self, Batch batch) except -1
    cdef int touch(self, Batch batch) except -1
    cdef int give_up(self, Batch batch) except -1
