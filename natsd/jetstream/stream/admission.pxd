"""Who decides about publishes that belong together, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.jetstream.scheduler cimport Actor, Scheduler
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport PublishHeaders
from natsd.jetstream.stream.inflight_batches cimport InflightBatches


cdef class Batch:
    cdef bytes id
    cdef int64_t active_ns      # when its last message came


cdef class Admission(Actor):
    cdef Scheduler scheduler
    cdef InflightBatches inflight
    cdef dict batches           # id -> Batch: those under way
    cdef bint holds                 # what is published now is to be given to `hold`

    # Check, store and answer a message of a batch, now or later. It was found to keep to what the
    # server, the account and the stream allow of any message. Nothing is kept that points into it.
    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1
    # A commit failed: what was stored above never was, and whoever waited for it was told.
    cdef int forget_above(self, uint64_t durable) except -1
    # A message was lost that these batches rest on; who waited for it was told.
    cdef int forget(self, set numbers) except -1
    # A publish of any kind that comes after what is being stored; False: there is no room for it.
    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    # Somebody else appends: have all of what is being stored in the log.
    cdef int finish(self) except -1

    # It is under way; no longer; it got a message; it got none for too long.
    cdef int add(self, Batch batch) except -1
    cdef int end(self, Batch batch) except -1
    cdef int touch(self, Batch batch) except -1
    cdef int give_up(self, Batch batch) except -1
