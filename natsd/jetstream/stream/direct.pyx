"""Direct get of the last message of a subject, compiled: from the index straight to the client.

    deliver ─▶ queue ─▶ run ─┬─ subject's last message, in memory and durable ─▶ the client
                             └─ a body, headers, a pattern, a block on disk ─▶ `ask` (direct_get.py)

Promise
- A key-value get makes no Python object, and is answered in the turn in which it came.
- Only durable messages are shown: `ask` answers a request for one that is not durable yet, and
  waits for it.
- Requests wait in `QUEUE_BYTES_MAX` bytes at most; a request beyond that is dropped and counted,
  and the client asks again after its timeout.

Source: ADR-31; nats-server's `processDirectGetLastBySubjectRequest`.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from natsd.core.routing cimport MatchResult, Message, Subscription, subject_is_literal
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport DONE, MessageLog, exact_last

from natsd.store.errors import MessageNotFound

cdef enum:
    QUEUE_BYTES_MIN = 4096
    QUEUE_BYTES_MAX = 16 << 20
    REQUESTS_PER_SLICE = 128

cdef bytes NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"


cdef class DirectGet(Actor):
    """The sink of the subjects `DIRECT.GET.<stream>` and `DIRECT.GET.<stream>.>`.

    The wildcard of the second one is the subject whose last message is requested.
    """

    def __init__(self, StreamReaders stream not None, ask):
        self.stream = stream
        self.ask = ask
        self.answer = DirectAnswer(stream.name, stream.publisher)

    def tell_staleness(self, staleness) -> None:
        """Have each answer say how old it may be: a callable that returns the header line.

        None: answers do not say so.
        """
        self.answer.staleness = staleness

    def __dealloc__(self):
        free(self.waiting)

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Request request
        cdef const char* key
        cdef char* to
        cdef uint32_t before = sub.subject_len - 1
        if sub.closed or message.reply == NULL:
            return 0
        request.key_len = 0
        key = message.subject
        if sub.text[before] == c'>':
            key += before
            request.key_len = <uint32_t> message.subject_len - before
        request.reply_len = <uint32_t> message.reply_len
        request.headers_len = <uint32_t> message.header_len
        request.body_len = <uint32_t> (message.data_len - message.header_len)
        to = self.make_room(
            sizeof(Request) + request.key_len + request.reply_len + message.data_len
        )
        if to == NULL:
            self.dropped += 1
            return 1
        memcpy(to, &request, sizeof(Request))
        to += sizeof(Request)
        memcpy(to, key, request.key_len)
        memcpy(to + request.key_len, message.reply, request.reply_len)
        memcpy(to + request.key_len + request.reply_len, message.data, message.data_len)
        self.stream.scheduler.submit(self)
        sub.delivered += 1
        return 1

    cdef char* make_room(self, size_t need) except? NULL:
        """Return the place of the next request; NULL: there is no room."""
        cdef size_t used = self.tail - self.head
        cdef size_t capacity = max(self.capacity, <size_t> QUEUE_BYTES_MIN)
        cdef char* moved
        if self.tail + need <= self.capacity:
            self.tail += need
            return self.waiting + self.tail - need
        if used + need > QUEUE_BYTES_MAX:
            return NULL
        while capacity < used + need:
            capacity *= 2
        moved = <char*> malloc(capacity)
        if moved == NULL:
            raise MemoryError
        memcpy(moved, self.waiting + self.head, used)
        free(self.waiting)
        self.waiting = moved
        self.capacity = capacity
        self.head = 0
        self.tail = used + need
        return moved + used

    cdef bint run(self, int64_t now_ns) except? -1:
        cdef Request request
        cdef size_t size
        cdef const char* at
        for _ in range(REQUESTS_PER_SLICE):
            if self.head == self.tail:
                break
            at = self.waiting + self.head
            memcpy(&request, at, sizeof(Request))
            size = (
                <size_t> sizeof(Request) + request.key_len + request.reply_len
                + request.headers_len + request.body_len
            )
            self.head += size   # also if serving it raises
            self.serve(&request, at + sizeof(Request))
        if self.head < self.tail:
            return True
        self.head = self.tail = 0
        if self.capacity > QUEUE_BYTES_MIN:
            free(self.waiting)
            self.waiting = NULL
            self.capacity = 0
        return False

    cdef int serve(self, const Request* request, const char* key) except -1:
        cdef const char* reply = key + request.key_len
        cdef const char* headers = reply + request.reply_len
        cdef const char* body = headers + request.headers_len
        if (
            request.key_len and not request.headers_len and not request.body_len
            and self.answer_last(key, request.key_len, reply, request.reply_len)
        ):
            return 0
        self.ask(
            key[:request.key_len], reply[:request.reply_len], headers[:request.headers_len],
            body[:request.body_len],
        )
        return 0

    cdef bint answer_last(
        self, const char* key, uint32_t key_len, const char* reply, uint32_t reply_len
    ) except -1:
        """Answer with the last message of a subject. False: the request needs `ask`."""
        cdef MessageLog log = self.stream.log
        cdef RecordView view
        cdef uint64_t last = 0
        cdef int64_t slot
        if not subject_is_literal(key, key_len):
            return False
        slot = log.subjects.find(key, key_len)
        if slot < 0 or log.subjects.record(slot).count == 0:
            self.send_not_found(reply, reply_len)
            return True
        if exact_last(log, slot, &last) != DONE or last > self.stream.visible:
            return False
        try:
            if log.view(last, &view) != DONE:
                return False
        except MessageNotFound:         # a damaged message: `ask` answers so
            return False
        self.answer.send(self.inbox(reply, reply_len), reply, reply_len, &view, -1, 0)
        return True

    cdef int send_not_found(self, const char* reply, uint32_t reply_len) except -1:
        cdef bytes status = NOT_FOUND
        if self.answer.staleness is not None:
            status = NOT_FOUND[:-2] + self.answer.staleness() + b"\r\n"
        self.stream.publisher.send(
            self.inbox(reply, reply_len), reply, reply_len, NULL, 0,
            status, len(status), NULL, 0,
        )
        return 0

    cdef MatchResult inbox(self, const char* reply, uint32_t reply_len):
        return self.stream.publisher.resolve(reply, reply_len)
