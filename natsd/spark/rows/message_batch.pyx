"""MessageBatch: collects rows one by one without the GIL, returns column buffers in Arrow layout.

    stream, subject   [offsets: int32 × rows+1] [text]
    seq, time_ns      [int64 × rows]
    time              [int64 × rows]                       µs since the epoch
    headers           [validity: a bit per row] [offsets: int32 × rows+1]
                      [keys' offsets] [keys] [offsets of lists] [values' offsets] [values]
    data              [offsets: int32 × rows+1] [bytes]

Promise
- Only the chosen columns are copied, each byte once; `take` hands the memory over without another
  copy, and leaves the batch empty.
- A batch is full at `max_rows` rows or `max_bytes` bytes: its buffers hold at most `max_bytes` plus
  one message (allocations double). The appender checks `full` after each row.
- Text columns are always valid UTF-8: invalid bytes are decoded to U+FFFD, as Python's "replace"
  does.
- The headers of a message without headers are null. The values of one key form one list, in their
  order; white space around a value is stripped; a line without a key is left out.

Source: the Arrow columnar format; https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy

from natsd.spark.rows.columns import checked, flags

cdef enum:
    ROOM_MIN = 64
    LINES_MIN = 16
    LINES_COMPARED_MAX = 32     # header lines: with more, equal keys are found by sorting


class BatchOverflow(ValueError):
    """A column of one batch would exceed 2 GiB."""


cdef class ColumnBuffer:
    """Owned bytes of a column, exposed by the buffer protocol."""

    def __dealloc__(self):
        free(self.at)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int asked):
        PyBuffer_FillInfo(view, self, self.at, self.size, True, asked)


cdef extern from "Python.h":
    int PyBuffer_FillInfo(
        Py_buffer* view, object exporter, void* at, Py_ssize_t length, int readonly, int flags
    ) except -1


cdef int grow(ByteBuffer* to, size_t more) except -1 nogil:
    cdef size_t room = to.room if to.room > ROOM_MIN else ROOM_MIN
    cdef char* grown
    while room < to.used + more:
        room *= 2
    grown = <char*> realloc(to.at, room)
    if grown == NULL:
        raise MemoryError
    to.at = grown
    to.room = room
    return 0


cdef inline int put(ByteBuffer* to, const char* at, size_t length) except -1 nogil:
    if to.used + length > to.room:
        grow(to, length)
    memcpy(to.at + to.used, at, length)
    to.used = to.used + length
    return 0


cdef inline int put_int64(ByteBuffer* to, int64_t number) except -1 nogil:
    return put(to, <const char*> &number, sizeof(int64_t))


cdef inline int put_int32(ByteBuffer* to, int32_t number) except -1 nogil:
    return put(to, <const char*> &number, sizeof(int32_t))


cdef inline int put_end(ByteBuffer* offsets, size_t end) except -1 nogil:
    if end > INT32_MAX:
        raise BatchOverflow("a column of a batch holds at most 2 GiB: choose a smaller batchBytes")
    return put_int32(offsets, <int32_t> end)


cdef inline bint is_ascii(const char* at, size_t length) noexcept nogil:
    cdef uint64_t together = 0
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, at, 8)
        together |= word
        at += 8
        length -= 8
    while length:
        together |= <uint8_t> at[0]
        at += 1
        length -= 1
    return not together & <uint64_t> 0x8080808080808080ULL


cdef int put_decoded(ByteBuffer* to, const char* at, size_t length) except -1 with gil:
    """Append the bytes as UTF-8, with U+FFFD for invalid sequences."""
    cdef bytes text = at[:length].decode("utf-8", "replace").encode()
    return put(to, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline int put_text(
    ByteBuffer* offsets, ByteBuffer* text, const char* at, size_t length
) except -1 nogil:
    if is_ascii(at, length):
        put(text, at, length)
    else:
        put_decoded(text, at, length)
    return put_end(offsets, text.used)


cdef inline int64_t microseconds(int64_t time_ns) noexcept nogil:
    """Return the time in microseconds, rounded down, also before 1970."""
    cdef int64_t whole = time_ns // 1000
    return whole


cdef int by_key(const void* first, const void* second) noexcept nogil:
    """Compare two lines by key; lines with equal keys keep their order."""
    cdef const HeaderLine* a = <const HeaderLine*> first
    cdef const HeaderLine* b = <const HeaderLine*> second
    cdef int different = memcmp(a.key, b.key, min(a.key_len, b.key_len))
    if different:
        return different
    if a.key_len != b.key_len:
        return -1 if a.key_len < b.key_len else 1
    return -1 if a.order < b.order else 1


cdef inline bint is_same_key(const HeaderLine* a, const HeaderLine* b) noexcept nogil:
    return a.key_len == b.key_len and memcmp(a.key, b.key, a.key_len) == 0


cdef inline bint is_space(char c) noexcept nogil:
    return c == c" " or c == c"\t" or c == c"\r"


cdef ColumnBuffer take_buffer(ByteBuffer* of):
    """Return the bytes as a ColumnBuffer, and allocate as much again plus 1/8.

    The next batch is probably of the same size.
    """
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    cdef size_t used = of.used
    if of.at == NULL:           # Arrow needs an address even for 0 bytes
        grow(of, 1)
    buffer.at = of.at
    buffer.size = <Py_ssize_t> of.used
    of.at = NULL
    of.used = of.room = 0
    if used:
        grow(of, used + used // 8)
    return buffer


cdef class MessageBatch:
    """Rows of messages, collected as Arrow column buffers.

    `names` are the columns; `rows` counts the rows, and `headerless` those without headers. The
    batch is full at `max_rows` rows or `max_bytes` bytes.
    """

    def __init__(self, names, Py_ssize_t max_rows=10_000, Py_ssize_t max_bytes=8 << 20):
        if max_rows < 1 or max_bytes < 1:
            raise ValueError("a batch has room for a row at least")
        if max_rows >= INT32_MAX or max_bytes >= INT32_MAX:
            raise ValueError("a batch has at most 2,147,483,646 rows and bytes")
        self.names = checked(names)
        self.wanted = int(flags(names))
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.stream = ""

    def __dealloc__(self):
        free(self.stream_offsets.at)
        free(self.stream_text.at)
        free(self.sequences.at)
        free(self.subject_offsets.at)
        free(self.subject_text.at)
        free(self.times.at)
        free(self.times_ns.at)
        free(self.header_validity.at)
        free(self.header_offsets.at)
        free(self.key_offsets.at)
        free(self.key_text.at)
        free(self.value_lists.at)
        free(self.value_offsets.at)
        free(self.value_text.at)
        free(self.data_offsets.at)
        free(self.data_bytes.at)
        free(self.lines)

    @property
    def stream(self):
        """Stream name of the rows that are appended without one."""
        return self.stream_name.decode()

    @stream.setter
    def stream(self, str name not None):
        self.stream_name = name.encode()
        self.stream_at = PyBytes_AS_STRING(self.stream_name)
        self.stream_len = PyBytes_GET_SIZE(self.stream_name)

    @property
    def size(self):
        """Bytes in the column buffers."""
        return self.used_bytes()

    @property
    def is_full(self):
        """Whether the batch has `max_rows` rows or `max_bytes` bytes."""
        return self.full()

    @property
    def entry_counts(self):
        """Keys in the headers of all rows, and their values, as two counts."""
        return self.entries, self.values

    def add(
        self, stream, bytes subject not None, uint64_t sequence, int64_t time_ns,
        bytes headers not None, bytes data not None,
    ):
        """Append one row, more slowly than `append`; `stream` None: the batch's own name.

        `time_ns` is ns since the epoch. Raises BatchOverflow if a column exceeds 2 GiB.
        """
        cdef bytes name = stream
        cdef const char* at = NULL if name is None else PyBytes_AS_STRING(name)
        self.append(
            at, 0 if name is None else len(name), PyBytes_AS_STRING(subject), len(subject),
            sequence, time_ns, PyBytes_AS_STRING(headers), len(headers),
            PyBytes_AS_STRING(data), len(data),
        )

    cdef int append(
        self, const char* stream, size_t stream_len, const char* subject, size_t subject_len,
        uint64_t sequence, int64_t time_ns, const char* headers, size_t headers_len,
        const char* data, size_t data_len,
    ) except -1 nogil:
        cdef int wanted = self.wanted
        if self.rows == 0:
            self.begin()
        if wanted & STREAM:
            if stream == NULL:
                stream = self.stream_at
                stream_len = self.stream_len
            put_text(&self.stream_offsets, &self.stream_text, stream, stream_len)
        if wanted & SEQ:
            put_int64(&self.sequences, <int64_t> sequence)
        if wanted & SUBJECT:
            put_text(&self.subject_offsets, &self.subject_text, subject, subject_len)
        if wanted & TIME:
            put_int64(&self.times, microseconds(time_ns))
        if wanted & TIME_NS:
            put_int64(&self.times_ns, time_ns)
        if wanted & HEADERS:
            self.add_headers(headers, headers_len)
        if wanted & DATA:
            put(&self.data_bytes, data, data_len)
            put_end(&self.data_offsets, self.data_bytes.used)
        self.rows = self.rows + 1
        return 0

    cdef int begin(self) except -1 nogil:
        """Write the leading 0 of every offsets buffer."""
        if self.wanted & STREAM:
            put_int32(&self.stream_offsets, 0)
        if self.wanted & SUBJECT:
            put_int32(&self.subject_offsets, 0)
        if self.wanted & HEADERS:
            put_int32(&self.header_offsets, 0)
            put_int32(&self.key_offsets, 0)
            put_int32(&self.value_lists, 0)
            put_int32(&self.value_offsets, 0)
        if self.wanted & DATA:
            put_int32(&self.data_offsets, 0)
        return 0

    # Headers

    cdef int add_headers(self, const char* headers, size_t length) except -1 nogil:
        cdef Py_ssize_t count = self.read_lines(headers, length)
        cdef Py_ssize_t at
        cdef bint is_sorted = count > LINES_COMPARED_MAX
        cdef char zero = 0
        if self.rows & 7 == 0:
            put(&self.header_validity, &zero, 1)
        if count == 0:
            self.headerless = self.headerless + 1
        else:
            self.header_validity.at[self.rows >> 3] = <char> (
                <uint8_t> self.header_validity.at[self.rows >> 3] | (1 << (self.rows & 7))
            )
            if is_sorted:
                qsort(self.lines, count, sizeof(HeaderLine), by_key)
            for at in range(count):
                if not self.lines[at].is_taken:
                    self.add_entry(at, count, is_sorted)
        return put_end(&self.header_offsets, self.entries)

    cdef int add_entry(self, Py_ssize_t first, Py_ssize_t count, bint is_sorted) except -1 nogil:
        """Add one key with the values of all lines that have it."""
        cdef HeaderLine* lines = self.lines
        cdef Py_ssize_t at = first
        put_text(&self.key_offsets, &self.key_text, lines[first].key, lines[first].key_len)
        while at < count:
            if is_same_key(&lines[at], &lines[first]):
                put_text(
                    &self.value_offsets, &self.value_text, lines[at].value, lines[at].value_len
                )
                self.values = self.values + 1
                lines[at].is_taken = True
            elif is_sorted:
                break
            at += 1
        self.entries = self.entries + 1
        return put_end(&self.value_lists, self.values)

    cdef Py_ssize_t read_lines(self, const char* headers, size_t length) except -1 nogil:
        """Parse the lines of a header block behind its first line; return their count."""
        cdef const char* end = headers + length
        cdef const char* at = <const char*> memchr(headers, c"\n", length) if length else NULL
        cdef const char* line_end
        cdef const char* colon
        cdef Py_ssize_t count = 0
        if at == NULL:
            return 0
        at += 1
        while at < end:
            line_end = <const char*> memchr(at, c"\n", end - at)
            if line_end == NULL:
                line_end = end
            if line_end - at == 1 and at[0] == c"\r":
                break
            colon = <const char*> memchr(at, c":", line_end - at)
            if colon != NULL and colon > at:
                if <size_t> count == self.lines_room:
                    self.lines_room = more_lines(&self.lines, self.lines_room)
                set_line(&self.lines[count], at, colon, line_end, <int32_t> count)
                count += 1
            at = line_end + 1
        return count

    # Handover of the buffers

    def take(self):
        """Return for each column of `names` its buffers, as drawn above, and empty the batch."""
        cdef list taken = []
        if self.rows == 0:
            self.begin()
        for name in self.names:
            taken.append(self.buffers_of(name))
        self.rows = self.headerless = self.entries = self.values = 0
        return taken

    def buffers_of(self, name):
        """Return the buffers of one column, and reset them."""
        if name == "stream":
            return [take_buffer(&self.stream_offsets), take_buffer(&self.stream_text)]
        if name == "seq":
            return [take_buffer(&self.sequences)]
        if name == "subject":
            return [take_buffer(&self.subject_offsets), take_buffer(&self.subject_text)]
        if name == "time":
            return [take_buffer(&self.times)]
        if name == "time_ns":
            return [take_buffer(&self.times_ns)]
        if name == "headers":
            return [
                take_buffer(&self.header_validity), take_buffer(&self.header_offsets),
                take_buffer(&self.key_offsets), take_buffer(&self.key_text),
                take_buffer(&self.value_lists),
                take_buffer(&self.value_offsets), take_buffer(&self.value_text),
            ]
        assert name == "data"
        return [take_buffer(&self.data_offsets), take_buffer(&self.data_bytes)]


cdef size_t more_lines(HeaderLine** lines, size_t room) except 0 nogil:
    cdef size_t wanted = 2 * room if room else LINES_MIN
    cdef HeaderLine* grown = <HeaderLine*> realloc(lines[0], wanted * sizeof(HeaderLine))
    if grown == NULL:
        raise MemoryError
    lines[0] = grown
    return wanted


cdef void set_line(
    HeaderLine* line, const char* at, const char* colon, const char* end, int32_t order
) noexcept nogil:
    cdef const char* value = colon + 1
    while value < end and is_space(value[0]):
        value += 1
    while end > value and is_space(end[-1]):
        end -= 1
    line.key = at
    line.key_len = colon - at
    line.value = value
    line.value_len = end - value
    line.order = order
    line.is_taken = False
