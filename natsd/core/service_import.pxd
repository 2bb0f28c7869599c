"""Declarations of service_import.pyx."""

from natsd.core.network cimport Reactor, TracedMessage
from natsd.core.routing cimport (
    MatchResult, Message, Origin, Sink, SubjectMemo, SubjectTransform, Subscription,
)


cdef class ServiceImportSink(Sink):
    cdef Reactor reactor
    cdef readonly AccountEntry importer
    cdef readonly AccountEntry exporter
    cdef readonly ExportedService export
    cdef readonly bint is_shared         # the exporter learns what is known of the requestor
    cdef SubjectTransform transform      # None: no wildcard is mapped
    cdef bytes subject                   # in the exporter's account; None: see `transform`
    cdef SubjectMemo memo                # what recent subjects are mapped to; None: no transform
    cdef object describe                 # tells of the requestor, for the header
    cdef dict info_lines                 # cid -> (round-trip time, line of the header)
    cdef MatchResult recipients          # of the last subject; None: none
    cdef char* frame                     # line and data of a small request
    cdef Py_ssize_t frame_bytes

    cdef tuple lead_back(self, TracedMessage traced, Message* request, Message* changed)
    cdef bint forward(self, Message* message, TracedMessage traced) except -1
    cdef bytes exported_subject(self, Message* message)
    cdef object begin_measure(self, const Message* message)
    cdef bytes info_line(self, const Origin* origin)
    cdef bytes new_info_line(self, const Origin* origin)
    cdef bytes write(
        self, Message* request, const Message* message, const char* reply, Py_ssize_t reply_len
    )
    cdef MatchResult resolve(self, Message* request)
    cdef int64_t pass_on(
        self, MatchResult to, Message* request, TracedMessage traced, bytes published
    ) except -1
    cdef char* room(self, Py_ssize_t need) except NULL
