"""StreamCounters: each subject of a stream is a number, and a publish adds to it.

    Nats-Incr: +5                 ─▶  {"val":"12"}     stored, and in the PubAck: "val":"12"
    Nats-Incr, Nats-Stream-Source ─▶  the total there, less what it was before, is added here

Promise
- The total is that of the subject's last message, which is read from the log each time: it is right
  after any crash, rollback, removal or rollover, and costs no memory.
- Where that message is not in memory, the publish waits for its block, and all later publishes wait
  too, in order, up to WAITING_BYTES_MAX; beyond that they are answered 429. No sum is guessed.
- Where the last message is not a total, an increment is refused as broken (10172).
- The known totals of other streams (counter_sources.py) are carried from message to message.

A message from another stream tells the total of a subject there: its payload is that total, its
headers have `Nats-Incr` and `Nats-Stream-Source`. The sourcing code calls `count_sourced` before
the sizes are checked, to get what is stored here: the new sum, `Nats-Incr` with the change, and
`Nats-Counter-Sources` with all known totals. The message may be refused as not ready (10163): then
`wanted` is the block to fetch before the message is brought again, which is harmless.

Source: ADR-49; nats-server's `processJetStreamMsg`. The order of the rules is nats-server's,
observed.
"""

import asyncio
import collections

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from natsd.core.routing cimport SubjectTransform
from natsd.jetstream.stream.state cimport StreamReaders
from natsd.store.block.blocks cimport COLD, FOUND, Found
from natsd.store.log.message_log cimport DONE, NEEDS_BLOCK, Outcome, exact_last

from natsd.jetstream.errors import ErrorId
from natsd.jetstream.stream.counter_sources import (
    SOURCES, BrokenSources, note_source, value_in, with_count,
)
from natsd.store.errors import StoreError

cdef enum:
    BEFORE = 8                  # bytes of `{"val":"`
    AROUND = 10                 # the same with `"}`
    WAITING_BYTES_MAX = 4 << 20
    WAITING_MSGS_MAX = 16_384
    AGAIN_PER_SLICE = 256

cdef const char* OPENING = b"{\"val\":\""
cdef const char* CLOSING = b"\"}"
cdef bytes SOURCES_NAME = SOURCES.encode()

cdef HeaderName[6] NEVER_WITH = [
    ROLLUP, EXPECTED_STREAM, EXPECTED_LAST_MESSAGE_ID, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    EXPECTED_LAST_SEQUENCE, EXPECTED_LAST_SUBJECT_SEQUENCE,
]


cdef int make_room(Room* room, Py_ssize_t length) except -1:
    cdef char* at
    if length <= room.length:
        return 0
    at = <char*> realloc(room.at, length)
    if at == NULL:
        raise MemoryError()
    room.at = at
    room.length = length
    return 0


cdef inline HeaderValue value_of(bytes text):
    return HeaderValue(at=PyBytes_AS_STRING(text), length=PyBytes_GET_SIZE(text))


cdef class StreamCounters:
    def __init__(self, StreamReaders stream not None, publish not None):
        """Keep `publish(subject, headers, data, reply)`, which publishes again what waited."""
        self.stream = stream
        self.log = stream.log
        self.preconditions = Preconditions(stream, False)
        self.publish = publish
        self.waiting = collections.deque()

    def __dealloc__(self):
        free(self.body.at)
        free(self.headers.at)

    def close(self) -> None:
        """Drop what waits: the stream goes away."""
        self.publish = None
        self.waiting.clear()
        if self.going_on is not None:
            self.going_on.cancel()

    # Rules

    cdef bytes check(self, Entry* entry, PublishHeaders* headers):
        cdef HeaderValue* given = &headers.values[<int> INCREMENT]
        cdef HeaderValue sources
        cdef Number increment
        cdef HeaderName name
        if not header_given(headers, INCREMENT):
            return None
        if not read_number(given.at, given.length, &increment):
            return self.preconditions.refuse(ErrorId.JSMessageIncrInvalidErr)
        if entry.data_len:
            return self.preconditions.refuse(ErrorId.JSMessageIncrPayloadErr)
        for name in NEVER_WITH:
            if header_given(headers, name):
                return self.preconditions.refuse(ErrorId.JSMessageIncrInvalidErr)
        # Only a sourced message may tell of sources; nats-server accepts the header from any
        # client.
        if find_header(
            entry.headers, entry.headers_len, SOURCES_NAME, len(SOURCES_NAME), &sources
        ):
            return self.preconditions.refuse(ErrorId.JSMessageIncrInvalidErr)
        return None

    cdef bytes count(self, Entry* entry, PublishHeaders* headers):
        cdef HeaderValue* given = &headers.values[<int> INCREMENT]
        cdef HeaderValue sources
        cdef Number initial, change
        cdef bytes refused
        if not header_given(headers, INCREMENT):
            return self.preconditions.refuse(ErrorId.JSMessageIncrMissingErr)
        refused = self.find_initial(entry, &initial, &sources)
        if refused is not None:
            return refused
        read_number(given.at, given.length, &change)
        self.add(entry, &initial, &change)
        if sources.length:
            self.carry_sources(entry, &sources)
        if self.staged is not None:
            self.stage(entry, &sources)
        return None

    # The last total

    cdef bytes find_initial(self, Entry* entry, Number* initial, HeaderValue* sources):
        """Read the total that is added to; return the refusal if there is none."""
        cdef HeaderValue last
        cdef LastCount found = self.last_total(entry, &last, sources)
        if found == COLD_COUNT:     # sourced or in a batch: any other publish waited for the block
            self.preconditions.fetch(self.wanted)
            return self.preconditions.refuse(ErrorId.JSStreamExpectedLastSeqPerSubjectNotReady)
        if found == BROKEN or not read_number(last.at, last.length, initial):
            return self.preconditions.refuse(ErrorId.JSMessageCounterBrokenErr)
        return None

    cdef LastCount last_total(
        self, Entry* entry, HeaderValue* total, HeaderValue* sources
    ) except? BROKEN:
        """Find the total of the subject, 0 without a message, and the totals of its sources."""
        cdef RecordView view
        cdef LastCount found
        sources.length = 0
        total.at = b"0"
        total.length = 1
        if self.staged is not None:
            staged = self.staged.get(entry.subject[:entry.subject_len])
            if staged is not None:
                total[0] = value_of(staged[0])
                sources[0] = value_of(staged[1])
                return KNOWN
        found = self.find_last(entry.subject, entry.subject_len, &view)
        if found != KNOWN:
            return found
        if not self.read_total(view.data, view.data_len, total):
            return BROKEN
        find_header(view.headers, view.headers_len, SOURCES_NAME, len(SOURCES_NAME), sources)
        return KNOWN

    cdef LastCount find_last(
        self, const char* subject, Py_ssize_t subject_len, RecordView* out
    ) except? BROKEN:
        cdef int64_t slot = self.log.subjects.find(subject, subject_len)
        cdef uint64_t sequence = 0
        cdef Outcome outcome
        cdef Found seen
        if slot < 0 or self.log.subjects.record(slot).count == 0:
            return NONE
        outcome = exact_last(self.log, slot, &sequence)
        if outcome != DONE:
            self.wanted = self.log.wanted
            return COLD_COUNT if outcome == NEEDS_BLOCK else NONE
        self.wanted = self.log.blocks.holding(sequence)
        seen = self.wanted.view(sequence, out)
        return KNOWN if seen == FOUND else COLD_COUNT if seen == COLD else BROKEN

    cdef bint read_total(self, const char* data, Py_ssize_t length, HeaderValue* out) except -1:
        """Find the total in a payload. False: it is no total.

        `out` points into `data`, or into memory that holds until the next total is read.
        """
        if (
            length > AROUND and memcmp(data, OPENING, BEFORE) == 0
            and memcmp(data + length - 2, CLOSING, 2) == 0
        ):
            out.at = data + BEFORE
            out.length = length - AROUND
            return True
        try:
            self.rewritten = value_in(data[:length])
        except BrokenSources:
            return False
        out[0] = value_of(self.rewritten)
        return True

    # The next total

    cdef int add(self, Entry* entry, const Number* initial, const Number* change) except -1:
        make_room(&self.body, max(initial.length, change.length) + 2 + AROUND)
        memcpy(self.body.at, OPENING, BEFORE)
        self.total.at = self.body.at + BEFORE
        self.total.length = put_sum(initial, change, self.body.at + BEFORE)
        memcpy(self.body.at + BEFORE + self.total.length, CLOSING, 2)
        entry.data = self.body.at
        entry.data_len = self.total.length + AROUND
        return 0

    cdef int carry_sources(self, Entry* entry, HeaderValue* sources) except -1:
        """Append the known totals of other streams to the publisher's headers."""
        cdef Py_ssize_t name_len = len(SOURCES_NAME)
        cdef Py_ssize_t kept = entry.headers_len - 2
        cdef char* to
        make_room(&self.headers, kept + name_len + 2 + sources.length + 4)
        to = self.headers.at
        memcpy(to, entry.headers, kept)
        to += kept
        memcpy(to, PyBytes_AS_STRING(SOURCES_NAME), name_len)
        memcpy(to + name_len, b": ", 2)
        to += name_len + 2
        memcpy(to, sources.at, sources.length)
        memcpy(to + sources.length, b"\r\n\r\n", 4)
        to += sources.length + 4
        entry.headers_len = to - self.headers.at
        entry.headers = self.headers.at
        return 0

    cdef bytes count_sourced(self, Entry* entry):
        cdef HeaderValue given, sources
        cdef Number initial, there
        cdef bytes refused, text, known, before
        cdef bytes block = entry.headers[:entry.headers_len]
        if not find_header(entry.headers, entry.headers_len, b"Nats-Incr", 9, &given):
            return self.preconditions.refuse(ErrorId.JSMessageIncrMissingErr)
        refused = self.find_initial(entry, &initial, &sources)
        if refused is not None:
            return refused
        subject = entry.subject[:entry.subject_len].decode("utf-8", "surrogateescape")
        try:
            text = value_in(entry.data[:entry.data_len])
            if not read_number(PyBytes_AS_STRING(text), len(text), &there):
                raise BrokenSources
            text = b"-" * there.is_negative + there.digits[:there.length]
            known, before = note_source(sources.at[:sources.length], block, subject, text)
        except BrokenSources:
            return self.preconditions.refuse(ErrorId.JSMessageCounterBrokenErr)
        text = self.merge(entry, &initial, text, before)
        self.rewritten = with_count(block, text, known)
        entry.headers = PyBytes_AS_STRING(self.rewritten)
        entry.headers_len = PyBytes_GET_SIZE(self.rewritten)
        return None

    cdef bytes merge(self, Entry* entry, const Number* initial, bytes there, bytes before):
        """Add the difference between an origin's total and its previous one; return it."""
        cdef Number total, last, change
        cdef bytes text
        read_number(PyBytes_AS_STRING(there), len(there), &total)
        if not read_number(PyBytes_AS_STRING(before), len(before), &last):
            read_number(b"0", 1, &last)
        last = negated(&last)
        make_room(&self.body, max(total.length, last.length) + 2)
        text = self.body.at[:put_sum(&total, &last, self.body.at)]
        read_number(PyBytes_AS_STRING(text), len(text), &change)
        self.add(entry, initial, &change)
        return text

    cdef bytes tail(self):
        """Return the total as the PubAck shows it."""
        return b",\"val\":\"" + self.total.at[:self.total.length] + b"\""

    # Batches

    cdef int begin_batch(self) except -1:
        self.staged = {}
        self.kept = []
        return 0

    cdef int end_batch(self) except -1:
        self.staged = None
        self.kept = None
        return 0

    cdef int stage(self, Entry* entry, HeaderValue* sources) except -1:
        """Make the entry the last message of its subject for the rest of the batch."""
        cdef bytes data = entry.data[:entry.data_len]
        cdef bytes headers = entry.headers[:entry.headers_len]
        self.kept.append((data, headers))
        self.staged[entry.subject[:entry.subject_len]] = (
            self.total.at[:self.total.length], sources.at[:sources.length]
        )
        entry.data = PyBytes_AS_STRING(data)
        entry.headers = PyBytes_AS_STRING(headers)
        return 0

    # Publishes that wait for a block

    cdef bint must_wait(
        self, SubjectTransform transform, const char* subject, Py_ssize_t subject_len
    ) except -1:
        cdef RecordView view
        if self.is_going_on:
            if self.is_unreadable:      # `count` refuses it then
                return False
        elif self.waiting:
            return True
        if transform is not None:
            transform.apply(subject, subject_len, &subject, &subject_len)
        return self.find_last(subject, subject_len, &view) == COLD_COUNT

    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        cdef Py_ssize_t size = subject_len + headers_len + data_len + reply_len
        if self.is_going_on:            # it is the first one that waits
            self.is_lacking = True
            return True
        if self.waiting_bytes + size > WAITING_BYTES_MAX or len(self.waiting) >= WAITING_MSGS_MAX:
            return False
        self.waiting_bytes += size
        self.waiting.append((
            subject[:subject_len], headers[:headers_len] if headers_len else b"",
            data[:data_len] if data_len else b"", reply[:reply_len] if reply_len else None,
        ))
        if self.going_on is None:
            self.going_on = self.stream.scheduler.reactor.loop.create_task(self._go_on())
        return True

    async def _go_on(self) -> None:
        left = AGAIN_PER_SLICE
        try:
            while self.waiting and self.publish is not None:
                self.publish_first()
                left -= 1
                if self.is_lacking:
                    await self._fetch(self.wanted)
                elif left <= 0:
                    left = AGAIN_PER_SLICE
                    await asyncio.sleep(0)
        finally:
            self.going_on = None

    async def _fetch(self, block) -> None:
        try:
            await self.stream.store.fetch(block)
        except (StoreError, OSError):
            self.is_unreadable = True

    cdef int publish_first(self) except -1:
        """Publish the first waiting message once more.

        It is stored or refused, unless it `is_lacking` a block still.
        """
        subject, headers, data, reply = self.waiting[0]
        self.is_going_on = True
        self.is_lacking = False
        try:
            self.publish(subject, headers, data, reply)
        finally:
            self.is_going_on = False
        if not self.is_lacking:
            self.is_unreadable = False
            self.waiting_bytes -= len(subject) + len(headers) + len(data) + len(reply or b"")
            self.waiting.popleft()
        return 0

    # For tests.

    def sourced(self, bytes subject not None, bytes headers not None, bytes data not None) -> tuple:
        """Return the headers and payload that `count_sourced` makes, or its refusal."""
        cdef Entry entry
        cdef bytes refused
        entry.subject, entry.subject_len = PyBytes_AS_STRING(subject), len(subject)
        entry.headers, entry.headers_len = PyBytes_AS_STRING(headers), len(headers)
        entry.data, entry.data_len = PyBytes_AS_STRING(data), len(data)
        refused = self.count_sourced(&entry)
        if refused is not None:
            return (refused,)
        return entry.headers[:entry.headers_len], entry.data[:entry.data_len]
