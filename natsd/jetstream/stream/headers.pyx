"""The headers of a publish that a stream heeds, found in one pass over the block.

    NATS/1.0[ status]CRLF  Name:[ ]value CRLF …  CRLF

Promise
- A name counts where it begins a line and a colon follows at once, in exactly these letters; its
  value begins after spaces and ends before CRLF. The first header of a name counts.
- Any bytes are a block: a line of another form is skipped, and nothing outside the block is read.

The names are those of nats-server's `processJetStreamMsg`; which lines count was observed on it.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove

from natsd.core.routing cimport wire_bytes

cdef enum:
    PREFIX_BYTES = 5            # "Nats-"
    VERSION_BYTES = 8           # "NATS/1.0"
    EMPTY_BYTES = 12            # "NATS/1.0\r\n\r\n"

cdef const char** TEXTS = [
    "Msg-Id", "Expected-Stream", "Expected-Last-Sequence", "Expected-Last-Msg-Id",
    "Expected-Last-Subject-Sequence", "Expected-Last-Subject-Sequence-Subject", "Rollup", "TTL",
    "Incr", "Schedule", "Schedule-Time-Zone", "Schedule-Next", "Scheduler", "Batch-Id",
    "Request-Info", "Delay", "Delayed",
]
cdef LineStart[17] NAMES        # the names behind "Nats-"
cdef int _name
for _name in range(HEADER_NAMES):
    NAMES[_name].text = TEXTS[_name]
    NAMES[_name].length = len(<bytes> TEXTS[_name])

cdef LineStart NOT_STORED = LineStart(text="Nats-Request-Info:", length=18)


cdef inline const char* end_of_line(const char* at, const char* end) noexcept nogil:
    """Return the position of the line's CRLF, or `end`."""
    while at < end:
        at = <const char*> memchr(at, c'\r', end - at)
        if at == NULL:
            return end
        if at + 1 < end and at[1] == c'\n':
            return at
        at += 1
    return end


cdef const char* behind_line(const char* at, const char* end) noexcept nogil:
    return min(end_of_line(at, end) + 2, end)


cdef inline bint begins_with(
    const char* line, Py_ssize_t length, const LineStart* starts, int count
) noexcept nogil:
    cdef int which
    for which in range(count):
        if (
            length >= starts[which].length
            and memcmp(line, starts[which].text, starts[which].length) == 0
        ):
            return True
    return False


cdef char* copy_lines(
    const char* line, const char* end, const LineStart* left, int left_count, char* to
) noexcept nogil:
    cdef const char* line_end
    while line < end:
        line_end = behind_line(line, end)
        if not begins_with(line, line_end - line, left, left_count):
            memcpy(to, line, line_end - line)
            to += line_end - line
        line = line_end
    return to


cdef void note_header(const char* line, const char* end, PublishHeaders* out) noexcept nogil:
    """Note the value of a line that begins with `Nats-`."""
    cdef const char* name = line + PREFIX_BYTES
    cdef const char* colon = <const char*> memchr(name, c':', end - name)
    cdef int which
    if colon == NULL:
        return
    for which in range(HEADER_NAMES):
        if (
            NAMES[which].length == colon - name
            and memcmp(NAMES[which].text, name, NAMES[which].length) == 0
        ):
            break
    else:
        return
    if out.found >> which & 1:
        return
    colon += 1
    while colon < end and colon[0] == c' ':
        colon += 1
    out.found |= <uint32_t> 1 << which
    out.values[which].at = colon
    out.values[which].length = end - colon


cdef void find_publish_headers(
    const char* block, Py_ssize_t length, PublishHeaders* out
) noexcept nogil:
    cdef const char* end = block + length
    cdef const char* line = end_of_line(block, end) + 2
    cdef const char* line_end
    out.found = 0
    while line < end:
        line_end = end_of_line(line, end)
        if line_end - line > PREFIX_BYTES and memcmp(line, b"Nats-", PREFIX_BYTES) == 0:
            if line_end < end:
                note_header(line, line_end, out)
        line = line_end + 2


cdef bint find_header(
    const char* block, Py_ssize_t length, const char* name, Py_ssize_t name_len, HeaderValue* out
) noexcept nogil:
    cdef const char* end = block + length
    cdef const char* line = end_of_line(block, end) + 2
    cdef const char* line_end
    out.length = 0
    while line < end:
        line_end = end_of_line(line, end)
        if line_end - line > name_len and memcmp(line, name, name_len) == 0:
            if line[name_len] == c':' and line_end < end:
                line += name_len + 1
                while line < line_end and line[0] == c' ':
                    line += 1
                out.at = line
                out.length = line_end - line
                return True
        line = line_end + 2
    return False


cdef Py_ssize_t cut_header(char* block, Py_ssize_t length, HeaderValue* value) noexcept nogil:
    cdef Py_ssize_t start = value.at - block
    cdef Py_ssize_t end = start + value.length + 2
    while block[start - 1] != c'\n':
        start -= 1
    memmove(block + start, block + end, length - end)
    return length - (end - start)


cdef uint64_t header_number(HeaderValue* value) noexcept nogil:
    cdef uint64_t number = 0
    cdef Py_ssize_t at
    for at in range(value.length):
        if not c'0' <= value.at[at] <= c'9':
            return <uint64_t> -1
        number = number * 10 + <uint64_t> (value.at[at] - c'0')
    return number if value.length else <uint64_t> -1


cdef bint has_status(const char* block, Py_ssize_t length) noexcept nogil:
    return (
        length > VERSION_BYTES and memcmp(block, b"NATS/1.0", VERSION_BYTES) == 0
        and block[VERSION_BYTES] != c'\r'
        and memchr(block, c'\r', length) != NULL
    )


cdef Py_ssize_t strip_headers(const char* block, Py_ssize_t length, char* out) noexcept nogil:
    cdef const char* end = block + length
    cdef const char* rest = behind_line(block, end)
    cdef char* to = out
    if has_status(block, length):
        memcpy(to, block, VERSION_BYTES)
        to += VERSION_BYTES
        block = <const char*> memchr(block, c'\r', length)
        rest = min(block + 2, end)
    memcpy(to, block, rest - block)
    to = copy_lines(rest, end, &NOT_STORED, 1, to + (rest - block))
    return to - out if to - out > EMPTY_BYTES else 0


# For tests and the fuzzer.

def publish_headers(block) -> dict:
    """Return the names that were found, without "Nats-", and their values."""
    cdef bytes data = wire_bytes(block)
    cdef PublishHeaders headers
    cdef int which
    cdef dict found = {}
    find_publish_headers(data, len(data), &headers)
    for which in range(HEADER_NAMES):
        if headers.found >> which & 1:
            found[(<bytes> TEXTS[which]).decode()] = (
                headers.values[which].at[:headers.values[which].length]
            )
    return found


def stripped(block) -> bytes:
    """Return the part of a block that is stored."""
    cdef bytes data = wire_bytes(block)
    cdef bytearray out = bytearray(len(data) + 1)
    cdef char* to = out
    return bytes(out[:strip_headers(data, len(data), to)])


def number_of(text) -> int:
    """Return the sequence that a header's text means."""
    cdef bytes data = wire_bytes(text)
    cdef HeaderValue value
    value.at = data
    value.length = len(data)
    return header_number(&value)
