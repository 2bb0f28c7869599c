"""A subject becomes another one, as a source pattern and a destination say."""

from libc.stdint cimport int64_t, uint32_t


cdef enum PieceKind:
    LITERAL = 0                 # the text as it is
    WILDCARD                    # the token that a wildcard of the source stands for
    REST                        # all that `>` of the source stands for
    PARTITION
    RANDOM
    SPLIT_FROM_LEFT
    SPLIT_FROM_RIGHT
    SLICE_FROM_LEFT
    SLICE_FROM_RIGHT
    SPLIT
    LEFT
    RIGHT

cdef struct Piece:              # a token of the destination
    PieceKind kind
    const char* text            # LITERAL: the token; SPLIT: the delimiter
    Py_ssize_t text_len
    int64_t number              # of partitions, or of bytes
    uint32_t* tokens            # places in the subject
    uint32_t token_count


cdef class SubjectTransform:
    cdef readonly bytes source
    cdef readonly bytes destination
    cdef Piece* pieces
    cdef uint32_t piece_count
    cdef list kept              # what the pieces' texts point into
    cdef uint32_t tail_at       # the token that `>` of the source begins with
    cdef object random_below    # random_below(n): a number from 0 to n - 1
    cdef char* buffer           # the last answer
    cdef Py_ssize_t capacity

    # What the subject becomes; `out` is good until the next call. False: the source does not match.
    cdef bint apply(
        self, const char* subject, Py_ssize_t length, const char** out, Py_ssize_t* out_len
    ) except -1
