"""Admission: batches have a say between a stream's ingest and its log.

Ingest has one for each kind of batch that its stream takes; it knows no more of them than this.
"""

from libc.stdint cimport uint64_t

from natsd.jetstream.scheduler cimport Actor
from natsd.jetstream.stream.entry cimport Entry
from natsd.jetstream.stream.headers cimport PublishHeaders


cdef class Admission(Actor):
    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1:
        raise NotImplementedError

    cdef int forget_above(self, uint64_t durable) except -1:
        return 0

    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        raise NotImplementedError

    cdef int finish(self) except -1:
        return 0

    def close(self) -> None:
        """Forget all batches, and take no more."""
        raise NotImplementedError
