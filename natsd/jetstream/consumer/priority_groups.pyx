"""Priority groups: which of one consumer's pull requests gets the next message.

    overflow        a request may say from how many pending messages, or pending acknowledgements,
                    on it wants to be served: either is enough; till then it is passed over
    pinned_client   the first that is served is pinned: it gets an id with each message
                    (`Nats-Pin-Id`), and all messages, as long as it names the id in its requests
    prioritized     0 before 1 … 9, and behind those the requests that name no priority

Promise
- A request that is an object names one of the groups. All groups of a consumer share one pin.
- The pin ends `timeout_ns` after the last request that named it, or by `unpin`. It is not kept on
  disk: after a restart the first request that is served is pinned anew.
- A request that names an ended pin ends with 423: at once if another client is pinned, otherwise
  when a message is there. A number, or an empty body, names neither group nor pin.
- The list of requests (pull.pyx) is in the order of `rank_of`: with pins, the requests that name
  one come first, so that no others are examined while a client is pinned.
- Times are wall clock, nanoseconds, and arguments.

Source: ADR-42; nats-server 2.14, observed.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from natsd.core.network cimport AccountPublisher

cdef enum:
    NO_PRIORITY = 10
    CHARS_COUNT = 62
    PASSED_PER_MESSAGE = 64
    LOOKS_MAX = 1 << 20

cdef extern from *:
    """
    #define NATSD_GONE_PIN UINT64_MAX
    """
    uint64_t GONE_PIN "NATSD_GONE_PIN"  # the pin of a request that names an ended one

cdef str NOT_TOLD = "an event of a consumer could not be told"
cdef bytes CHARS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef inline bint is_text(bytes text, const char* other, Py_ssize_t length) noexcept:
    return len(text) == length and memcmp(<const char*> text, other, length) == 0


cdef bytes new_pin_id(AccountPublisher publisher):
    cdef bytearray drawn = bytearray()
    cdef uint64_t at
    for _ in range(PIN_BYTES):
        at = publisher.reactor.random(CHARS_COUNT)
        drawn.append(CHARS[at])
    return bytes(drawn)


cdef class PriorityGroups:
    def __cinit__(self, AccountPublisher publisher not None, events, int policy):
        self.publisher = publisher
        self.events = events
        self.policy = policy
        self.pin_id = b""

    cdef int configure(self, settings) except -1:
        self.names = tuple(name.encode() for name in settings.priority_groups)
        self.timeout_ns = min(<int64_t> settings.priority_timeout_ns, YEARS_NS)
        return 0

    # New requests

    cdef str refusal(self, PullRequest* request, int64_t now_ns):
        if request.group_len == 0:
            return "400 Bad Request - Priority Group missing"
        if self.group_of(request) < 0:
            return "400 Bad Request - Invalid Priority Group"
        if self.pin and request.id_len:
            if not is_text(self.pin_id, request.id, request.id_len):
                return "423 Nats-Pin-Id mismatch"
            self.due_ns = now_ns + self.timeout_ns
        return None

    cdef int enroll(self, PullRequest* request, Request* added) except -1:
        added.group = self.group_of(request)
        added.priority = <int> request.priority if request.is_object else NO_PRIORITY
        added.min_pending = max(request.min_pending, 0)
        added.min_ack_pending = max(request.min_ack_pending, 0)
        if request.id_len:
            added.pin = self.pin if self.pin else GONE_PIN
        return 0

    cdef int adopt(self, Request* request) noexcept:
        request.pin = GONE_PIN if request.pin else 0
        return 0

    cdef int group_of(self, PullRequest* request) noexcept:
        cdef int at
        for at in range(<int> len(self.names)):
            if is_text(<bytes> self.names[at], request.group, request.group_len):
                return at
        return -1

    cdef str name_of(self, int group):
        """Return the name of a group; an update may have left fewer groups."""
        return (<bytes> self.names[group]).decode() if group < len(self.names) else ""

    cdef int rank_of(self, Request* request) noexcept:
        if self.policy == PRIORITIZED:
            return request.priority
        return self.policy == PINNED_CLIENT and request.pin == 0

    # Serving requests

    cdef Turn turn(self, Request* request, int64_t pending, int64_t ack_pending) noexcept:
        if self.policy == PINNED_CLIENT:
            if request.pin == 0:
                return ALL_PASSED_OVER if self.pin else SERVED
            return SERVED if request.pin == self.pin else ENDED
        if self.policy == PRIORITIZED or not (request.min_pending or request.min_ack_pending):
            return SERVED
        if 0 < request.min_pending <= pending or 0 < request.min_ack_pending <= ack_pending:
            return SERVED
        self.passed_over += 1
        return PASSED_OVER

    cdef int looks(self) noexcept:
        cdef int64_t cost = self.passed_over // PASSED_PER_MESSAGE
        self.passed_over -= cost * PASSED_PER_MESSAGE
        return <int> min(cost, <int64_t> LOOKS_MAX)

    cdef int choose(self, Request* request, int64_t now_ns) except -1:
        if self.policy != PINNED_CLIENT or self.pin:
            return 0
        if request.group >= 0:
            return self.pin_to(request, now_ns)
        self.pin_line = b"Nats-Pin-Id: \r\n"
        return 0

    cdef int pin_to(self, Request* request, int64_t now_ns) except -1:
        self.pins += 1
        request.pin = self.pin = self.pins
        request.rank = self.rank_of(request)
        self.pin_id = new_pin_id(self.publisher)
        self.pin_line = b"Nats-Pin-Id: " + self.pin_id + b"\r\n"
        self.pinned_group = request.group
        self.pinned_ns = now_ns
        self.due_ns = now_ns + self.timeout_ns
        try:
            self.events.pinned(self.name_of(request.group), self.pin_id.decode())
        except Exception:
            self.publisher.reactor.log_failure(NOT_TOLD)
        return 0

    # The end of a pin

    cdef int expire(self, int64_t now_ns) except -1:
        if self.due_ns and now_ns >= self.due_ns:
            self.unpin(self.name_of(self.pinned_group), "timeout")
        return 0

    cdef int unpin(self, str group, str reason) except -1:
        self.pin = 0
        self.pin_id = b""
        self.pinned_ns = self.due_ns = 0
        try:
            self.events.unpinned(group, reason)
        except Exception:
            self.publisher.reactor.log_failure(NOT_TOLD)
        return 0
