"""A subject becomes another one, as a source pattern and a destination say."""

from libc.stdint cimport int64_t, uint32_t

from natsd.core.subject cimport TokenList


cdef enum PieceKind:
    LITERAL = 0                 # the text as it is
    WILDCARD                    # the token at a place
    REST                        # from a place on
    PARTITION
    COMPUTED                    # what a Python callable makes of the token at a place

cdef struct Piece:              # a token of the destination
    PieceKind kind
    const char* text            # LITERAL
    Py_ssize_t text_len
    uint32_t buckets            # PARTITION
    uint32_t* places            # in the subject
    uint32_t place_count


cdef class SubjectTransform:
    cdef readonly bytes source
    cdef readonly bytes destination
    cdef bint is_identity
    cdef Piece* pieces
    cdef uint32_t piece_count
    cdef list computed          # by piece: a callable, or None
    cdef list kept              # what the pieces' texts point into
    cdef TokenList tokens
    cdef char* buffer           # the last answer
    cdef Py_ssize_t length
    cdef Py_ssize_t room

    # What the subject becomes; `out` is good until the next call. False: the source does not match,
    # and nothing is changed.
    cdef bint apply(
        self, const char* subject, Py_ssize_t length, const char** out, Py_ssize_t* out_len
    ) except -1
    cdef int set_piece(self, uint32_t at, object piece, uint32_t tail_at) except -1
    cdef int set_places(self, Piece* piece, object places) except -1
    cdef int append(self, const char* text, Py_ssize_t length) except -1
    cdef int append_piece(
        self, uint32_t at, const char* subject, Py_ssize_t length
    ) except -1
    cdef int append_partition(
        self, Piece* piece, const char* subject, Py_ssize_t length
    ) except -1
