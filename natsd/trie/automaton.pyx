"""A NATS pattern as an automaton that reads a subject byte by byte.

The state is where in the pattern the subject has come to, times two, plus one once a wildcard there
has taken a byte:

    pattern      o    .    *         .    >
    state        0    2    4,  5     6    8,  9      10: the end of a pattern without `>`

    o . e u . x  0→2→4→5→5→8→9               9 may end, in the tail
    o . e u      0→2→4→5→5                   5 may not: the pattern goes on
    o . . x      0→2→4, refused              a wildcard's token has at least one byte

A token is empty in no subject that matches. `*` and `>` inside a longer token, and in the subject
itself, are ordinary bytes.

Reference: §3.6; natsd.core.subject says the same of whole subjects, and the tests compare the two.
"""

from natsd.core.subject cimport (
    TokenCursor, is_star, is_tail, next_token, subject_is_valid, tokens_of, wire_bytes,
)

from natsd.core.subject import InvalidSubject


cdef bytes kinds_of(bytes text):
    """The kind of each byte, and one for the end."""
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
    """A pattern that can be stepped through; None takes every byte string, whatever it is.

    Raises InvalidSubject for a text that is no pattern.
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
        """The state after one more byte; negative if no subject that matches goes on so."""
        return automaton_step(&self.automaton, state, byte)

    def accepts(self, uint32_t state):
        """May a subject end in this state?"""
        return automaton_accepts(&self.automaton, state)

    def literal(self, uint32_t state):
        """The only byte that goes on from here; negative if there are many, or none."""
        if not automaton_is_literal(&self.automaton, state):
            return -1
        return self.automaton.text[state >> 1]
