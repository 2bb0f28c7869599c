"""Who decides about publishes that belong together, for compiled callers."""

from libc.stdint cimport uint64_t

from natsd.jetstream.scheduler cimport Actor
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport PublishHeaders


cdef class Admission(Actor):
    cdef bint holds                 # what is published now is to be given to `hold`

    # Check, store and answer a message of a batch, now or later. It was found to keep to what the
    # server, the account and the stream allow of any message. Nothing is kept that points into it.
    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1
    # A commit failed: what was stored above never was, and whoever waited for it was told.
    cdef int forget_above(self, uint64_t durable) except -1
    # A publish of any kind that comes after what is being stored; False: there is no room for it.
    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    # Somebody else appends: have all of what is being stored in the log.
    cdef int finish(self) except -1
