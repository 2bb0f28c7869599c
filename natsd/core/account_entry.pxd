"""Declarations of account_entry.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport Reactor
from natsd.core.routing cimport (
    Hop, MatchResult, Message, Origin, Sink, SubjectMappings, SubList, Subscription,
)


cpdef enum ResponseType:
    SINGLETON = 0               # one response
    STREAM = 1                  # any number, until none comes for the threshold
    CHUNKED = 2                 # the same; an empty response is the last one


cdef class ExportedService:
    cdef readonly str subject
    cdef public ResponseType response_type
    cdef public int64_t threshold_ns     # how long a response is awaited
    cdef public object latency           # ServiceLatency; None: requests are not measured
    cdef public bint allows_trace


cdef class PendingReply:
    cdef bytes subject                   # `_R_.…`, on which the responder answers
    cdef bytes reply                     # what the requestor listens on
    cdef AccountEntry requestor
    cdef AccountEntry responder          # its `pending` lists this reply
    cdef ExportedService export
    cdef object measure                  # LatencyMeasure; None: it is not measured
    cdef dict queue                      # of its threshold: it is listed there by `subject`
    cdef int64_t due_ns                  # monotonic time at which it is given up
    cdef PendingReply older              # of the replies that the requestor's account awaits
    cdef PendingReply newer


cdef class AccountEntry(Sink):
    cdef Reactor reactor
    cdef readonly object account         # natsd.accounts.Account
    cdef readonly bytes name
    cdef SubList sublist
    cdef public SubjectMappings mappings    # None: there are none
    cdef bytes prefix                    # of the replies here; None: there was none yet
    cdef Subscription subscription       # to the replies
    cdef dict pending                    # `_R_.…` -> PendingReply
    cdef dict queues                     # threshold -> its PendingReplies, the oldest first
    cdef dict awaited                    # reply in this account -> PendingReply, or a list of them
    cdef PendingReply oldest             # of the replies that are awaited here, by their last use
    cdef PendingReply newest
    cdef Py_ssize_t awaited_replies      # how many there are
    cdef object timer                    # next call of `expire`; None: nothing is pending
    cdef int64_t timer_ns                # monotonic time of that call
    cdef bytes random_bytes              # random numbers, drawn in stock
    cdef Py_ssize_t random_at

    cdef PendingReply expect(
        self, const char* reply, Py_ssize_t length, ExportedService export, AccountEntry requestor,
        object measure=*,
    )
    cdef int keep(self, PendingReply pending) except -1
    cdef int forget(self, PendingReply pending, int status) except -1
    cdef int renew(self, PendingReply pending) except -1
    cdef bytes new_reply(self)
    cdef uint64_t random(self) except? 0
    cdef int begin_replies(self) except -1
    cdef int await_reply(self, PendingReply pending) except -1
    cdef int unawait(self, PendingReply pending) except -1
    cdef int link(self, PendingReply pending) except -1
    cdef int unlink(self, PendingReply pending) except -1
    cdef int set_timer(self) except -1
    cdef int take(self, PendingReply pending, Message* message) except -1
    cdef int64_t respond(self, PendingReply pending, Message* message) except -1
    cdef MatchResult recipients(self, bytes subject, bint is_relayed)
    cdef bytes mapped(self, const char* subject, Py_ssize_t length)


# The sink of one pending reply, for a consumer: its messages keep their own subjects.
cdef class ReplyRelay(Sink):
    cdef AccountEntry entry
    cdef PendingReply pending


# Return whether a message already went through an import of that export.
cdef bint was_here(const Hop* hop, ExportedService export) noexcept
cdef bint is_consumer_ack(const char* reply, Py_ssize_t length) noexcept
