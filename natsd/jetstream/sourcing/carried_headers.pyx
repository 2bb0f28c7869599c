"""What a message's headers become in a stream that it is copied to.

    left away   Nats-Expected-…  Nats-Batch-…   they were heeded where the message came from
                Nats-Request-Info               of no concern to who reads it
                Nats-Stream-Source              of a source: its own is written instead

Promise
- A name counts where it begins a line, in exactly these letters. All else stays byte for byte.
- Any bytes are a block; nothing outside it is read.

Source: reference §6.12; nats-server, tried.
"""

from libc.string cimport memchr, memcmp, memcpy

cdef struct Name:
    const char* text
    Py_ssize_t length

cdef enum:
    NAMES = 4
    LEAD_BYTES = 5              # "Nats-"

cdef const char** TEXTS = ["Expected-", "Batch-", "Request-Info:", "Stream-Source:"]
cdef Name[NAMES] LEFT           # the last one of sources only
cdef int _name
for _name in range(NAMES):
    LEFT[_name].text = TEXTS[_name]
    LEFT[_name].length = len(<bytes> TEXTS[_name])


cdef inline const char* behind_line(const char* at, const char* end) noexcept nogil:
    """Behind its CRLF, or `end`."""
    while at < end:
        at = <const char*> memchr(at, c'\n', end - at)
        if at == NULL:
            return end
        at += 1
        if at[-2] == c'\r':
            return at
    return end


cdef inline bint is_left(
    const char* line, Py_ssize_t length, bint is_source
) noexcept nogil:
    cdef int which
    if length <= LEAD_BYTES or memcmp(line, b"Nats-", LEAD_BYTES) != 0:
        return False
    line += LEAD_BYTES
    length -= LEAD_BYTES
    for which in range(NAMES if is_source else NAMES - 1):
        if length >= LEFT[which].length and memcmp(
            line, LEFT[which].text, LEFT[which].length
        ) == 0:
            return True
    return False


cdef Py_ssize_t carry_headers(
    const char* block, Py_ssize_t length, bint is_source, char* out
) noexcept nogil:
    cdef const char* end = block + length
    cdef const char* line = block + min(length, <Py_ssize_t> 1)     # no line is empty here
    cdef const char* line_end = behind_line(line, end)
    cdef char* to = out
    memcpy(to, block, line_end - block)
    to += line_end - block
    line = line_end
    while line < end:
        line_end = behind_line(line, end)
        if line_end - line == 2 and line_end == end and memcmp(line, b"\r\n", 2) == 0:
            break
        if not is_left(line, line_end - line, is_source):
            memcpy(to, line, line_end - line)
            to += line_end - line
        line = line_end
    return to - out


# For tests

def carried(bytes block not None, *, bint is_source):
    """The block as it is copied, without the empty line at its end."""
    cdef bytearray out = bytearray(len(block) + 1)
    cdef char* to = out
    return bytes(out[:carry_headers(block, len(block), is_source, to)])
