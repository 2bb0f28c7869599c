"""Headers of a message that is copied to another stream.

    omitted     Nats-Expected-…  Nats-Batch-…   evaluated by the first stream already
                Nats-Request-Info               irrelevant to readers of the message
                Nats-Stream-Source              for a source only: a new one is written instead

Promise
- A name counts only at the start of a line, in exactly these letters. Everything else is copied
  byte for byte.
- Any bytes are accepted as a block; nothing outside it is read.

Source: nats-server's `processInboundMirrorMsg` and `processInboundSourceMsg`; results were compared
with a running nats-server.
"""

from libc.string cimport memcmp, memcpy

from natsd.jetstream.stream.checks cimport LineStart, behind_line, copy_lines

cdef enum:
    NAMES = 4

cdef const char** TEXTS = [
    "Nats-Expected-", "Nats-Batch-", "Nats-Request-Info:", "Nats-Stream-Source:",
]
cdef LineStart[NAMES] LEFT      # the last one for sources only
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


# For tests only

def carried(bytes block not None, *, bint is_source):
    """Return the copied block, without the empty line at its end."""
    cdef bytearray out = bytearray(len(block) + 1)
    cdef char* to = out
    return bytes(out[:carry_headers(block, len(block), is_source, to)])
