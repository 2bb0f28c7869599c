"""Parsers that write answers of direct gets and deliveries of pull consumers to a MessageBatch.

    direct   HMSG inbox sid   NATS/1.0 · own headers · Nats-Stream · Nats-Subject · Nats-Sequence
                              · Nats-Time-Stamp · Nats-Num-Pending · Nats-Last-Sequence
    pull     [H]MSG subject sid $JS.ACK.stream.consumer.deliveries.SEQUENCE.consumer's.TIME.PENDING
    both     HMSG inbox sid   NATS/1.0 204 EOB                    the end, or an error

Promise
- Rows are in the order of their sequences, each once: messages up to `last`, behind `upto`, or
  outside of the time bounds are dropped.
- The headers of a row are the publisher's: the headers that the server adds are removed, and only
  at the end of the block, where the server puts them.
- `take` returns STOP when the batch is full, `upto` is reached, a status arrived, `stop_at_frames`
  messages arrived, or a delivery is missing. A message without the expected fields raises
  ProtocolViolation.

Source: ADR-31; nats-server's `getDirectRequest`, `ackReplyInfo` and `processNextMsgRequest`.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libc.string cimport memchr, memcmp

from natsd.core.decimal cimport read_decimal
from natsd.core.timestamp cimport read_timestamp
from natsd.spark.wire.frames cimport GO_ON, STOP, MessageFrame
from natsd.spark.rows.message_batch cimport MessageBatch

from natsd.spark.errors import ProtocolViolation

cdef enum:
    HEARTBEAT = 100
    STATUS_AT = 9               # offset of the status code, behind "NATS/1.0 "
    TOKENS_MAX = 12

cdef enum Name:                 # headers that servers add, in the server's order
    OTHER
    STREAM_HEADER
    SUBJECT_HEADER
    SEQUENCE
    TIME_STAMP
    NUM_PENDING
    LAST_SEQUENCE
    MSG_SIZE


cdef class RangeDecoder(FrameHandler):
    """Base of both parsers: which rows are wanted, and what was received.

    Rows begin behind the sequence `after` and end with `upto`; `start_ns` (inclusive) and `end_ns`
    (exclusive) are ns since the epoch.
    """

    def __init__(
        self, MessageBatch batch not None, uint64_t after, uint64_t upto, start_ns=None,
        end_ns=None,
    ):
        self.batch = batch
        self.last = after
        self.upto = upto
        self.start_ns = INT64_MIN if start_ns is None else start_ns
        self.end_ns = INT64_MAX if end_ns is None else end_ns
        self.pending = -1
        self.status_block = b""

    @property
    def late(self):
        """Batch for rows behind `upto`, or None; if set, no sequence ends the read."""
        return self.late_rows

    @late.setter
    def late(self, MessageBatch batch):
        self.late_rows = batch
        self.has_late = batch is not None

    @property
    def is_complete(self):
        """Whether no wanted message can follow."""
        return self.is_reached()

    def status_text(self):
        """Return the status code and its description, as the server sent them."""
        line = self.status_block.partition(b"\r\n")[0]
        return line[STATUS_AT:].decode("utf-8", "replace")

    def status_header(self, str name not None):
        """Return a number among the headers of the status; None: absent, or not a number."""
        begin = name.lower().encode() + b":"
        for line in self.status_block.split(b"\r\n")[1:]:
            if line.lower().startswith(begin):
                value = line[len(begin):].strip()
                return int(value) if value.isdigit() else None
        return None

    def forget_status(self):
        """Reset the status after it was handled."""
        self.status = 0
        self.status_block = b""

    cdef int accept(
        self, const char* subject, size_t subject_len, uint64_t sequence, int64_t time_ns,
        const char* headers, size_t headers_len, const char* data, size_t data_len,
    ) except -1 nogil:
        self.frames = self.frames + 1
        self.row_bytes = self.row_bytes + subject_len + headers_len + data_len
        if sequence > self.last:
            if sequence > self.last + 1 and self.missing_from == 0:
                self.missing_from = self.last + 1
            self.last = sequence
            if sequence <= self.upto and self.start_ns <= time_ns < self.end_ns:
                self.batch.append(
                    NULL, 0, subject, subject_len, sequence, time_ns, headers, headers_len,
                    data, data_len,
                )
                if self.batch.full():
                    return STOP
            elif sequence > self.upto and self.has_late:
                self.late_rows.append(
                    NULL, 0, subject, subject_len, sequence, time_ns, NULL, 0, NULL, 0
                )
                if self.late_rows.full():
                    return STOP
        if self.is_reached() or self.frames == self.stop_at_frames:
            return STOP
        return GO_ON

    cdef bint is_reached(self) noexcept nogil:
        return self.last >= self.upto and not self.has_late

    cdef int keep_status(self, const MessageFrame* frame) except -1 nogil:
        """Store the status of the frame; return False if it has none."""
        cdef const char* code = frame.headers + STATUS_AT
        if frame.headers_len < STATUS_AT + 3 or code[-1] != c" " or not is_code(code):
            return False
        self.status = (
            100 * (code[0] - c"0") + 10 * (code[1] - c"0") + (code[2] - c"0")
        )
        with gil:
            self.status_block = frame.headers[:frame.headers_len]
        return True


cdef class DirectDecoder(RangeDecoder):
    """Parser of the answers to one batched DIRECT.GET."""

    cdef int take(self, const MessageFrame* frame) except -1 nogil:
        cdef Described described
        if self.keep_status(frame):
            return STOP
        if self.is_over:
            return GO_ON
        if not self.describe_bare(frame, &described) and not self.describe(frame, &described):
            raise ProtocolViolation("the answer to a direct get does not say which message it is")
        self.pending = described.pending
        return self.accept(
            described.subject, described.subject_len, described.sequence, described.time_ns,
            frame.headers, described.own_len, frame.data, frame.data_len,
        )

    cdef bint describe_bare(self, const MessageFrame* frame, Described* to) noexcept nogil:
        """Parse the headers if the message has no own ones and they are in the servers' order.

        Return False otherwise.
        """
        cdef const char* at = frame.headers
        cdef const char* end = frame.headers + frame.headers_len
        cdef const char* value
        cdef uint64_t number = 0
        if (
            not skip(&at, end, b"NATS/1.0\r\nNats-Stream: ", 23) or not skip_line(&at, end, &value)
            or not skip(&at, end, b"Nats-Subject: ", 14) or not skip_line(&at, end, &to.subject)
        ):
            return False
        to.subject_len = at - 2 - to.subject
        if (
            not skip(&at, end, b"Nats-Sequence: ", 15)
            or not skip_decimal(&at, end, &to.sequence)
            or not skip(&at, end, b"\r\nNats-Time-Stamp: ", 19)
            or not skip_line(&at, end, &value)
            or not read_timestamp(value, at - 2 - value, &self.second, &to.time_ns)
            or not skip(&at, end, b"Nats-Num-Pending: ", 18)
            or not skip_decimal(&at, end, &number)
        ):
            return False
        to.pending = <int64_t> number
        to.own_len = 10
        return (
            skip(&at, end, b"\r\nNats-Last-Sequence: ", 22) and skip_decimal(&at, end, &number)
            and skip(&at, end, b"\r\n\r\n", 4) and at == end
        )

    cdef bint describe(self, const MessageFrame* frame, Described* to) noexcept nogil:
        """Parse the headers from the last line upwards, as far as the server added them.

        Return False if a needed header is missing or malformed.
        """
        cdef const char* begin = frame.headers
        cdef const char* end = frame.headers + frame.headers_len - 2    # end of the unparsed lines
        cdef const char* line
        cdef const char* value
        cdef int name = OTHER
        cdef int found = 0
        cdef bint good = True
        cdef uint64_t number = 0
        to.pending = -1
        if frame.headers_len < 4:
            return False
        while end > begin + 2:
            line = line_before(begin, end)
            name = name_of(line, end - line, &value)
            if name == OTHER or found & (1 << name):
                break
            found |= 1 << name
            if name == SUBJECT_HEADER:
                to.subject = value
                to.subject_len = end - 2 - value
            elif name == TIME_STAMP:
                good &= read_timestamp(value, end - 2 - value, &self.second, &to.time_ns)
            elif name != STREAM_HEADER:
                good &= read_decimal(value, end - 2 - value, &number)
                if name == SEQUENCE:
                    to.sequence = number
                elif name == NUM_PENDING:
                    to.pending = <int64_t> number
            end = line
            if name == STREAM_HEADER:
                break
        to.own_len = end - begin
        return good and found & NEEDED == NEEDED


cdef class PullDecoder(RangeDecoder):
    """Parser of the deliveries of a pull consumer without acknowledgements."""

    cdef int take(self, const MessageFrame* frame) except -1 nogil:
        cdef uint64_t sequence = 0
        cdef uint64_t consumers = 0
        cdef uint64_t time_ns = 0
        cdef uint64_t pending = 0
        cdef const char* value
        cdef size_t headers_len = frame.headers_len
        cdef const char* line
        if frame.data_len == 0 and self.keep_status(frame):
            if self.status == HEARTBEAT:
                self.status = 0
                return GO_ON
            return STOP
        if self.is_over:
            return GO_ON
        if not read_delivery(
            frame.reply, frame.reply_len, &sequence, &consumers, &time_ns, &pending
        ):
            raise ProtocolViolation("a consumer's delivery does not say which message it is")
        if consumers != self.consumer_sequence + 1:
            self.is_out_of_order = True
            return STOP
        self.consumer_sequence = consumers
        self.pending = <int64_t> pending
        if self.is_bare and headers_len > 4:
            line = line_before(frame.headers, frame.headers + headers_len - 2)
            if name_of(line, frame.headers + headers_len - 2 - line, &value) == MSG_SIZE:
                headers_len = line - frame.headers
        return self.accept(
            frame.subject, frame.subject_len, sequence, <int64_t> time_ns,
            frame.headers, headers_len, frame.data, frame.data_len,
        ) or pending == 0


cdef enum:
    NEEDED = 1 << SUBJECT_HEADER | 1 << SEQUENCE | 1 << TIME_STAMP


cdef inline bint skip(
    const char** at, const char* end, const char* text, size_t length
) noexcept nogil:
    """Move `at` behind `text`; return False if other bytes are there."""
    if <size_t> (end - at[0]) < length or memcmp(at[0], text, length) != 0:
        return False
    at[0] += length
    return True


cdef inline bint skip_line(const char** at, const char* end, const char** value) noexcept nogil:
    """Move `at` behind the line, whose text is `value`; return False if it has no end."""
    cdef const char* found = <const char*> memchr(at[0], c"\r", end - at[0])
    if found == NULL or end - found < 2 or found[1] != c"\n":
        return False
    value[0] = at[0]
    at[0] = found + 2
    return True


cdef inline bint skip_decimal(const char** at, const char* end, uint64_t* to) noexcept nogil:
    cdef const char* begin = at[0]
    cdef uint64_t value = 0
    while at[0] < end and c"0" <= at[0][0] <= c"9":
        value = 10 * value + <uint64_t> (at[0][0] - c"0")
        at[0] += 1
    to[0] = value
    return 0 < at[0] - begin <= 20


cdef inline bint is_code(const char* at) noexcept nogil:
    return c"1" <= at[0] <= c"5" and c"0" <= at[1] <= c"9" and c"0" <= at[2] <= c"9"


cdef inline const char* line_before(const char* begin, const char* end) noexcept nogil:
    """Return the start of the line that ends, with its CRLF, at `end`."""
    cdef const char* at = end - 2
    while at > begin and at[-1] != c"\n":
        at -= 1
    return at


cdef inline int name_of(const char* line, size_t length, const char** value) noexcept nogil:
    """Return which server header the line is, and its value; OTHER: not one of them."""
    if length < 13 or memcmp(line, b"Nats-", 5) != 0:
        return OTHER
    if is_named(line, length, b"Nats-Sequence: ", 15, value):
        return SEQUENCE
    if is_named(line, length, b"Nats-Subject: ", 14, value):
        return SUBJECT_HEADER
    if is_named(line, length, b"Nats-Time-Stamp: ", 17, value):
        return TIME_STAMP
    if is_named(line, length, b"Nats-Num-Pending: ", 18, value):
        return NUM_PENDING
    if is_named(line, length, b"Nats-Last-Sequence: ", 20, value):
        return LAST_SEQUENCE
    if is_named(line, length, b"Nats-Stream: ", 13, value):
        return STREAM_HEADER
    if is_named(line, length, b"Nats-Msg-Size: ", 15, value):
        return MSG_SIZE
    return OTHER


cdef inline bint is_named(
    const char* line, size_t length, const char* name, size_t name_len, const char** value
) noexcept nogil:
    if length < name_len + 2 or memcmp(line, name, name_len) != 0:
        return False
    value[0] = line + name_len
    return True


cdef bint read_delivery(
    const char* reply, size_t length, uint64_t* sequence, uint64_t* consumers,
    uint64_t* time_ns, uint64_t* pending,
) noexcept nogil:
    """Parse the ack subject of a delivery; return False if it is malformed.

    It has 9 tokens, or 11 and more with a domain and an account; a gateway's suffix begins with @.
    """
    cdef size_t[TOKENS_MAX + 1] starts
    cdef size_t at
    cdef int count = 0
    cdef int first = 5
    cdef const char* suffix = <const char*> memchr(reply, c"@", length) if length else NULL
    if suffix != NULL:
        length = suffix - reply
    if length < 8 or memcmp(reply, b"$JS.ACK.", 8) != 0:
        return False
    starts[0] = 0
    for at in range(length):
        if reply[at] == c"." and count < TOKENS_MAX:
            count += 1
            starts[count] = at + 1
    count += 1
    if count >= 11:
        first = 7
    elif count != 9:
        return False
    if count < TOKENS_MAX + 1:
        starts[count] = length + 1
    return (
        read_decimal(reply + starts[first], starts[first + 1] - 1 - starts[first], sequence)
        and read_decimal(
            reply + starts[first + 1], starts[first + 2] - 1 - starts[first + 1], consumers
        )
        and read_decimal(
            reply + starts[first + 2], starts[first + 3] - 1 - starts[first + 2], time_ns
        )
        and read_decimal(
            reply + starts[first + 3], starts[first + 4] - 1 - starts[first + 3], pending
        )
    )
