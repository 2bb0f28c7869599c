"""Declarations of subject_transform.pyx."""

from libc.stdint cimport int64_t, uint32_t


cdef enum PieceKind:
    LITERAL = 0                 # a fixed text
    WILDCARD                    # the subject's token at a place
    REST                        # the subject from a place on
    PARTITION                   # a bucket number: a hash of tokens, or of the whole subject
    COMPUTED                    # the result of a Python callable, called with a token

cdef struct Piece:              # one token of the destination
    PieceKind kind
    const char* text            # of LITERAL; points into SubjectTransform.kept
    Py_ssize_t text_len
    uint32_t buckets            # of PARTITION
    uint32_t* places            # indexes of tokens in the subject, from 0
    uint32_t place_count


cdef class SubjectTransform:
    cdef readonly bytes source
    cdef readonly bytes destination
    cdef bint is_identity
    cdef readonly bint is_random    # the same subject may be mapped to different ones
    cdef Piece* pieces
    cdef uint32_t piece_count
    cdef list computed          # for each piece a callable, or None
    cdef list kept              # keeps the bytes alive that the pieces' texts point into
    cdef TokenList tokens       # tokens of the last subject
    cdef char* buffer           # the last result
    cdef Py_ssize_t length      # bytes in `buffer`
    cdef Py_ssize_t room        # capacity of `buffer`

    # Set `out` to the transformed subject, which is valid until the next call. False: the source
    # does not match, and `out` is unchanged.
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
