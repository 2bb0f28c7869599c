"""A NATS pattern as an automaton that reads a subject byte by byte."""

from libc.stdint cimport int64_t, uint32_t


cdef enum:
    AUTOMATON_REFUSED = -1

cdef enum ByteKind:     # role of a byte of the pattern
    BYTE_LITERAL
    BYTE_STAR           # a token that is exactly `*`
    BYTE_TAIL           # a last token that is exactly `>`
    BYTE_END            # behind the last byte
    BYTE_ANY            # no pattern: accepts every byte string, valid subject or not

cdef struct Automaton:
    const unsigned char* text
    const unsigned char* kinds      # ByteKind of each byte of the text, then BYTE_END
    uint32_t length


cdef inline int64_t automaton_step(
    const Automaton* self, uint32_t state, unsigned char byte
) noexcept nogil:
    """Return the state after one more byte, or AUTOMATON_REFUSED."""
    cdef uint32_t at = state >> 1
    cdef unsigned char kind = self.kinds[at]
    if kind == BYTE_LITERAL:
        return state + 2 if byte == self.text[at] else AUTOMATON_REFUSED
    if kind == BYTE_END:
        return AUTOMATON_REFUSED
    if kind == BYTE_ANY:
        return state
    if byte != c'.':
        return state | 1
    if not state & 1:               # an empty token
        return AUTOMATON_REFUSED
    if kind == BYTE_TAIL:
        return state ^ 1
    if self.kinds[at + 1] == BYTE_END:
        return AUTOMATON_REFUSED
    return (at + 2) << 1            # behind the `.` that follows the `*`


cdef inline bint automaton_accepts(const Automaton* self, uint32_t state) noexcept nogil:
    """Return whether the subject may end here."""
    cdef uint32_t at = state >> 1
    if state & 1:
        return self.kinds[at] == BYTE_TAIL or self.kinds[at + 1] == BYTE_END
    return self.kinds[at] >= BYTE_END


cdef inline bint automaton_is_literal(const Automaton* self, uint32_t state) noexcept nogil:
    """Return whether only one byte can follow, `self.text[state >> 1]`."""
    return self.kinds[state >> 1] == BYTE_LITERAL


cdef class Pattern:
    cdef readonly bytes text        # empty: every byte string matches
    cdef bytes kinds
    cdef Automaton automaton
