"""The deliver subject of a push consumer: its subscribers, and how much may be sent to them.

    Flow control    bytes under way ──────▶ over half of the window: "100 FlowControl Request"
                    stop ◀── over the window      │ the client answers to the request's reply
                    window doubles, up to 32 MiB ◀┘ once it has read what was under way

Promise
- With flow control, at most a window and a message are on their way. The window begins with 2 MiB.
- The rate limit is a token bucket of `rate_burst_bytes`; a message larger than that is sent when
  the bucket is full.
- Subscribers are looked up once a slice, or as long as the result stays valid.

Source: nats-server's `needFlowControl` and `processFlowControl` for the size of the window.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult, fanout_of

cdef enum:
    WINDOW_MAX = 32 << 20
    WINDOW_SHARE = 16           # the window begins with 1 / WINDOW_SHARE of its maximum
    CONTROL_CHARS = 4
    CONTROL_TAGS = 14_776_336   # 62 to the power of CONTROL_CHARS
    PREFIX_LEN = 7              # bytes of "$JS.FC.", behind which domain and account may follow

cdef bytes FLOW_CONTROL = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


cdef class PushSubject:
    def __cinit__(self, AccountPublisher publisher not None):
        self.publisher = publisher

    cdef int configure(self, str stream, str name, settings, int64_t now_ns) except -1:
        subject = settings.deliver_subject
        self.subject = None if subject is None else subject.encode()
        self.control_prefix = f"$JS.FC.{stream}.{name}.".encode()
        self.to = None
        if not settings.flow_control:
            self.window = self.under_way = 0
            self.control = None
        elif self.window == 0:
            self.window = WINDOW_MAX // WINDOW_SHARE
        self.heartbeat_ns = max(settings.idle_heartbeat_ns, 0)
        self.heartbeat_due_ns = now_ns + self.heartbeat_ns if self.heartbeat_ns else 0
        rate = max(settings.rate_limit_bps, 0) / 8
        if rate != self.rate:
            self.rate = rate
            self.tokens = max(settings.rate_burst_bytes, 1)
            self.tokens_ns = now_ns
        self.burst = max(settings.rate_burst_bytes, 1)
        return 0

    cdef MatchResult listeners(self, uint64_t slice):
        if self.to is None or slice != self.slice and not self.to.live:
            self.to = self.publisher.resolve(self.subject, len(self.subject))
        self.slice = slice
        return self.to if fanout_of(self.to) else None

    # How much may be sent

    cdef bint is_stalled(self) noexcept:
        return self.window > 0 and self.under_way > self.window

    cdef int64_t due_ns(self, Py_ssize_t size, int64_t now_ns) noexcept:
        cdef double lacking
        if self.rate <= 0:
            return 0
        if now_ns > self.tokens_ns:
            self.tokens = min(
                self.burst, self.tokens + self.rate * (now_ns - self.tokens_ns) / SECOND_NS
            )
        self.tokens_ns = now_ns
        lacking = min(<double> size, self.burst) - self.tokens
        return now_ns + <int64_t> (lacking / self.rate * SECOND_NS) + 1 if lacking > 0 else 0

    cdef int sent(self, Py_ssize_t size, Py_ssize_t wire_size, int64_t now_ns) except -1:
        if self.heartbeat_ns:
            self.heartbeat_due_ns = now_ns + self.heartbeat_ns
        if self.rate > 0:
            self.tokens -= size
        if self.window > 0:
            self.under_way += wire_size
        return 0

    # Flow control

    cdef bint wants_control(self, Py_ssize_t wire_size) noexcept:
        if self.window == 0:
            return False
        if self.control is None:
            return self.under_way > self.window // 2
        if self.under_way - self.asked_about >= self.window:
            self.asked_about += wire_size
        return False

    cdef int ask_control(self) except -1:
        cdef uint64_t drawn = self.publisher.reactor.random(CONTROL_TAGS)
        cdef bytearray tag = bytearray()
        for _ in range(CONTROL_CHARS):
            tag.append(CHARS[drawn % 62])
            drawn //= 62
        self.asked_about = self.under_way
        self.control = self.control_prefix + bytes(tag)
        return self.send_block(FLOW_CONTROL, self.control)

    cdef bint controlled(self, const char* subject, Py_ssize_t length) noexcept:
        cdef const char* named
        cdef Py_ssize_t named_len
        if self.control is None:
            return False
        named = <const char*> self.control + PREFIX_LEN     # stream, consumer, tag
        named_len = len(self.control) - PREFIX_LEN
        if length < named_len or memcmp(subject + length - named_len, named, named_len) != 0:
            return False
        self.window = min(2 * self.window, <int64_t> WINDOW_MAX)
        self.under_way = max(self.under_way - self.asked_about, 0)
        self.asked_about = 0
        self.control = None
        return True

    # Status messages

    cdef int send_heartbeat(self, uint64_t consumer_sequence, uint64_t stream_sequence) except -1:
        cdef bytes rest = b""
        if self.control is not None:
            rest = b"Nats-Consumer-Stalled: " + self.control + b"\r\n"
        if self.age is not None:
            rest += self.age()
        return self.send_block((
            f"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {consumer_sequence}\r\n"
            f"Nats-Last-Stream: {stream_sequence}\r\n"
        ).encode() + rest + b"\r\n", b"")

    cdef int send_block(self, bytes block, bytes reply) except -1:
        cdef MatchResult to = self.publisher.resolve(self.subject, len(self.subject))
        self.publisher.send(
            to, self.subject, len(self.subject), reply, len(reply), block, len(block), b"", 0
        )
        return 0
