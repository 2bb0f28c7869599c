"""The engine of one consumer, for compiled callers; see engine.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher
from natsd.jetstream.consumer.requests cimport (
    Confirmations, Outgoing, PullRequests, PushSubject, Replay, Request,
)
from natsd.jetstream.stream.state cimport Reader, ReaderFilters, StreamReaders
from natsd.store.block.blocks cimport MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.consumer.tracking cimport ConsumerTracker
from natsd.store.log.message_log cimport MessageLog, NEEDS_BLOCK, Outcome


cdef enum Step:                 # the outcome of trying to deliver one message
    SENT = 0                    # sent or skipped: go on
    READ_ALL = 1                # nothing more is visible
    ACKS_AWAITED = 2            # max_ack_pending is reached
    NOBODY = 3                  # no request waits, no subscriber, or the window is full
    LATER = 4                   # try at `resume_ns`, or when a block is in memory


cdef class ConsumerEngine(Reader):
    cdef readonly str name
    cdef readonly object settings
    cdef object events
    cdef readonly Inbox inbox
    cdef readonly bint is_stopped
    cdef bint is_running        # inside `run`: the inbox keeps what arrives
    cdef readonly ConsumerTracker tracker
    cdef StreamReaders readers
    cdef ReaderFilters wanted   # the filters, listed with the readers; None: not yet
    cdef MessageLog log
    cdef AccountPublisher publisher

    cdef Acks acks
    cdef PullRequests requests
    cdef PushSubject push
    cdef PendingCursor cursor
    cdef KeyedPendingCursor keyed     # the same object if messages have keys; else None
    cdef Confirmations confirmations
    cdef Outgoing outgoing
    cdef Redelivery redelivery
    cdef Replay replay
    cdef bint is_push
    cdef int64_t max_ack_pending

    cdef readonly int64_t last_delivered_ns
    cdef readonly int64_t last_ack_ns
    cdef readonly int64_t paused_until_ns
    cdef uint64_t slice
    cdef int64_t pending        # number of messages to read, during a slice
    cdef int64_t resume_ns      # deadline of the rate limit or the replay; 0: none
    cdef int64_t hold_until_ns  # nothing is delivered before; 0: no hold
    cdef bint needs_all         # a reset is not on disk yet: no message may be removed
    cdef object fetching        # the task that brings a block into memory, or None

    cdef int64_t lost_checked_ns    # last comparison of pending messages with the log

    cdef int wake(self) except -1
    cdef int ask(
        self, const char* reply, Py_ssize_t reply_len, const char* body, Py_ssize_t body_len
    ) except -1
    cdef int take_filters(self, ReaderFilters wanted) except -1
    cdef int let_go_of_filters(self) except -1
    cdef int forget_filters(self) except -1
    cdef ReaderFilters heard(self)
    cdef bint work(self, int64_t now_ns) except? -1
    cdef uint64_t last_read(self) noexcept
    cdef bint tell_stream(self) except? -1
    cdef bint answer(self) except? -1
    cdef int serve_deadlines(self, int64_t now_ns) except -1
    cdef int follow_up(self) except -1
    cdef bint await_durable(self) except? -1
    cdef bint deliver_some(self, int64_t now_ns) except? -1
    cdef Step step(self, int64_t now_ns) except *
    cdef Step redeliver(self, uint64_t sequence, int64_t now_ns) except *
    cdef Step deliver_new(self, uint64_t sequence, int64_t now_ns) except *
    cdef Outcome look(self, uint64_t sequence, RecordView* view) except? NEEDS_BLOCK
    cdef Step send(self, RecordView* view, uint64_t count, int64_t now_ns) except *
    cdef Request* asker(self, Py_ssize_t size, uint64_t count, int64_t now_ns) except? NULL
    cdef int sent(self, RecordView* view, uint64_t count, Py_ssize_t size, int64_t now_ns) except -1
    cdef bint ended(self, Step step, int64_t now_ns) except? -1
    cdef int sweep_requests(self, int64_t now_ns, bint at_end) except -1
    cdef bint count_some(self) except? -1
    cdef int fetch(self, MsgBlock block) except -1
    cdef int keep_time(self, int64_t now_ns) except -1
    cdef int lose_gone(self) except -1
    cdef int note_acked(self, int64_t now_ns) except -1
