"""The publish path of one stream, for compiled callers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.reactor cimport Endpoint
from natsd.core.subscription cimport Message
from natsd.jetstream.scheduler cimport Actor
from natsd.jetstream.stream.ack_queue cimport AckQueue
from natsd.jetstream.stream.core cimport StreamCore
from natsd.jetstream.stream.dedup cimport DuplicateWindow
from natsd.jetstream.stream.headers cimport PublishHeaders
from natsd.jetstream.stream.republish cimport Republisher
from natsd.jetstream.stream.transform cimport SubjectTransform
from natsd.jetstream.usage cimport Usage


cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2

cdef struct Entry:              # one publish, checked: what a replica gets to apply
    const char* subject
    Py_ssize_t subject_len
    const char* headers         # as they are stored; header_len 0: none
    Py_ssize_t headers_len
    const char* data            # the payload alone
    Py_ssize_t data_len
    const char* message_id
    Py_ssize_t message_id_len   # 0: none
    uint64_t sequence           # the one that it gets
    int64_t time_ns             # since 1970
    int64_t expires_ns          # 0: never
    Rollup rollup
    bint is_skipped             # nobody is interested: its sequence is used up


cdef class Ingest(Actor):
    cdef StreamCore stream
    cdef Usage usage
    cdef readonly object settings       # IngestSettings
    cdef bint is_memory
    cdef bint no_ack
    cdef bint is_sealed
    cdef bint allows_rollup
    cdef bint by_interest
    cdef int64_t max_msg_size           # -1: no limit
    cdef int64_t window_ns              # of duplicates; 0: off
    cdef SubjectTransform transform     # None: subjects stay as they are
    cdef Republisher republisher        # None: nothing is republished
    cdef readonly bint is_paused        # nothing is taken: the stream is not ready, or going away

    cdef DuplicateWindow window
    cdef bytes last_id                  # of the last message; empty: it had none
    cdef AckQueue acks
    cdef Endpoint backlog               # what publishers wait for when too much is not durable yet

    cdef int propose(self, Entry* entry) except -1      # one replica: apply at once
    cdef int apply(self, Entry* entry) except -1        # no clock, no check
