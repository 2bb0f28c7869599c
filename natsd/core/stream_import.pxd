"""Declarations of stream_import.pyx."""

from natsd.core.routing cimport (
    ImportedSubscription, Message, Origin, Sink, SubjectMemo, SubjectTransform, Subscription,
)


cdef class StreamImportSink(Sink):
    cdef readonly object account         # natsd.accounts.Account that imports the stream
    cdef SubjectTransform transform      # None: no wildcard is mapped
    cdef bytes subject                   # what recipients see; None: see `transform`, or unchanged
    cdef readonly bint allows_trace
    cdef public bint has_ended           # messages are not delivered any more
    cdef SubjectMemo memo                # what recent subjects are mapped to; None: no transform

    cdef bytes imported_subject(self, Message* message)


# Return the session that published the message if it wants no messages of its own; else None.
cdef Sink silent_publisher(const Origin* origin)
