"""The waiting pull requests of a consumer; see pull.pyx."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.network cimport AccountPublisher


cdef class PullRequests:
    cdef AccountPublisher publisher
    cdef Request* head
    cdef Request* tail
    cdef readonly int64_t count
    cdef int64_t no_wait_count
    cdef int64_t most
    cdef int64_t batch_most
    cdef int64_t expires_most_ns
    cdef int64_t bytes_most
    cdef uint64_t slice
    cdef int64_t due_ns         # no later than the first expiry or heartbeat; 0: none
    cdef int64_t checked_ns     # when all requests were last examined
    cdef int64_t last_ns        # when a request last came or was served
    cdef list answers           # (reply, header block), to be sent outside of `deliver`
    cdef PriorityGroups groups  # None: there are none
    cdef object age             # returns a header line for statuses, or None (stream/staleness.py)

    cdef int configure(self, settings, events) except -1
    # Take a new request. `pending` is the number of visible messages to deliver or redeliver, -1:
    # not counted. False: call again with `pending`.
    cdef bint take(
        self, const char* reply, Py_ssize_t reply_len, const char* body, Py_ssize_t body_len,
        int64_t now_ns, int64_t pending,
    ) except -1
    # Return the request that gets a message of that size now, or NULL. Requests that end are
    # answered and dropped on the way.
    cdef Request* ready(self, Py_ssize_t size, int64_t now_ns) except? NULL
    # Do the same with priority groups; `pending` includes the message to be sent.
    cdef Request* ready_in_groups(
        self, Py_ssize_t size, int64_t now_ns, int64_t pending, int64_t ack_pending
    ) except? NULL
    # `served`: the head got a message of `size` bytes. `drop_head`: the head is dropped, since it
    # ended or its inbox has no subscriber.
    cdef int served(self, Py_ssize_t size, int64_t now_ns) except -1
    cdef int drop_head(self) except -1
    # Send the answers that were put aside, `most` at most.
    cdef int flush(self, Py_ssize_t most) except -1
    # Examine all requests: answer those that expired, and with `at_end` no-wait ones; send
    # heartbeats.
    cdef int64_t sweep(
        self, int64_t now_ns, bint at_end, uint64_t consumer_sequence, uint64_t stream_sequence
    ) except -1
    cdef int close(self, str status) except -1
    # Drop requests without a subscriber, silently; return how many messages the others ask for.
    cdef int64_t drop_unheard(self, int64_t now_ns) except -1

    cdef str refusal(self, PullRequest* request, int64_t now_ns)
    cdef int set_policy(self, int policy, events) except -1
    cdef Turn try_turn(
        self, Request* request, Py_ssize_t size, int64_t now_ns, int64_t pending,
        int64_t ack_pending,
    ) except *
    cdef void place(self, Request* request) noexcept
    cdef int note_pin(self) except -1
    cdef int add(
        self, const char* reply, Py_ssize_t reply_len, PullRequest* request, int64_t now_ns
    ) except -1
    cdef int answer(self, const char* reply, Py_ssize_t reply_len, str status) except -1
    cdef int tell(self, Request* request, bytes block) except -1
    cdef int tell_left(self, Request* request, str status) except -1
    cdef bint is_listened_to(self, Request* request) except -1
    cdef void unlink(self, Request* before, Request* request) noexcept
    cdef int note_due(self, Request* request) except -1
    cdef int over(self, Request* request, int64_t now_ns, bint at_end) except -1
