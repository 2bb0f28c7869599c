"""The SubjectTransform, which maps a published subject to another one.

    source        orders.*.>            pattern that the subject must match
    destination   by.$1.fix.>           text │ wildcard │ text │ the rest

Promise
- A subject that the source does not match is not changed; `>` to `>` changes nothing either.
- Texts, wildcards, the rest and partitions make no Python object; functions that cut tokens do.
- A result is valid until the next call.

Source: nats-server's `NewSubjectTransform` (server/subject_transform.go). subject_mapping.py parses
the destination.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy


cdef enum:
    FNV_OFFSET = 2166136261
    FNV_PRIME = 16777619


cdef inline uint32_t fnv1a(uint32_t hash, const char* text, Py_ssize_t length) noexcept nogil:
    """Return the FNV-1a hash of a text, continued from `hash`."""
    cdef Py_ssize_t at
    for at in range(length):
        hash = (hash ^ <unsigned char> text[at]) * <uint32_t> FNV_PRIME
    return hash


cdef class SubjectTransform:
    """A mapping of subjects that match `source` to `destination`."""

    def __init__(self, str source not None, str destination not None):
        """Parse the mapping; an empty `source` matches all subjects. Raises InvalidMapping."""
        cdef uint32_t at, tail_at
        from natsd.core.subject_mapping import parse_mapping    # few servers have a mapping

        pieces = parse_mapping(source, destination)
        self.source = wire_bytes(source or ">")
        self.destination = wire_bytes(destination)
        self.is_identity = self.source == b">" and self.destination == b">"
        tail_at = <uint32_t> self.source.count(b".")
        self.pieces = <Piece*> calloc(len(pieces), sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError()
        self.piece_count = len(pieces)
        self.computed = []
        self.kept = []
        for at, piece in enumerate(pieces):
            self.set_piece(at, piece, tail_at)

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.piece_count):
            free(self.pieces[at].places)
        free(self.pieces)
        free(self.buffer)
        free_tokens(&self.tokens)

    cdef int set_piece(self, uint32_t at, given, uint32_t tail_at) except -1:
        """Store a piece of subject_mapping.py; `tail_at` is the place of the source's `>`."""
        cdef Piece* piece = &self.pieces[at]
        cdef bytes text
        from natsd.core.subject_mapping import Draw, Partition, Text, TokenChange, Wildcard

        call = None
        if isinstance(given, Text):
            text = wire_bytes(given.token)
            self.kept.append(text)
            piece.kind = LITERAL
            piece.text = text
            piece.text_len = len(text)
            if text == b">":
                piece.kind = REST
                self.set_places(piece, (tail_at,))
        elif isinstance(given, Wildcard):
            piece.kind = WILDCARD
            self.set_places(piece, (given.place,))
        elif isinstance(given, Partition):
            piece.kind = PARTITION
            piece.buckets = max(given.buckets, 0)
            self.set_places(piece, given.places)
        elif isinstance(given, Draw):
            piece.kind = COMPUTED
            call = draw_below(given.ceiling)
            self.is_random = True
        else:
            assert isinstance(given, TokenChange)
            piece.kind = COMPUTED
            call = given.function
            self.set_places(piece, (given.place,))
        self.computed.append(call)
        return 0

    cdef int set_places(self, Piece* piece, places) except -1:
        """Copy the places into a piece. Raises MemoryError."""
        cdef uint32_t at
        piece.places = <uint32_t*> calloc(max(len(places), 1), sizeof(uint32_t))
        if piece.places == NULL:
            raise MemoryError()
        piece.place_count = len(places)
        for at, place in enumerate(places):
            piece.places[at] = place
        return 0

    cdef bint apply(
        self, const char* subject, Py_ssize_t length, const char** out, Py_ssize_t* out_len
    ) except -1:
        """Transform a subject (see subject_transform.pxd); False: the source does not match it."""
        if self.is_identity:
            out[0] = subject
            out_len[0] = length
            return True
        if not subject_is_valid_literal(subject, length) or not write_result(self, subject, length):
            return False
        out[0] = self.buffer
        out_len[0] = self.length
        return True

    cdef int append(self, const char* text, Py_ssize_t length) except -1:
        """Append text to the result."""
        cdef char* buffer
        if self.room - self.length < length:
            buffer = <char*> realloc(self.buffer, 2 * (self.length + length))
            if buffer == NULL:
                raise MemoryError()
            self.buffer = buffer
            self.room = 2 * (self.length + length)
        memcpy(self.buffer + self.length, text, length)
        self.length += length
        return 0

    cdef int append_piece(
        self, uint32_t at, const char* subject, Py_ssize_t length
    ) except -1:
        """Append what a piece of the destination stands for, with the current subject."""
        cdef Piece* piece = &self.pieces[at]
        cdef bytes made
        cdef str token = ""
        if piece.kind == LITERAL:
            return self.append(piece.text, piece.text_len)
        if piece.kind == PARTITION:
            return self.append_partition(piece, subject, length)
        if piece.place_count and piece.places[0] >= self.tokens.count:
            return 0
        if piece.kind == WILDCARD:
            return self.append(
                self.tokens.items[piece.places[0]].start,
                self.tokens.items[piece.places[0]].length,
            )
        if piece.kind == REST:
            return self.append(
                self.tokens.items[piece.places[0]].start,
                subject + length - self.tokens.items[piece.places[0]].start,
            )
        if piece.place_count:
            token = wire_text(
                self.tokens.items[piece.places[0]].start,
                self.tokens.items[piece.places[0]].length,
            )
        made = wire_bytes(self.computed[at](token))
        return self.append(made, len(made))

    cdef int append_partition(
        self, Piece* piece, const char* subject, Py_ssize_t length
    ) except -1:
        """Append the bucket number of the current subject, in decimal."""
        cdef uint32_t hash = <uint32_t> FNV_OFFSET
        cdef uint32_t at
        cdef bytes number
        if piece.place_count == 0:
            hash = fnv1a(hash, subject, length)
        for at in range(piece.place_count):
            if piece.places[at] < self.tokens.count:
                hash = fnv1a(
                    hash, self.tokens.items[piece.places[at]].start,
                    self.tokens.items[piece.places[at]].length,
                )
        number = b"%d" % (hash % piece.buckets if piece.buckets else 0)
        return self.append(number, len(number))

    def map_words(self, bytes subject not None) -> bytes | None:
        """Return the transformed subject, in which wildcards are words like any other.

        JetStream's API has such subjects: `CONSUMER.CREATE.ORDERS.shop.orders.>` names a filter.
        None: the source does not match the subject, or it is not valid.
        """
        if self.is_identity:
            return subject
        if not subject_is_valid(subject, len(subject)) or not write_result(
            self, subject, len(subject)
        ):
            return None
        return self.buffer[:self.length]

    def map(self, subject) -> str | None:
        """Return the transformed subject; None: the source does not match it."""
        cdef bytes name = wire_bytes(subject)
        cdef const char* out = NULL
        cdef Py_ssize_t length = 0
        if not self.apply(name, len(name), &out, &length):
            return None
        return wire_text(out, length)


cdef bint write_result(
    SubjectTransform transform, const char* subject, Py_ssize_t length
) except -1:
    """Write what the subject becomes into the transform's buffer; False: it does not match."""
    cdef uint32_t at
    if not subject_matches(subject, length, transform.source, len(transform.source)):
        return False
    if split_tokens(&transform.tokens, subject, length) < 0:
        raise MemoryError()
    transform.length = 0
    for at in range(transform.piece_count):
        if at:
            transform.append(b".", 1)
        transform.append_piece(at, subject, length)
    return True


def draw_below(ceiling):
    """Return a function that returns a random number below `ceiling` as text."""
    import secrets    # few servers have a mapping

    return lambda _: str(secrets.randbelow(ceiling)) if ceiling > 0 else "0"
