"""The pull requests of one consumer that wait for messages.

    head ─▶ request ─▶ request ─▶ … ─▶ tail      each message goes to the head, which then goes to
                                                 the tail, if it wants more

With priority groups (priority_groups.pyx) the list is in the order of the requests' ranks, a
request goes behind those of its own rank, and a message goes to the first request that may have it.

Promise
- At most `max_waiting` requests wait. When so many wait, expired requests and those without a
  subscriber make room, searched for once a second at most; then a request is refused.
- A request ends with its last message, or with a status that says why: all these ends are in
  `over`, `ready` and `served`. A request whose inbox has no subscriber ends silently.
- Nothing is sent while a request is taken (that is inside of `Sink.deliver`): answers are put aside
  for `flush`. There are at most as many as requests in one turn.
- Times are wall clock, nanoseconds, and arguments.

Source: ADR-13; nats-server's `processNextMsgRequest`, `nextWaiting` and `processWaiting` for the
statuses.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult, fanout_of, plain_at

from natsd.core.durations import format_duration_ns

cdef enum:
    SECOND_NS = 1_000_000_000
    HEARTBEAT_NS_MIN = 1_000_000        # a shorter one could keep the server busy
    PRIORITY_MAX = 9

cdef int64_t YEARS_NS = 4_000_000_000_000_000_000    # about 127: a later time is never


cdef inline int64_t after(int64_t now_ns, int64_t wait_ns) noexcept nogil:
    return now_ns + min(wait_ns, YEARS_NS)


cdef bytes status_block(str status):
    return f"NATS/1.0 {status}\r\n\r\n".encode()


cdef bytes with_line(bytes block, bytes line):
    """Return the header block with one more line."""
    return block[:-2] + line + b"\r\n"


cdef bytes ENTRY = b"_R_."      # begins the replies to requests of other accounts


cdef inline bint is_of_another_account(const Request* request) noexcept:
    """Return whether the request came through an import (natsd/core/account_entry.pyx)."""
    return request.reply_len > len(ENTRY) and (
        memcmp(request.reply, <const char*> ENTRY, len(ENTRY)) == 0
    )


cdef MatchResult relayed(MatchResult to, bytes reply):
    """Return the recipients of a reply of another account for messages with other subjects."""
    if to.plain_local.count != 1:
        return to
    entry = plain_at(to, 0).sink
    return entry.relay(reply) if hasattr(entry, "relay") else to


cdef class PullRequests:
    def __cinit__(self, AccountPublisher publisher not None):
        self.publisher = publisher
        self.answers = []

    def __dealloc__(self):
        cdef Request* request
        while self.head != NULL:
            request = self.head
            self.head = request.next
            Py_XDECREF(request.to)
            free(request)

    cdef int configure(self, settings, events) except -1:
        self.most = settings.max_waiting
        self.batch_most = settings.max_request_batch
        self.expires_most_ns = settings.max_request_expires_ns
        self.bytes_most = settings.max_request_bytes
        self.set_policy(settings.priority_policy, events)
        if self.groups is not None:
            self.groups.configure(settings)
        return 0

    cdef int set_policy(self, int policy, events) except -1:
        """Set the policy; put the waiting requests in its order."""
        cdef Request* request = self.head
        cdef Request* following
        if policy == (NO_POLICY if self.groups is None else self.groups.policy):
            return 0
        self.groups = None
        if policy != NO_POLICY:
            self.groups = PriorityGroups(self.publisher, events, policy)
        self.head = self.tail = NULL
        while request != NULL:
            following = request.next
            if self.groups is not None:
                self.groups.adopt(request)
            self.place(request)
            request = following
        return 0

    # New requests

    cdef bint take(
        self, const char* reply, Py_ssize_t reply_len, const char* body, Py_ssize_t body_len,
        int64_t now_ns, int64_t pending,
    ) except -1:
        cdef PullRequest request
        cdef object wrong = parse_pull_request(body, body_len, &request)
        if wrong is not None:
            self.answer(reply, reply_len, f"400 Bad Request - {wrong}")
            return True
        if request.no_wait and pending < 0:
            return False
        wrong = self.refusal(&request, now_ns)
        if wrong is not None:
            self.answer(reply, reply_len, wrong)
            return True
        if self.count == self.most and now_ns - self.checked_ns > SECOND_NS:
            self.drop_unheard(now_ns)
        if request.no_wait:
            if pending == 0 and request.expires_ns == 0:
                self.last_ns = now_ns
                self.answer(reply, reply_len, "404 No Messages")
                return True
            if pending > 0 and pending < self.drop_unheard(now_ns):
                self.last_ns = now_ns
                self.answer(reply, reply_len, "408 Requests Pending")
                return True
        if self.count >= self.most:
            if request.heartbeat_ns == 0:   # a client with heartbeats misses them, and slows down
                self.answer(reply, reply_len, "409 Exceeded MaxWaiting")
            return True
        self.add(reply, reply_len, &request, now_ns)
        return True

    cdef str refusal(self, PullRequest* request, int64_t now_ns):
        """Return the refusal of a request that asks for too much, or None."""
        cdef int policy = NO_POLICY if self.groups is None else self.groups.policy
        if 0 < self.batch_most < request.batch:
            return f"409 Exceeded MaxRequestBatch of {self.batch_most}"
        if 0 < self.expires_most_ns < request.expires_ns:
            most = format_duration_ns(self.expires_most_ns)
            return f"409 Exceeded MaxRequestExpires of {most}"
        if 0 < self.bytes_most < request.max_bytes:
            return f"409 Exceeded MaxRequestMaxBytes of {self.bytes_most}"
        if (request.min_pending or request.min_ack_pending) and policy != OVERFLOW:
            return "400 Bad Request - Not a Overflow Priority consumer"
        if request.id_len and policy != PINNED_CLIENT:
            return "400 Bad Request - Not a Pinned Client Priority consumer"
        if not 0 <= request.priority <= PRIORITY_MAX:
            return "400 Bad Request - Priority must be between 0 and 9"
        if policy != NO_POLICY and request.is_object:
            return self.groups.refusal(request, now_ns)
        return None

    cdef int add(
        self, const char* reply, Py_ssize_t reply_len, PullRequest* request, int64_t now_ns
    ) except -1:
        cdef Request* added = <Request*> malloc(sizeof(Request) + reply_len)
        if added == NULL:
            raise MemoryError
        memset(added, 0, sizeof(Request))
        added.reply = <char*> (added + 1)
        added.reply_len = reply_len
        memcpy(<char*> added.reply, reply, reply_len)
        added.left = request.batch
        added.bytes_left = max(request.max_bytes, 0)
        added.no_wait = request.no_wait
        if request.expires_ns:
            added.expires_ns = after(now_ns, request.expires_ns)
        if request.heartbeat_ns > 0:
            added.heartbeat_ns = max(request.heartbeat_ns, HEARTBEAT_NS_MIN)
            added.heartbeat_due_ns = after(now_ns, added.heartbeat_ns)
        added.group = -1
        if self.groups is not None:
            self.groups.enroll(request, added)
        self.place(added)
        self.count += 1
        self.no_wait_count += added.no_wait
        self.last_ns = now_ns
        return self.note_due(added)

    cdef void place(self, Request* request) noexcept:
        """Insert a request behind all others of its rank."""
        cdef Request* before
        request.rank = 0 if self.groups is None else self.groups.rank_of(request)
        request.next = NULL
        if self.tail == NULL:
            self.head = self.tail = request
        elif self.tail.rank <= request.rank:
            self.tail.next = request
            self.tail = request
        elif self.head.rank > request.rank:
            request.next = self.head
            self.head = request
        else:
            before = self.head
            while before.next.rank <= request.rank:
                before = before.next
            request.next = before.next
            before.next = request

    cdef int note_due(self, Request* request) except -1:
        if request.expires_ns and (self.due_ns == 0 or request.expires_ns < self.due_ns):
            self.due_ns = request.expires_ns
        if request.heartbeat_ns and (self.due_ns == 0 or request.heartbeat_due_ns < self.due_ns):
            self.due_ns = request.heartbeat_due_ns
        return 0

    cdef int answer(self, const char* reply, Py_ssize_t reply_len, str status) except -1:
        self.answers.append((<bytes> reply[:reply_len], status_block(status)))
        return 0

    # Serving requests

    cdef Request* ready(self, Py_ssize_t size, int64_t now_ns) except? NULL:
        cdef Request* request
        while self.head != NULL:
            request = self.head
            if request.expires_ns and now_ns >= request.expires_ns:
                self.tell_left(request, "408 Request Timeout")
            elif request.bytes_left and size > request.bytes_left:
                self.tell_left(request, "409 Message Size Exceeds MaxBytes")
            elif self.is_listened_to(request):
                return request
            self.drop_head()
        return NULL

    cdef Request* ready_in_groups(
        self, Py_ssize_t size, int64_t now_ns, int64_t pending, int64_t ack_pending
    ) except? NULL:
        cdef Request* before = NULL
        cdef Request* request = self.head
        cdef Request* following
        cdef Turn turn
        while request != NULL:
            following = request.next
            turn = self.try_turn(request, size, now_ns, pending, ack_pending)
            if turn == SERVED:
                if before != NULL:
                    before.next = following
                    if self.tail == request:
                        self.tail = before
                    request.next = self.head
                    self.head = request
                self.groups.choose(request, now_ns)
                self.note_pin()
                return request
            if turn == ALL_PASSED_OVER:
                return NULL
            if turn == PASSED_OVER:
                before = request
            else:
                self.unlink(before, request)
            request = following
        return NULL

    cdef Turn try_turn(
        self, Request* request, Py_ssize_t size, int64_t now_ns, int64_t pending,
        int64_t ack_pending,
    ) except *:
        """Return the request's turn. ENDED: it was answered, if its inbox has a subscriber."""
        cdef Turn turn
        if request.expires_ns and now_ns >= request.expires_ns:
            self.tell_left(request, "408 Request Timeout")
            return ENDED
        turn = self.groups.turn(request, pending, ack_pending)
        if turn == ENDED:
            self.tell_left(request, "423 Nats-Wrong-Pin-Id")
        elif turn == SERVED and request.bytes_left and size > request.bytes_left:
            self.tell_left(request, "409 Message Size Exceeds MaxBytes")
            return ENDED
        elif turn == SERVED and not self.is_listened_to(request):
            return ENDED
        return turn

    cdef int note_pin(self) except -1:
        """Note the end of a pin as a deadline."""
        cdef int64_t due_ns = self.groups.due_ns
        if due_ns and (self.due_ns == 0 or due_ns < self.due_ns):
            self.due_ns = due_ns
        return 0

    cdef bint is_listened_to(self, Request* request) except -1:
        """Tell whether the request's inbox has a subscriber.

        It is looked up once a slice: no message sent meanwhile can add a subscriber, and one that
        leaves takes no more messages.
        """
        cdef MatchResult to
        if request.to == NULL or (
            request.slice != self.slice
            and (is_of_another_account(request) or not (<MatchResult> request.to).live)
        ):
            to = self.publisher.resolve(request.reply, request.reply_len)
            if is_of_another_account(request):
                to = relayed(to, request.reply[:request.reply_len])
            Py_INCREF(to)
            Py_XDECREF(request.to)
            request.to = <PyObject*> to
        request.slice = self.slice
        to = <MatchResult> request.to
        return fanout_of(to) > 0

    cdef int served(self, Py_ssize_t size, int64_t now_ns) except -1:
        cdef Request* request = self.head
        self.last_ns = now_ns
        request.served += 1
        request.left -= 1
        if request.bytes_left:
            request.bytes_left -= size
            if request.bytes_left == 0:
                request.left = 0
        if request.left <= 0:
            if request.bytes_left:
                self.tell_left(request, "409 Batch Completed")
            return self.drop_head()
        if request.heartbeat_ns:
            request.heartbeat_due_ns = after(now_ns, request.heartbeat_ns)
        if request.next != NULL:
            self.head = request.next
            self.place(request)
        return 0

    cdef int drop_head(self) except -1:
        self.unlink(NULL, self.head)
        return 0

    cdef void unlink(self, Request* before, Request* request) noexcept:
        if before == NULL:
            self.head = request.next
        else:
            before.next = request.next
        if self.tail == request:
            self.tail = before
        self.count -= 1
        self.no_wait_count -= request.no_wait
        Py_XDECREF(request.to)
        free(request)

    # Ends of requests

    cdef int tell(self, Request* request, bytes block) except -1:
        cdef MatchResult to = self.publisher.resolve(request.reply, request.reply_len)
        if self.age is not None:
            block = with_line(block, self.age())
        self.publisher.send(
            to, request.reply, request.reply_len, NULL, 0, block, len(block), b"", 0
        )
        return 0

    cdef int tell_left(self, Request* request, str status) except -1:
        """Send a status with the messages and bytes that the request still lacks."""
        return self.tell(request, (
            f"NATS/1.0 {status}\r\nNats-Pending-Messages: {request.left}\r\n"
            f"Nats-Pending-Bytes: {request.bytes_left}\r\n\r\n"
        ).encode())

    cdef int over(self, Request* request, int64_t now_ns, bint at_end) except -1:
        """Tell whether the request is over; then it was answered."""
        if request.expires_ns and now_ns >= request.expires_ns:
            self.tell_left(request, "408 Request Timeout")
            return True
        if at_end and request.no_wait and (request.expires_ns == 0 or request.served):
            self.tell(request, status_block("404 No Messages"))
            return True
        return not self.is_listened_to(request)

    cdef int64_t sweep(
        self, int64_t now_ns, bint at_end, uint64_t consumer_sequence, uint64_t stream_sequence
    ) except -1:
        """Return the number of messages that the remaining requests ask for."""
        cdef Request* before = NULL
        cdef Request* request = self.head
        cdef Request* following
        cdef int64_t wanted = 0
        self.checked_ns = now_ns
        self.due_ns = 0
        self.slice += 1
        if self.groups is not None:
            self.groups.expire(now_ns)
            self.note_pin()
        while request != NULL:
            following = request.next
            if self.over(request, now_ns, at_end):
                self.unlink(before, request)
            else:
                wanted += request.left
                if request.heartbeat_ns and now_ns >= request.heartbeat_due_ns:
                    request.heartbeat_due_ns = after(now_ns, request.heartbeat_ns)
                    self.tell(request, (
                        "NATS/1.0 100 Idle Heartbeat\r\n"
                        f"Nats-Last-Consumer: {consumer_sequence}\r\n"
                        f"Nats-Last-Stream: {stream_sequence}\r\n\r\n"
                    ).encode())
                self.note_due(request)
                before = request
            request = following
        return wanted

    cdef int64_t drop_unheard(self, int64_t now_ns) except -1:
        """Drop requests without a subscriber; return how many messages the others ask for.

        Expired requests stay, so that `sweep` answers them, and do not count.
        """
        cdef Request* before = NULL
        cdef Request* request = self.head
        cdef Request* following
        cdef int64_t wanted = 0
        self.checked_ns = now_ns
        self.slice += 1
        while request != NULL:
            following = request.next
            if request.expires_ns and now_ns >= request.expires_ns:
                before = request
            elif self.is_listened_to(request):
                wanted += request.left
                before = request
            else:
                self.unlink(before, request)
            request = following
        return wanted

    cdef int flush(self, Py_ssize_t most) except -1:
        cdef bytes reply, block
        cdef MatchResult to
        if not self.answers:
            return 0
        for reply, block in self.answers[:most]:
            to = self.publisher.resolve(reply, len(reply))
            if self.age is not None:
                block = with_line(block, self.age())
            self.publisher.send(to, reply, len(reply), NULL, 0, block, len(block), b"", 0)
        del self.answers[:most]
        return 0

    cdef int close(self, str status) except -1:
        """End all requests with a status; None: silently."""
        while self.head != NULL:
            if status == "Server Shutdown":
                self.tell_left(self.head, f"409 {status}")
            elif status is not None:
                self.tell(self.head, status_block(f"409 {status}"))
            self.drop_head()
        return 0
