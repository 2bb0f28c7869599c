"""What a message's headers become in a stream that it is copied to.

    left away   Nats-Expected-…  Nats-Batch-…   they were heeded where the message came from
                Nats-Request-Info               of no concern to who reads it
                Nats-Stream-Source              of a source: its own is written instead

Promise
- A name counts where it begins a line, in exactly these letters. All else stays byte for byte.
- Any bytes are a block; nothing outside it is read.

Source: reference §6.12; nats-server, tried.
"""

from libc.string cimport memcmp, memcpy

from natsd.jetstream.stream.headers cimport LineStart, behind_line, copy_lines

cdef enum:
    NAMES = 4

cdef const char** TEXTS = [
    "Nats-Expected-", "Nats-Batch-", "Nats-Request-Info:", "Nats-Stream-Source:",
]
cdef LineStart[NAMES] LEFT      # the last one of sources only
cdef int _name
for _name in range(NAMES):
    LEFT[_name].text = TEXTS[_name]
    LEFT[_name].length = len(<bytes> TEXTS[_name])


cdef Py_ssize_t carry_headers(
    const char* block, Py_ssize_t length, bint is_source, char* out
) noexcept nogil:
    cdef const char* end = block + length
    cdef const char* rest = behind_line(block, end)
    cdef char* to
    if end - rest == 2 and memcmp(rest, b"\r\n", 2) == 0 or (
        end - rest > 2 and memcmp(end - 4, b"\r\n\r\n", 4) == 0
    ):
        end -= 2                # without the empty line
    memcpy(out, block, rest - block)
    to = copy_lines(rest, end, LEFT, NAMES if is_source else NAMES - 1, out + (rest - block))
    return to - out


# For tests

def carried(bytes block not None, *, bint is_source):
    """The block as it is copied, without the empty line at its end."""
    cdef bytearray out = bytearray(len(block) + 1)
    cdef char* to = out
    return bytes(out[:carry_headers(block, len(block), is_source, to)])
