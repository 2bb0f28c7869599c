"""Readers of a load generator's socket: whole frames, without a Python object for each of them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.spark.wire.frames cimport FrameParser

cdef enum Kind:
    MSG, PING, PONG, OK, ERR, INFO

cdef struct Frame:
    Kind kind
    const char* subject
    Py_ssize_t subject_bytes
    const char* reply           # NULL: none
    Py_ssize_t reply_bytes
    const char* headers
    Py_ssize_t headers_bytes
    const char* data
    Py_ssize_t data_bytes

cdef struct Word:
    const char* text
    Py_ssize_t size

cdef class FrameReader:
    cdef int _descriptor
    cdef FrameParser _parser
    cdef readonly uint64_t received_bytes

    cdef Py_ssize_t read(self) except -2            # bytes; -1: nothing came in time
    cdef bint next(self, Frame* frame) except -1
    cdef int _control(self, Frame* frame) noexcept
    cdef int _skip_other(self, Frame* frame) except -1

cdef class PubAcks(FrameReader):
    cdef uint32_t[::1] _taken   # number of acknowledgements for each token
    cdef readonly uint64_t last_sequence
    cdef int _take(self, Frame* frame) except -1

cdef class AnsweringReader(FrameReader):
    cdef bytearray _answers
    cdef int _answer(self, const char* subject, Py_ssize_t subject_bytes, Word ending) except -1

cdef class Deliveries(AnsweringReader):
    cdef bint _acknowledges
    cdef readonly uint64_t received
    cdef readonly uint64_t last_sequence
    cdef readonly uint64_t last_consumer_sequence
    cdef readonly uint64_t pending
    cdef readonly bytes status
    cdef int _message_taken(self, Frame* frame) except -1
    cdef int _status_taken(self, Frame* frame) except -1

cdef class StoredMessages(FrameReader):
    cdef readonly uint64_t received
    cdef readonly uint64_t last_sequence
    cdef readonly bint ended
    cdef int _message_taken(self, int64_t sequence) except -1

cdef class Chunks(AnsweringReader):
    cdef readonly uint64_t data_bytes
    cdef readonly bint ended

cdef class Callers:             # clients with one request under way each
    cdef list _readers
    cdef list _requests         # for each client its frames, all in one bytes object
    cdef Py_ssize_t _request_bytes
    cdef Py_ssize_t _data_bytes     # payload bytes of each answer; negative: it must be a PubAck
    cdef int _send(self, int descriptor, bytes requests, Py_ssize_t number) except -1
    cdef bint _answered(self, FrameReader reader) except -1
