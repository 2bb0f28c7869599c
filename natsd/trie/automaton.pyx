"""A NATS pattern as an automaton that reads a subject byte by byte.

The state is twice the place in the pattern that the subject has reached, plus one after a wildcard
at that place has taken a byte:

    pattern      o    .    *         .    >
    state        0    2    4,  5     6    8,  9      10: the end of a pattern without `>`

    o . e u . x  0→2→4→5→5→8→9               9: the subject may end, in the tail
    o . e u      0→2→4→5→5                   5: it may not end: the pattern goes on
    o . . x      0→2→4, refused              a wildcard's token has at least one byte

A subject that matches has no empty token. `*` and `>` inside a longer token, and in the subject
itself, are ordinary bytes.

These are the rules of nats-server's sublist.go. natsd.core.routing applies them to whole subjects,
and the tests compare the two.
"""

from natsd.core.routing cimport (
    TokenCursor, is_star, is_tail, next_token, subject_is_valid, tokens_of, wire_bytes,
)

from natsd.core.routing import InvalidSubject


cdef bytes kinds_of(bytes text):
    """Return the kind of each byte of the pattern, and BYTE_END."""
    cdef bytearray kinds = bytearray([<int> BYTE_LITERAL]) * len(text)
    cdef const char* start = text
    cdef TokenCursor token = tokens_of(start, len(text))
    while next_token(&token):
        if is_star(token.token, token.length):
            kinds[token.token - start] = <unsigned char> BYTE_STAR
        elif is_tail(token.token, token.length):
            kinds[token.token - start] = <unsigned char> BYTE_TAIL
    kinds.append(<int> BYTE_END)
    return bytes(kinds)


cdef class Pattern:
    """A pattern as a state machine; with None, every byte string matches.

    Raises InvalidSubject if the text is no valid pattern.
    """

    def __cinit__(self, text):
        if text is None:
            self.text = b""
            self.kinds = bytes([<int> BYTE_ANY])
        else:
            self.text = wire_bytes(text)
            if not self.text or not subject_is_valid(self.text, len(self.text)):
                raise InvalidSubject(text)
            self.kinds = kinds_of(self.text)
        self.automaton.text = <const unsigned char*> <const char*> self.text
        self.automaton.kinds = <const unsigned char*> <const char*> self.kinds
        self.automaton.length = <uint32_t> len(self.text)

    @property
    def start(self):
        """The state before the first byte."""
        return 0

    def step(self, uint32_t state, unsigned char byte):
        """Return the state after one more byte; negative: no matching subject continues so."""
        return automaton_step(&self.automaton, state, byte)

    def accepts(self, uint32_t state):
        """Return whether a subject may end in this state."""
        return automaton_accepts(&self.automaton, state)

    def literal(self, uint32_t state):
        """Return the only byte that can follow; negative: several can, or none."""
        if not automaton_is_literal(&self.automaton, state):
            return -1
        return self.automaton.text[state >> 1]
