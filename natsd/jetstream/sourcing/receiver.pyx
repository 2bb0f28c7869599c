"""Receiver: it stores the messages of the origin's consumer, at the speed of a publish.

    deliver ─┬─ message ─▶ is it the next one? ─▶ check ─▶ propose ─▶ log     in the sender's turn
             └─ flow control, heartbeat ─▶ noted
    run      flow control, once all earlier messages are durable ─▶ answer    at the end of a turn
             trouble ─▶ `told`, which sets everything up again

Promise
- No Python object is created for a message: its record is written from the receive buffer.
- A mirror has the sequences and times of its origin; gaps there are gaps here. Messages of a source
  get the next sequences and the present time, and a header with their stream and sequence: message
  and position are one record, so that a crash keeps both or neither.
- Only the next message is accepted. If one is missing or cannot be stored, or a failed commit has
  rolled back the last messages, no message is accepted until `start`.
- Flow control is answered when all earlier messages are durable: unsynced messages are bounded by
  the origin's window, and an acknowledgement carried by the answer is never ahead of the disk.
- Publishers to the same stream are not starved: an origin in this server slows down when too many
  bytes wait for the disk.
- Preconditions of the publisher were checked by the origin; limits, duplicates, rollups and
  lifetimes are those of this stream.

Source: nats-server's `processInboundMirrorMsg` and `processInboundSourceMsg`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.routing cimport Message, SubjectTransform, Subscription
from natsd.jetstream.consumer.requests cimport Delivery, parse_delivery
from natsd.jetstream.stream.checks cimport (
    StreamCounters, Entry, MESSAGE_ID, PublishHeaders, ROLLUP, ROLLUP_ALL, ROLLUP_SUBJECT, TTL,
    find_publish_headers, header_given,
)
from natsd.jetstream.stream.publishing cimport Ingest, ROOM
from natsd.jetstream.stream.state cimport Actor
from natsd.store.block.sendable cimport EMPTY_HEADERS, is_sendable, sendable_headers
from natsd.store.codec.records cimport RECORD_BYTES_MAX, SUBJECT_BYTES_MAX

from natsd.jetstream.errors import ErrorId
from natsd.jetstream.headers import LAST_CONSUMER, LAST_STREAM, header_value
from natsd.store.errors import StoreError

cdef enum:
    CONTROL_BYTES = 13
    FIRST_LINE_BYTES = 10
    SOURCE_NAME_BYTES = 20      # "Nats-Stream-Source: "

CAUGHT_UP = 10
"""A mirror with fewer pending messages than this answers direct gets for its origin."""

cdef bytes FIRST_LINE = b"NATS/1.0\r\n"
cdef bytes SOURCE_NAME = b"Nats-Stream-Source: "
cdef uint64_t CAUGHT_UP_MAX = CAUGHT_UP
cdef bytes UNSENDABLE = b"a message's subject is none"
STALLED = "Nats-Consumer-Stalled"
MISSED = "messages were missed"
MOVED = "the mirror's last sequence changed"
LOST = "what was stored last is not on disk"


cdef inline bint is_control(Message* message) noexcept:
    return (
        CONTROL_BYTES <= message.header_len == message.data_len
        and memcmp(message.data, b"NATS/1.0 100 ", CONTROL_BYTES) == 0
    )


cdef uint64_t number_in(bytes headers, str name):
    value = header_value(headers, name)
    return int(value) if value and value.isdigit() and len(value) < 19 else 0


cdef class Receiver(Actor):
    """Sink for the messages of one origin's consumer, which it stores in the stream."""

    def __init__(self, Ingest ingest not None, told not None, transforms=(), header=None):
        """Create a receiver that accepts nothing before `start`.

        `told` is called without arguments. `header` is the text before and after the sequence in
        `Nats-Stream-Source`; None: this is a mirror. Raises InvalidMapping.
        """
        self.ingest = ingest
        self.stream = ingest.stream
        self.log = ingest.log
        self.told = told
        self.is_mirror = header is None
        self.lead, self.tail = (b"", b"") if header is None else header
        self.transforms = [SubjectTransform(each.source, each.destination) for each in transforms]
        self.trouble = ""

    def __dealloc__(self):
        free(self.headers)

    def start(
        self, str consumer not None, uint64_t sequence, uint64_t delivered, uint64_t pending
    ) -> None:
        """Accept messages of this consumer after `sequence` of the origin.

        `delivered` is the consumer's sequence there, `pending` the number of messages it has left.
        A mirror skips sequences up to there that it does not have. Raises StoreError.
        """
        self.rollbacks = self.stream.rollbacks
        if self.is_mirror:
            if sequence > self.log.edges.last:
                self.ingest.skip(sequence - self.log.edges.last)
                self.stream.scheduler.submit(self.ingest)
            sequence = self.log.edges.last
        self.sequence = sequence
        self.delivered = delivered
        self.has_caught_up = pending < CAUGHT_UP_MAX
        if pending == 0:
            self.lag = 0
        self.is_told = False
        self.heard_ns = self.stream.scheduler.now()
        self.trouble = ""
        self.control = None
        self.consumer = consumer.encode()

    def stop(self) -> None:
        """Accept no more messages."""
        self.consumer = self.control = None

    @property
    def is_current(self) -> bool:
        """Whether no message was rolled back since the start."""
        return self.rollbacks == self.stream.rollbacks

    # Incoming messages

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        if sub.closed or self.consumer is None or self.ingest.is_paused:
            return 0
        sub.delivered += 1
        if not self.is_queued:
            self.heard_ns = self.stream.scheduler.now()
            self.stream.scheduler.submit(self)
        if self.rollbacks != self.stream.rollbacks:
            return self.fail(LOST)
        if is_control(message):
            return self.take_control(message)
        return self.take(message)

    cdef int fail(self, str trouble) except -1:
        """Accept no more messages; `told` is called at the end of this turn."""
        self.consumer = self.control = None
        self.trouble = trouble
        self.stream.scheduler.submit(self)
        return 1

    cdef int take_control(self, Message* message) except -1:
        cdef bytes headers = message.data[:message.header_len]
        cdef uint64_t delivered
        if message.reply_len:
            return self.note_control(message.reply[:message.reply_len])
        delivered = number_in(headers, LAST_CONSUMER)
        if delivered and delivered != self.delivered:
            return self.fail(MISSED)
        reply = header_value(headers, STALLED)
        if reply:
            self.note_control(reply)
        return 1

    cdef int note_control(self, bytes reply) except -1:
        if self.control == reply:
            return 1
        self.control = reply
        self.control_wait = self.log.edges.last
        self.control_sequence = self.sequence
        self.control_delivered = self.delivered
        return 1

    cdef int take(self, Message* message) except -1:
        cdef Delivery delivery
        if message.reply == NULL or not parse_delivery(
            message.reply, message.reply_len, &delivery
        ):
            return 1
        if (
            delivery.consumer_len != PyBytes_GET_SIZE(self.consumer)
            or memcmp(
                delivery.consumer, PyBytes_AS_STRING(self.consumer), delivery.consumer_len
            ) != 0
        ):
            return 1
        if self.is_next(&delivery):
            return self.store(message, &delivery)
        return 1

    cdef bint is_next(self, Delivery* delivery) except -1:
        if delivery.sequence <= self.sequence:
            if delivery.consumer_sequence == self.delivered + 1:
                self.delivered += 1
            return False
        if delivery.consumer_sequence != self.delivered + 1:
            if delivery.consumer_sequence > self.delivered:
                self.fail(MISSED)
            return False
        if self.is_mirror and self.log.edges.last != self.sequence:
            self.fail(MOVED)
            return False
        return True

    # Storing

    cdef int store(self, Message* message, Delivery* delivery) except -1:
        cdef Ingest ingest = self.ingest
        cdef PublishHeaders found
        cdef Entry entry
        cdef bytes refused
        ingest.finish_batch()
        memset(&entry, 0, sizeof(Entry))
        entry.subject = message.subject
        entry.subject_len = message.subject_len
        entry.data = message.data + message.header_len
        entry.data_len = message.data_len - message.header_len
        self.carry(message, delivery.sequence, &entry)
        try:
            if self.is_mirror:
                if delivery.sequence > self.sequence + 1:
                    self.ingest.skip(delivery.sequence - 1 - self.sequence)
                    self.sequence = self.log.edges.last
                entry.time_ns = delivery.time_ns
            else:
                entry.time_ns = self.stream.scheduler.now()
            entry.sequence = self.log.edges.last + 1
            refused = self.admit(&entry, &found)
        except StoreError as error:
            return self.fail(str(error))
        if refused is not None:
            return self.fail(refused.decode())
        self.sequence = delivery.sequence
        self.delivered = delivery.consumer_sequence
        self.lag = delivery.pending - 1 if delivery.pending else 0
        if not self.has_caught_up:
            self.has_caught_up = delivery.pending < CAUGHT_UP_MAX
        self.stream.scheduler.submit(ingest)
        if ingest.backpressure.pressure() != ROOM:
            self.stream.scheduler.reactor.congested = ingest.backpressure
        return 1

    cdef bytes admit(self, Entry* entry, PublishHeaders* found):
        """Store the message, or ignore a duplicate; return the error if refused, else None."""
        cdef bytes refused = None
        self.transform(entry)
        found.found = 0
        if entry.headers_len:
            self.heed(entry, found)
        if not self.is_mirror:
            if self.ingest.message_ids.find(entry):
                return None
            if self.ingest.counters is not None:
                refused = self.count(entry)
        if refused is None:
            refused = self.check(entry, found)
        if refused is None:
            self.ingest.propose(entry)
        return refused

    cdef bytes count(self, Entry* entry):
        """Merge a counter's total into this stream's (ADR-49); return an error or None."""
        cdef StreamCounters counters = self.ingest.counters
        cdef bytes refused = counters.count_sourced(entry)
        if refused is not None and counters.wanted is not None:
            self.ingest.preconditions.fetch(counters.wanted)
        return refused

    cdef int heed(self, Entry* entry, PublishHeaders* found) except -1:
        """Evaluate the headers that concern this stream.

        A header that the origin allowed and this stream does not allow is stored without effect.
        """
        cdef bint may_roll_up = self.ingest.settings.allows_rollup
        cdef const char* at
        find_publish_headers(entry.headers, entry.headers_len, found)
        found.found &= 1 << <int> MESSAGE_ID | 1 << <int> ROLLUP | 1 << <int> TTL
        if header_given(found, MESSAGE_ID):
            entry.message_id = found.values[<int> MESSAGE_ID].at
            entry.message_id_len = found.values[<int> MESSAGE_ID].length
        if header_given(found, ROLLUP):
            at = found.values[<int> ROLLUP].at
            if may_roll_up and found.values[<int> ROLLUP].length == 3 and at[0] | 0x20 == c's':
                entry.rollup = ROLLUP_SUBJECT
            elif may_roll_up and found.values[<int> ROLLUP].length == 3 and at[0] | 0x20 == c'a':
                entry.rollup = ROLLUP_ALL
            else:
                found.found &= ~(1 << <int> ROLLUP)
        if header_given(found, TTL):
            if self.ingest.preconditions.check_lifetime(found) is not None:
                found.found &= ~(1 << <int> TTL)
        return 0

    cdef bytes check(self, Entry* entry, PublishHeaders* found):
        cdef Ingest ingest = self.ingest
        cdef bytes refused
        if not is_sendable(entry.subject, entry.subject_len):
            return UNSENDABLE
        if entry.subject_len > SUBJECT_BYTES_MAX or ingest.size_of(entry) > RECORD_BYTES_MAX:
            return ingest.preconditions.refuse(ErrorId.JSStreamMessageExceedsMaximumErr)
        if ingest.is_sealed:
            return ingest.preconditions.refuse(ErrorId.JSStreamSealedErr)
        refused = ingest.check_size(entry)
        return ingest.check_resources(entry, found) if refused is None else refused

    # Subject and headers of the stored message

    cdef int transform(self, Entry* entry) except -1:
        cdef SubjectTransform transform
        for transform in self.transforms:
            if transform.apply(
                entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
            ):
                break
        if self.ingest.transform is not None:
            self.ingest.transform.apply(
                entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
            )
        return 0

    cdef int carry(self, Message* message, uint64_t sequence, Entry* entry) except -1:
        """Build the headers to be stored."""
        cdef Py_ssize_t head = sendable_headers(message.data, message.header_len)
        cdef char* to
        entry.headers = NULL
        entry.headers_len = 0
        if self.is_mirror and head == 0:
            return 0
        to = self.reserve(head + message.subject_len)
        if head:
            to += carry_headers(message.data, head, not self.is_mirror, to)
        else:
            memcpy(to, PyBytes_AS_STRING(FIRST_LINE), FIRST_LINE_BYTES)
            to += FIRST_LINE_BYTES
        if not self.is_mirror:
            to = self.put_source(to, message, sequence)
        memcpy(to, b"\r\n", 2)
        if to + 2 - self.headers > EMPTY_HEADERS:
            entry.headers = self.headers
            entry.headers_len = to + 2 - self.headers
        return 0

    cdef char* reserve(self, Py_ssize_t need) except NULL:
        cdef char* grown
        need += (
            FIRST_LINE_BYTES + SOURCE_NAME_BYTES + len(self.lead) + len(self.tail)
            + DECIMAL_BYTES_MAX + 4
        )
        if need > self.headers_room:
            grown = <char*> realloc(self.headers, need)
            if grown == NULL:
                raise MemoryError
            self.headers = grown
            self.headers_room = need
        return self.headers

    cdef char* put_source(self, char* to, Message* message, uint64_t sequence) noexcept:
        memcpy(to, PyBytes_AS_STRING(SOURCE_NAME), SOURCE_NAME_BYTES)
        to += SOURCE_NAME_BYTES
        memcpy(to, PyBytes_AS_STRING(self.lead), PyBytes_GET_SIZE(self.lead))
        to = put_decimal(to + PyBytes_GET_SIZE(self.lead), sequence)
        memcpy(to, PyBytes_AS_STRING(self.tail), PyBytes_GET_SIZE(self.tail))
        to += PyBytes_GET_SIZE(self.tail)
        memcpy(to, message.subject, message.subject_len)
        to += message.subject_len
        memcpy(to, b"\r\n", 2)
        return to + 2

    # Work at the end of a turn

    cdef bint run(self, int64_t now_ns) except? -1:
        if self.trouble:
            self.told()
            return False
        if self.has_caught_up and not self.is_told:
            self.is_told = True
            self.told()
        if self.control is None:
            return False
        if self.rollbacks != self.stream.rollbacks:
            self.fail(LOST)
        elif self.stream.visible >= self.control_wait:
            self.answer_control()
        elif self not in self.stream.waiting_actors:
            self.stream.waiting_actors.append(self)
        return False

    cdef int answer_control(self) except -1:
        """Answer the flow-control request: the earlier messages are on disk."""
        cdef bytes reply = self.control
        cdef bytes headers = (
            f"NATS/1.0\r\n{LAST_CONSUMER}: {self.control_delivered}\r\n"
            f"{LAST_STREAM}: {self.control_sequence}\r\n\r\n"
        ).encode()
        self.control = None
        self.stream.publisher.send(
            self.stream.publisher.resolve(reply, len(reply)), reply, len(reply), NULL, 0, headers,
            len(headers), b"", 0,
        )
        return 0
