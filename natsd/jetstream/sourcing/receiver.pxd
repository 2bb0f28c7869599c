"""Receiver of one origin's messages: see receiver.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport Message
from natsd.jetstream.consumer.requests cimport Delivery
from natsd.jetstream.stream.checks cimport Entry, PublishHeaders
from natsd.jetstream.stream.publishing cimport Ingest
from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.log.message_log cimport MessageLog


cdef class Receiver(Actor):
    cdef Ingest ingest
    cdef StreamReaders stream
    cdef MessageLog log
    cdef object told                    # called when `trouble` is set, and when it has caught up
    cdef readonly bint is_mirror
    cdef bytes lead                     # source header before the sequence; `tail`: after it
    cdef bytes tail
    cdef list transforms

    # Position
    cdef bytes consumer                 # None: no message is accepted
    cdef readonly uint64_t sequence     # of the origin; all up to it are stored or unwanted
    cdef readonly uint64_t delivered    # consumer sequence
    cdef readonly uint64_t lag
    cdef readonly int64_t heard_ns      # wall clock; 0: never
    cdef readonly str trouble           # why no message is accepted; empty: no reason
    cdef uint64_t rollbacks             # rollback count of the stream at the start
    cdef readonly bint has_caught_up    # has been within CAUGHT_UP of the origin's end

    cdef bint is_told                   # `told` was called for has_caught_up

    # Flow-control request to be answered when all up to `control_wait` is durable
    cdef bytes control                  # its reply subject; None: no request
    cdef uint64_t control_wait
    cdef uint64_t control_sequence
    cdef uint64_t control_delivered

    cdef char* headers                  # of the message that is being stored
    cdef Py_ssize_t headers_room

    cdef int take(self, Message* message) except -1
    cdef int take_control(self, Message* message) except -1
    cdef int note_control(self, bytes reply) except -1
    cdef int answer_control(self) except -1
    cdef int fail(self, str trouble) except -1
    cdef bint is_next(self, Delivery* delivery) except -1
    cdef int store(self, Message* message, Delivery* delivery) except -1
    cdef bytes admit(self, Entry* entry, PublishHeaders* found)
    cdef bytes count(self, Entry* entry)
    cdef bytes check(self, Entry* entry, PublishHeaders* found)
    cdef int heed(self, Entry* entry, PublishHeaders* found) except -1
    cdef int carry(self, Message* message, uint64_t sequence, Entry* entry) except -1
    cdef int transform(self, Entry* entry) except -1
    cdef char* reserve(self, Py_ssize_t need) except NULL
    cdef char* put_source(self, char* to, Message* message, uint64_t sequence) noexcept
