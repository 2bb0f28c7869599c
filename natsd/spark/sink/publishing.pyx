"""Rows of Arrow columns become publishes, and the server's answers mark rows as done.

Promise
- `RowBatch` reads an Arrow batch's buffers in place. `check` finds the first row that no server
  could store; `digest` chains the content of rows, in order, into 64 bits.
- `FoundIds` stores message ids as 128 bits of hash: an accidental collision is likely only at about
  2^60 messages. Memory: 32 to 64 bytes per id.
- `SendWindow` knows of each pending row whether it is acknowledged. At most `max_rows` rows and
  `max_bytes` bytes (but at least one row) are in flight. An answer counts only if it is a whole
  PubAck of a stream that the window knows; any other answer is handed out with its row, which is
  then refused: it is sent again later, and never counted as done.
- No Python object is created for a row without problems.

The frame of row 7 and its answer:

    HPUB <subject> <inbox>7 <header bytes> <total bytes>\\r\\n
    NATS/1.0\\r\\nNats-Msg-Id: <prefix>7\\r\\n<the row's own headers>\\r\\n<data>\\r\\n

    MSG <inbox>7 <sid> <bytes>\\r\\n{"stream":"S","seq":17}\\r\\n          (spaces differ)

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol; nats-server's
`JSPubAckResponse`; the Arrow columnar format, "Variable-size Binary Layout", "Map Layout".
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from natsd.core.decimal cimport put_decimal
from natsd.core.routing cimport subject_is_valid, subject_is_valid_literal, subject_matches
from natsd.spark.wire.frames cimport FrameHandler, GO_ON, MessageFrame, STOP
from natsd.store.codec.xxh64 cimport xxh64

cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t haystack_bytes, const void* needle, size_t bytes)

cdef enum:  # states of a row in a SendWindow
    UNSENT = 0
    IN_FLIGHT = 1
    DONE = 2
    REFUSED = 3

cdef enum:  # results of a row's check; PROBLEMS has their texts
    OK = 0
    NO_SUBJECT = 1
    BAD_SUBJECT = 2
    NO_ID = 3
    BAD_ID = 4
    NO_VALUE = 5
    BAD_NAME = 6
    BAD_VALUE = 7
    TOO_LARGE = 8

cdef enum:
    OUT_BYTES = 1 << 17         # size of the send buffer
    FIXED_BYTES = 160           # maximum of a frame's numbers, names and line ends
    NEVER = 0xff                # target of a row that was found, not sent

PROBLEMS = {
    NO_SUBJECT: "the subject is null",
    BAD_SUBJECT: "the subject {subject!r} is not one that can be published to",
    NO_ID: "the id is null or empty",
    BAD_ID: "the id holds a line end or begins or ends with a space",
    NO_VALUE: "a header has no value: null or an empty list stands where one belongs",
    BAD_NAME: "a header's name is null, empty, or holds a colon, a space or a line end",
    BAD_VALUE: "a header's value holds a line end",
    TOO_LARGE: "the message for {subject!r} is larger than the server's max_payload of"
    " {max_payload} bytes",
}

cdef TextSlice MSG_ID = TextSlice(b"Nats-Msg-Id", 11)
cdef uint64_t SECOND_SEED = 0x9E3779B97F4A7C15ULL


cdef const char* address(object buffer, list held):
    """Return the start of the buffer, kept alive by `held`; NULL: none, or empty."""
    cdef Py_buffer view
    cdef const char* start
    if buffer is None:
        return NULL
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    start = <const char*> view.buf if view.len else NULL
    PyBuffer_Release(&view)
    held.append(buffer)
    return start


cdef Strings strings_of(object column, list held):
    offsets, data, validity, first = column
    return Strings(
        <const int32_t*> address(offsets, held), address(data, held),
        <const uint8_t*> address(validity, held), first,
    )


cdef Maps maps_of(object column, list held):
    cdef Maps maps
    offsets, validity, first, names, lists, lists_validity, lists_first, values = column
    maps.offsets = <const int32_t*> address(offsets, held)
    maps.validity = <const uint8_t*> address(validity, held)
    maps.first = first
    maps.names = strings_of(names, held)
    maps.lists = <const int32_t*> address(lists, held)
    maps.lists_validity = <const uint8_t*> address(lists_validity, held)
    maps.lists_first = lists_first
    maps.values = strings_of(values, held)
    return maps


cdef inline bint is_set(const uint8_t* bits, int64_t at) noexcept nogil:
    return bits == NULL or (bits[at >> 3] >> (at & 7)) & 1


cdef inline bint is_there(Strings* column, int64_t at) noexcept nogil:
    return is_set(column.validity, column.first + at)


cdef inline TextSlice text_at(Strings* column, int64_t at) noexcept nogil:
    """Return the text; a null is empty."""
    cdef int32_t start = column.offsets[at]
    if not is_there(column, at):
        return TextSlice(column.data, 0)
    return TextSlice(column.data + start, column.offsets[at + 1] - start)


cdef inline bint has_line_end(TextSlice text) noexcept nogil:
    return text.size > 0 and (
        memchr(text.data, c"\r", text.size) != NULL or memchr(text.data, c"\n", text.size) != NULL
    )


cdef inline bint is_msg_id(TextSlice name) noexcept nogil:
    """Return whether the name is Nats-Msg-Id in any case: servers differ in how they compare it."""
    cdef Py_ssize_t at
    if name.size != MSG_ID.size:
        return False
    for at in range(name.size):
        if (name.data[at] | 0x20) != (MSG_ID.data[at] | 0x20):
            return False
    return True


cdef inline char* put(char* to, const char* data, Py_ssize_t size) noexcept nogil:
    if size:
        memcpy(to, data, size)
    return to + size


cdef inline int decimal_size(uint64_t number) noexcept nogil:
    cdef int size = 1
    while number >= 10:
        number //= 10
        size += 1
    return size


cdef class RowProblem(Exception):
    """A row that cannot be sent; `row` is its index in the batch."""

    cdef readonly int64_t row

    def __init__(self, int64_t row, str reason):
        super().__init__(reason)
        self.row = row


cdef class RowBatch:
    """The columns of one Arrow batch, read in place."""

    def __init__(self, int64_t count, subjects, data, headers=None, ids=None):
        self.count = count
        self._held = []
        self._subjects = strings_of(subjects, self._held)
        self._data = strings_of(data, self._held)
        self._has_headers = headers is not None
        if headers is not None:
            self._headers = maps_of(headers, self._held)
        self._has_ids = ids is not None
        if ids is not None:
            self._ids = strings_of(ids, self._held)

    def subject(self, int64_t row):
        """Return the subject of a row; empty: it is null."""
        cdef TextSlice text = text_at(&self._subjects, row)
        return text.data[:text.size].decode("utf-8", "replace") if text.size else ""

    def digest(self, int64_t first, int64_t last, uint64_t digest):
        """Return the digest of rows `first` to `last` (exclusive), chained to the given digest."""
        cdef int64_t row
        with nogil:
            for row in range(first, last):
                digest = self._row_digest(row, digest)
        return digest

    def check(self, int64_t max_payload):
        """Raise RowProblem for the first row that cannot be sent."""
        cdef int64_t row
        cdef int problem = OK
        with nogil:
            for row in range(self.count):
                problem = self._problem(row, max_payload)
                if problem != OK:
                    break
        if problem != OK:
            text = PROBLEMS[problem].format(subject=self.subject(row), max_payload=max_payload)
            raise RowProblem(row, text)

    def first_outside(self, list patterns, int64_t first):
        """Return the first row, from `first` on, whose subject no pattern matches; else `count`."""
        cdef int64_t row
        cdef Py_ssize_t index = 0
        cdef Py_ssize_t tried
        cdef Py_ssize_t count = len(patterns)
        cdef TextSlice subject
        cdef TextSlice* texts
        if not count:
            return first
        texts = <TextSlice*> PyMem_Malloc(count * sizeof(TextSlice))
        if texts == NULL:
            raise MemoryError
        for tried in range(count):
            texts[tried] = TextSlice(<const char*> patterns[tried], len(patterns[tried]))
        with nogil:
            row = first
            while row < self.count:
                subject = text_at(&self._subjects, row)
                tried = 0
                while tried < count and not subject_matches(
                    subject.data, subject.size, texts[index].data, texts[index].size
                ):
                    index = (index + 1) % count
                    tried += 1
                if tried == count:
                    break
                row += 1
        PyMem_Free(texts)
        return row

    cdef TextSlice id_of(self, int64_t row) noexcept nogil:
        return text_at(&self._ids, row)

    cdef uint64_t _row_digest(self, int64_t row, uint64_t digest) noexcept nogil:
        cdef TextSlice text = text_at(&self._subjects, row)
        cdef TextSlice data = text_at(&self._data, row)
        cdef int64_t at
        cdef int64_t value
        digest = xxh64(<const unsigned char*> text.data, text.size, digest)
        digest = xxh64(<const unsigned char*> data.data, data.size, digest)
        if not self._has_headers or not is_set(self._headers.validity, self._headers.first + row):
            return digest
        for at in range(self._headers.offsets[row], self._headers.offsets[row + 1]):
            text = text_at(&self._headers.names, at)
            digest = xxh64(<const unsigned char*> text.data, text.size, digest + 1)
            if self._headers.lists == NULL:
                text = text_at(&self._headers.values, at)
                digest = xxh64(<const unsigned char*> text.data, text.size, digest)
                continue
            for value in range(self._headers.lists[at], self._headers.lists[at + 1]):
                text = text_at(&self._headers.values, value)
                digest = xxh64(<const unsigned char*> text.data, text.size, digest)
        return digest

    cdef int64_t _user_headers(self, int64_t row, char* to) noexcept nogil:
        """Write the row's own headers to `to` unless that is NULL; return their bytes."""
        cdef int64_t at
        cdef int64_t value
        cdef int64_t value_end
        cdef int64_t size = 0
        cdef TextSlice name
        cdef TextSlice text
        if not self._has_headers or not is_set(self._headers.validity, self._headers.first + row):
            return 0
        for at in range(self._headers.offsets[row], self._headers.offsets[row + 1]):
            name = text_at(&self._headers.names, at)
            if is_msg_id(name):
                continue
            value, value_end = at, at + 1
            if self._headers.lists != NULL:
                value, value_end = self._headers.lists[at], self._headers.lists[at + 1]
            while value < value_end:
                text = text_at(&self._headers.values, value)
                size += name.size + text.size + 4
                if to != NULL:
                    to = put(to, name.data, name.size)
                    to = put(to, b": ", 2)
                    to = put(to, text.data, text.size)
                    to = put(to, b"\r\n", 2)
                value += 1
        return size

    cdef int _problem(self, int64_t row, int64_t max_payload) noexcept nogil:
        cdef TextSlice text = text_at(&self._subjects, row)
        cdef int64_t id_size = 64
        cdef int problem
        if not is_there(&self._subjects, row):
            return NO_SUBJECT
        if text.size == 0 or not subject_is_valid(text.data, text.size):
            return BAD_SUBJECT
        if not subject_is_valid_literal(text.data, text.size):
            return BAD_SUBJECT
        if self._has_ids:
            text = text_at(&self._ids, row)
            id_size = text.size
            if text.size == 0:
                return NO_ID
            if has_line_end(text) or text.data[0] == c" " or text.data[text.size - 1] == c" ":
                return BAD_ID
        problem = self._headers_problem(row)
        if problem != OK:
            return problem
        if self._user_headers(row, NULL) + text_at(&self._data, row).size + id_size + 32 \
                > max_payload:
            return TOO_LARGE
        return OK

    cdef int _headers_problem(self, int64_t row) noexcept nogil:
        cdef int64_t at
        cdef int64_t byte
        cdef int64_t value
        cdef int64_t value_end
        cdef TextSlice name
        if not self._has_headers or not is_set(self._headers.validity, self._headers.first + row):
            return OK
        for at in range(self._headers.offsets[row], self._headers.offsets[row + 1]):
            name = text_at(&self._headers.names, at)
            if name.size == 0:
                return BAD_NAME
            for byte in range(name.size):
                if name.data[byte] == c":" or 0 <= name.data[byte] <= 32:
                    return BAD_NAME
            value, value_end = at, at + 1
            if self._headers.lists != NULL:
                if not is_set(self._headers.lists_validity, self._headers.lists_first + at):
                    return NO_VALUE
                value, value_end = self._headers.lists[at], self._headers.lists[at + 1]
            if value == value_end:
                return NO_VALUE
            while value < value_end:
                if not is_there(&self._headers.values, value):
                    return NO_VALUE
                if has_line_end(text_at(&self._headers.values, value)):
                    return BAD_VALUE
                value += 1
        return OK


cdef class FoundIds:
    """Set of message ids that are stored already."""

    def __cinit__(self):
        self._mask = 1023
        self.highest_row = -1
        self._slots = <uint64_t*> calloc(2 * (self._mask + 1), sizeof(uint64_t))
        if self._slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._slots)

    def add(self, bytes message_id):
        """Add an id."""
        self._add(message_id, len(message_id))

    def __contains__(self, bytes message_id):
        return self.has(message_id, len(message_id))

    def take(self, int64_t count, headers, bytes prefix, bint by_row):
        """Add the ids of a headers column that begin with the prefix, without the prefix."""
        cdef list held = []
        cdef Maps maps = maps_of(headers, held)
        cdef TextSlice start = TextSlice(<const char*> prefix, len(prefix))
        cdef TextSlice text
        cdef int64_t row
        cdef int64_t at
        cdef int64_t number
        with nogil:
            for row in range(count):
                if not is_set(maps.validity, maps.first + row):
                    continue
                for at in range(maps.offsets[row], maps.offsets[row + 1]):
                    if not is_msg_id(text_at(&maps.names, at)):
                        continue
                    text = text_at(&maps.values, maps.lists[at])
                    if text.size < start.size or memcmp(text.data, start.data, start.size) != 0:
                        continue
                    text = TextSlice(text.data + start.size, text.size - start.size)
                    self._add(text.data, text.size)
                    if by_row:
                        number = number_at(text.data, text.data + text.size)
                        if number > self.highest_row:
                            self.highest_row = number

    cdef int _add(self, const char* text, Py_ssize_t size) except -1 nogil:
        cdef uint64_t one = xxh64(<const unsigned char*> text, size, 0) | 1
        cdef uint64_t other = xxh64(<const unsigned char*> text, size, SECOND_SEED)
        cdef uint64_t at = other & self._mask
        while self._slots[2 * at]:
            if self._slots[2 * at] == one and self._slots[2 * at + 1] == other:
                return 0
            at = (at + 1) & self._mask
        self._slots[2 * at] = one
        self._slots[2 * at + 1] = other
        self.count = self.count + 1
        if 2 * self.count > <int64_t> self._mask:
            self._grow()
        return 0

    cdef bint has(self, const char* text, Py_ssize_t size) noexcept nogil:
        cdef uint64_t one = xxh64(<const unsigned char*> text, size, 0) | 1
        cdef uint64_t other = xxh64(<const unsigned char*> text, size, SECOND_SEED)
        cdef uint64_t at = other & self._mask
        while self._slots[2 * at]:
            if self._slots[2 * at] == one and self._slots[2 * at + 1] == other:
                return True
            at = (at + 1) & self._mask
        return False

    cdef int _grow(self) except -1 nogil:
        cdef uint64_t mask = 2 * self._mask + 1
        cdef uint64_t* slots = <uint64_t*> calloc(2 * (mask + 1), sizeof(uint64_t))
        cdef uint64_t old
        cdef uint64_t at
        if slots == NULL:
            with gil:
                raise MemoryError
        for old in range(self._mask + 1):
            if not self._slots[2 * old]:
                continue
            at = self._slots[2 * old + 1] & mask
            while slots[2 * at]:
                at = (at + 1) & mask
            slots[2 * at] = self._slots[2 * old]
            slots[2 * at + 1] = self._slots[2 * old + 1]
        free(self._slots)
        self._slots = slots
        self._mask = mask
        return 0


cdef int64_t number_at(const char* digits, const char* end) noexcept nogil:
    """Return the decimal number; -1: the bytes are not one."""
    cdef int64_t number = 0
    cdef const char* at = digits
    while at < end and c"0" <= at[0] <= c"9" and at - digits < 18:
        number = number * 10 + (at[0] - c"0")
        at += 1
    return number if at > digits and at == end else -1


cdef inline bint named(const char* name, const char* end, TextSlice target) noexcept nogil:
    return (
        end - name > target.size
        and name[target.size] == c'"'
        and memcmp(name, target.data, target.size) == 0
    )


cdef class SendWindow(FrameHandler):
    """Pending rows, from the lowest that is not done; takes the server's answers."""

    def __cinit__(self, *_, int64_t max_rows, **__):
        cdef int64_t slots = 64
        while slots < 2 * max_rows:
            slots *= 2
        self._mask = slots - 1
        self._states = <uint8_t*> calloc(slots, 1)
        self._row_targets = <uint8_t*> calloc(slots, 1)
        self._sizes = <uint32_t*> calloc(slots, sizeof(uint32_t))
        self._sequences = <uint64_t*> calloc(slots, sizeof(uint64_t))
        self._out_capacity = OUT_BYTES
        self._out = <char*> malloc(self._out_capacity)
        if not (self._states and self._row_targets and self._sizes and self._sequences):
            raise MemoryError
        if not self._out:
            raise MemoryError

    def __dealloc__(self):
        free(self._states)
        free(self._row_targets)
        free(self._sizes)
        free(self._sequences)
        free(self._out)

    def __init__(
        self, bytes id_prefix, int64_t first=0, *, int64_t max_rows, int64_t max_bytes
    ):
        self._id_prefix_held = id_prefix
        self._id_prefix = TextSlice(<const char*> id_prefix, len(id_prefix))
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._targets = []
        self.refusals = []
        self.first = self.next = first

    def add_target(self, bytes stream):
        """Accept acknowledgements of this stream. Raises ValueError beyond 255 streams."""
        if stream in self._targets:
            return
        if len(self._targets) == NEVER:
            raise ValueError("a task writes to at most 255 streams")
        self._targets.append(stream)
        self._target = TextSlice(<const char*> stream, len(stream))
        self._target_index = len(self._targets) - 1

    def last_sequences(self):
        """Return by target the highest sequence of a row below `first`; 0: there is none."""
        return {name: self._last[index] for index, name in enumerate(self._targets)}

    def connected(self, bytes inbox):
        """Expect answers at `inbox<row>`, and mark all pending rows as unsent."""
        cdef int64_t row
        self._inbox_held = inbox
        self._inbox = TextSlice(<const char*> inbox, len(inbox))
        for row in range(self.first, self.next):
            if self._states[row & self._mask] != DONE:
                self._states[row & self._mask] = UNSENT
        self.next = self.first
        self.in_flight = self.in_flight_bytes = self.refused = 0
        self._out_end = 0
        self.refusals.clear()

    def fill(self, RowBatch rows, int64_t base, int64_t last, FoundIds found=None):
        """Write frames of rows from `next` to `last` while there is room; rows[0] is row `base`.

        Rows that are in `found` become done instead.
        """
        cdef int64_t row
        cdef int64_t slot
        assert base <= self.next, "rows before these are not sent yet"
        with nogil:
            while self.next < last and self.next - self.first <= self._mask:
                row = self.next
                slot = row & self._mask
                if self._states[slot] == UNSENT:
                    if found is not None and self._was_found(rows, row - base, row, found):
                        self._states[slot] = DONE
                        self._row_targets[slot] = NEVER
                        self.found = self.found + 1
                    elif not self._has_room():
                        break
                    else:
                        self._put(rows, row - base, row)
                self.next = row + 1
        self._advance()

    @property
    def is_full(self):
        """Whether no further row can be sent before an answer."""
        return (
            self.in_flight >= self._max_rows
            or self.in_flight_bytes >= self._max_bytes
            or self.next - self.first > self._mask
        )

    def resend(self, RowBatch rows, int64_t base):
        """Write frames of the refused rows among these while there is room."""
        cdef int64_t row
        cdef int64_t first = max(base, self.first)
        cdef int64_t last = min(base + rows.count, self.next)
        with nogil:
            for row in range(first, last):
                if self._states[row & self._mask] == REFUSED:
                    if not self._has_room():
                        break
                    self._put(rows, row - base, row)
                    self.refused = self.refused - 1

    def acknowledge(self, int64_t row, bytes stream, uint64_t sequence, bint duplicate):
        """Mark a row that counted as refused as stored."""
        if not self.first <= row < self.next or self._states[row & self._mask] != REFUSED:
            return
        self._states[row & self._mask] = DONE
        self._row_targets[row & self._mask] = self._targets.index(stream)
        self._sequences[row & self._mask] = sequence
        self.acknowledged = self.acknowledged + 1
        self.duplicates = self.duplicates + duplicate
        self.refused = self.refused - 1
        self._advance()

    def refused_rows(self):
        """Return the numbers of the refused rows, ascending."""
        cdef int64_t row
        if not self.refused:
            return []
        return [
            row for row in range(self.first, self.next)
            if self._states[row & self._mask] == REFUSED
        ]

    def take_refusals(self):
        """Return row, headers and data of each refusal since the last call."""
        self._advance()
        taken, self.refusals = self.refusals, []
        return taken

    def outgoing(self):
        """Return the frames to be sent, valid until the next call of any method."""
        return PyMemoryView_FromMemory(self._out, self._out_end, PyBUF_READ)

    def sent_all(self):
        """Clear the frames after all of them were sent."""
        self._out_end = 0

    cdef int take(self, const MessageFrame* frame) except -1 nogil:
        cdef int64_t row
        if (
            <Py_ssize_t> frame.subject_len <= self._inbox.size
            or memcmp(frame.subject, self._inbox.data, self._inbox.size) != 0
        ):
            return GO_ON
        row = number_at(frame.subject + self._inbox.size, frame.subject + frame.subject_len)
        if not self.first <= row < self.next or self._states[row & self._mask] != IN_FLIGHT:
            return GO_ON
        self.in_flight = self.in_flight - 1
        self.in_flight_bytes = self.in_flight_bytes - self._sizes[row & self._mask]
        if frame.headers_len or not self._ack(row, frame.data, frame.data_len):
            self._states[row & self._mask] = REFUSED
            self.refused = self.refused + 1
            with gil:
                self.refusals.append(
                    (row, frame.headers[:frame.headers_len], frame.data[:frame.data_len])
                )
            return STOP
        return STOP if self.in_flight < self.wake_below or self.in_flight == 0 else GO_ON

    cdef bint _ack(self, int64_t row, const char* data, Py_ssize_t size) noexcept nogil:
        """Mark the row as done if the data is a PubAck of a target; return False otherwise."""
        cdef const char* end = data + size
        cdef const char* at = data + 10
        cdef uint64_t sequence = 0
        if size < 12 or memcmp(data, b'{"stream":', 10) != 0:
            return False
        while at < end and at[0] == c" ":
            at += 1
        if at == end or at[0] != c'"' or not self._is_target(at + 1, end):
            return False
        at += 1 + self._target.size
        if memmem(at, end - at, b'"error"', 7) != NULL:
            return False
        at = <const char*> memmem(at, end - at, b'"seq":', 6)
        if at == NULL:
            return False
        at += 6
        while at < end and at[0] == c" ":
            at += 1
        while at < end and c"0" <= at[0] <= c"9":
            sequence = sequence * 10 + <uint64_t> (at[0] - c"0")
            at += 1
        if sequence == 0:
            return False
        if end - at > 12 and memmem(at, end - at, b'"duplicate":', 12) != NULL:
            self.duplicates = self.duplicates + 1
        self._done(row, self._target_index, sequence)
        return True

    cdef bint _is_target(self, const char* name, const char* end) noexcept nogil:
        """Return whether a target's name and a quote stand here; `_target` is then that target."""
        cdef Py_ssize_t index
        if named(name, end, self._target):
            return True
        with gil:
            for index in range(len(self._targets)):
                target = TextSlice(
                    <const char*> (<bytes> self._targets[index]), len(self._targets[index])
                )
                if named(name, end, target):
                    self._target = target
                    self._target_index = index
                    return True
        return False

    cdef void _done(self, int64_t row, uint8_t target, uint64_t sequence) noexcept nogil:
        cdef int64_t slot = row & self._mask
        self._states[slot] = DONE
        self._row_targets[slot] = target
        self._sequences[slot] = sequence
        self.acknowledged = self.acknowledged + 1

    cdef void _advance(self) noexcept nogil:
        """Move `first` past the rows that are done."""
        cdef int64_t slot
        cdef uint8_t target
        while self.first < self.next:
            slot = self.first & self._mask
            if self._states[slot] != DONE:
                break
            self._states[slot] = UNSENT
            self.first = self.first + 1
            target = self._row_targets[slot]
            if target != NEVER and self._sequences[slot] > self._last[target]:
                self._last[target] = self._sequences[slot]

    cdef bint _has_room(self) noexcept nogil:
        if self.in_flight == 0:
            return True
        return (
            self.in_flight < self._max_rows
            and self.in_flight_bytes < self._max_bytes
            and self._out_end < OUT_BYTES
        )

    cdef bint _was_found(
        self, RowBatch rows, int64_t index, int64_t row, FoundIds found
    ) noexcept nogil:
        cdef char[24] digits
        cdef TextSlice text
        if row < found.stored_below:
            return True
        if rows._has_ids:
            text = rows.id_of(index)
            return found.has(text.data, text.size)
        return found.has(digits, put_decimal(digits, row) - digits)

    cdef int _reserve(self, Py_ssize_t size) except -1 nogil:
        cdef char* larger
        cdef Py_ssize_t capacity = self._out_capacity
        if self._out_end + size <= capacity:
            return 0
        while capacity < self._out_end + size:
            capacity *= 2
        larger = <char*> realloc(self._out, capacity)
        if larger == NULL:
            with gil:
                raise MemoryError
        self._out = larger
        self._out_capacity = capacity
        return 0

    cdef int _put(self, RowBatch rows, int64_t index, int64_t row) except -1 nogil:
        cdef TextSlice subject = text_at(&rows._subjects, index)
        cdef TextSlice data = text_at(&rows._data, index)
        cdef TextSlice message_id
        cdef int64_t user_bytes = rows._user_headers(index, NULL)
        cdef int64_t header_bytes
        cdef int64_t slot = row & self._mask
        cdef TextSlice inbox = self._inbox
        cdef TextSlice prefix = self._id_prefix
        cdef Py_ssize_t size
        cdef char* to
        message_id = rows.id_of(index) if rows._has_ids else TextSlice(NULL, decimal_size(row))
        header_bytes = 10 + 13 + prefix.size + message_id.size + 2 + user_bytes + 2
        self._reserve(
            FIXED_BYTES + subject.size + inbox.size + header_bytes + data.size
        )
        to = self._out + self._out_end
        to = put(to, b"HPUB ", 5)
        to = put(to, subject.data, subject.size)
        to = put(to, b" ", 1)
        to = put(to, inbox.data, inbox.size)
        to = put_decimal(to, row)
        to = put(to, b" ", 1)
        to = put_decimal(to, header_bytes)
        to = put(to, b" ", 1)
        to = put_decimal(to, header_bytes + data.size)
        to = put(to, b"\r\nNATS/1.0\r\nNats-Msg-Id: ", 25)
        to = put(to, prefix.data, prefix.size)
        if rows._has_ids:
            to = put(to, message_id.data, message_id.size)
        else:
            to = put_decimal(to, row)
        to = put(to, b"\r\n", 2)
        rows._user_headers(index, to)
        to += user_bytes
        to = put(to, b"\r\n", 2)
        to = put(to, data.data, data.size)
        to = put(to, b"\r\n", 2)
        size = to - (self._out + self._out_end)
        self._out_end = self._out_end + size
        self._states[slot] = IN_FLIGHT
        self._sizes[slot] = <uint32_t> size
        self.in_flight = self.in_flight + 1
        self.in_flight_bytes = self.in_flight_bytes + size
        self.sent = self.sent + 1
        return 0
