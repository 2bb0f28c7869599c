"""Subjects as bytes with a length, as on the wire: they are read without copying."""

from libc.stdint cimport uint32_t, uint64_t


cdef struct TokenCursor:
    const char* rest        # text after the current token; NULL: the current token is the last
    const char* end         # end of the subject
    const char* token       # the current token
    Py_ssize_t length       # bytes of the current token

cdef struct Token:
    const char* start
    uint64_t hash
    uint32_t length

cdef struct TokenList:      # its memory is reused for the next subject
    Token* items
    uint32_t count
    uint32_t capacity


cdef inline TokenCursor tokens_of(const char* subject, Py_ssize_t length) noexcept nogil:
    """Return a cursor before the first token of a subject."""
    return TokenCursor(rest=subject, end=subject + length, token=NULL, length=0)


cdef inline bint next_token(TokenCursor* cursor) noexcept nogil:
    """Step to the next token, which may be empty; False: there is none."""
    cdef const char* at = cursor.rest
    if at == NULL:
        return False
    cursor.token = at
    while at < cursor.end and at[0] != c'.':
        at += 1
    cursor.length = at - cursor.token
    cursor.rest = at + 1 if at < cursor.end else NULL
    return True


cdef inline bint is_star(const char* token, Py_ssize_t length) noexcept nogil:
    """Return whether a token is exactly `*`."""
    return length == 1 and token[0] == c'*'


cdef inline bint is_tail(const char* token, Py_ssize_t length) noexcept nogil:
    """Return whether a token is exactly `>`."""
    return length == 1 and token[0] == c'>'


# `split_tokens` returns 1; 0: a token is empty, or the subject is too long; -1: out of memory.
cdef int split_tokens(TokenList* tokens, const char* subject, Py_ssize_t length) noexcept nogil
cdef void free_tokens(TokenList* tokens) noexcept nogil

cdef bint subject_is_valid(const char* subject, Py_ssize_t length) noexcept nogil
cdef bint subject_is_literal(const char* subject, Py_ssize_t length) noexcept nogil
cdef bint subject_is_valid_literal(const char* subject, Py_ssize_t length) noexcept nogil
cdef bint subject_matches(
    const char* literal, Py_ssize_t literal_len, const char* pattern, Py_ssize_t pattern_len
) noexcept nogil
cdef bint subject_is_subset(
    const char* subject, Py_ssize_t subject_len, const char* pattern, Py_ssize_t pattern_len
) noexcept nogil
cdef bint subjects_collide(
    const char* first, Py_ssize_t first_len, const char* second, Py_ssize_t second_len
) noexcept nogil

cdef bytes wire_bytes(object text)
cdef str wire_text(const char* data, Py_ssize_t length)
