"""Subjects: validity, tokens, and which subjects match each other.

A subject is one or more non-empty tokens separated by `.`; their number is not limited. A token
that is exactly `*` stands for one token; a last token that is exactly `>` stands for one or more.
Inside a longer token both are ordinary characters. In a *published* subject they are ordinary
tokens: `PUB foo.*` reaches `foo.*` and `foo.>`, because `*` is a token like any other there, and
never reaches `foo.bar`.

Source: nats-server's `IsValidSubject` and `matchLiteral` (server/sublist.go); where these leave
something open, the behaviour was tried on nats-server.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp


cdef enum:
    SUBJECT_LEN_MAX = 0x7fffffff


class InvalidSubject(ValueError):
    """A subject with an empty token, or with `>` before its end."""


cdef int grow_tokens(TokenList* tokens) noexcept nogil:
    """Double the capacity; -1: out of memory."""
    cdef uint32_t capacity = tokens.capacity * 2 if tokens.capacity else 16
    cdef Token* items = <Token*> realloc(tokens.items, capacity * sizeof(Token))
    if items == NULL:
        return -1
    tokens.items = items
    tokens.capacity = capacity
    return 0


cdef int split_tokens(TokenList* tokens, const char* subject, Py_ssize_t length) noexcept nogil:
    """Split a subject into hashed tokens that point into it (results: see subject.pxd)."""
    cdef const char* end = subject + length
    cdef const char* start = subject
    cdef const char* at = subject
    cdef Token* token
    tokens.count = 0
    if length > SUBJECT_LEN_MAX:
        return 0
    while True:
        while at < end and at[0] != c'.':
            at += 1
        if at == start:
            return 0
        if tokens.count == tokens.capacity and grow_tokens(tokens) < 0:
            return -1
        token = &tokens.items[tokens.count]
        token.start = start
        token.length = <uint32_t> (at - start)
        token.hash = hash_name(start, at - start)
        tokens.count += 1
        if at == end:
            return 1
        at += 1
        start = at


cdef void free_tokens(TokenList* tokens) noexcept nogil:
    free(tokens.items)
    tokens.items = NULL
    tokens.count = tokens.capacity = 0


cdef inline bint is_space(char byte) noexcept nogil:
    return byte == c' ' or byte == c'\t' or byte == c'\n' or byte == c'\f' or byte == c'\r'


cdef bint subject_is_valid(const char* subject, Py_ssize_t length) noexcept nogil:
    """Return whether a subject may be subscribed to: wildcards are allowed, whitespace is not."""
    cdef TokenCursor cursor = tokens_of(subject, length)
    cdef Py_ssize_t at
    for at in range(length):
        if is_space(subject[at]):
            return False
    while next_token(&cursor):
        if cursor.length == 0:
            return False
        if is_tail(cursor.token, cursor.length):
            return cursor.rest == NULL
    return True


cdef bint subject_is_literal(const char* subject, Py_ssize_t length) noexcept nogil:
    """Return whether no token is a wildcard; the subject may be invalid."""
    cdef TokenCursor cursor
    if memchr(subject, c'*', length) == NULL and memchr(subject, c'>', length) == NULL:
        return True
    cursor = tokens_of(subject, length)
    while next_token(&cursor):
        if is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length):
            return False
    return True


cdef bint subject_is_valid_literal(const char* subject, Py_ssize_t length) noexcept nogil:
    """Return whether a pedantic client may publish to the subject: no empty token, no wildcard."""
    cdef TokenCursor cursor = tokens_of(subject, length)
    while next_token(&cursor):
        if cursor.length == 0:
            return False
        if is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length):
            return False
    return True


cdef inline bint same_token(TokenCursor* one, TokenCursor* other) noexcept nogil:
    """Return whether the current tokens of two cursors are equal."""
    return one.length == other.length and memcmp(one.token, other.token, one.length) == 0


cdef inline bint at_end_tail(TokenCursor* cursor) noexcept nogil:
    """Return whether the current token is a `>` at the end of the subject."""
    return cursor.rest == NULL and is_tail(cursor.token, cursor.length)


cdef inline bint rest_is_whole(TokenCursor* cursor) noexcept nogil:
    """Return whether the current token and all later ones are non-empty; move to the end."""
    if cursor.length == 0:
        return False
    while next_token(cursor):
        if cursor.length == 0:
            return False
    return True


cdef bint subject_matches(
    const char* literal, Py_ssize_t literal_len, const char* pattern, Py_ssize_t pattern_len
) noexcept nogil:
    """Return whether a message published to `literal` reaches a subscription to `pattern`."""
    cdef TokenCursor have = tokens_of(literal, literal_len)
    cdef TokenCursor want = tokens_of(pattern, pattern_len)
    while next_token(&want):
        if not next_token(&have) or have.length == 0 or want.length == 0:
            return False
        if at_end_tail(&want):
            return rest_is_whole(&have)
        if not is_star(want.token, want.length) and not same_token(&have, &want):
            return False
    return have.rest == NULL


cdef bint subject_is_subset(
    const char* subject, Py_ssize_t subject_len, const char* pattern, Py_ssize_t pattern_len
) noexcept nogil:
    """Return whether `pattern` matches every subject that `subject`, a pattern itself, matches."""
    cdef TokenCursor have = tokens_of(subject, subject_len)
    cdef TokenCursor want = tokens_of(pattern, pattern_len)
    while next_token(&want):
        if not next_token(&have) or want.length == 0:
            return False
        if is_tail(want.token, want.length):
            return True
        if have.length == 0 or is_tail(have.token, have.length):
            return False
        if not is_star(want.token, want.length) and not same_token(&have, &want):
            return False
    return have.rest == NULL


cdef bint subjects_collide(
    const char* first, Py_ssize_t first_len, const char* second, Py_ssize_t second_len
) noexcept nogil:
    """Return whether two patterns have a subject in common that both receive."""
    cdef TokenCursor one = tokens_of(first, first_len)
    cdef TokenCursor other = tokens_of(second, second_len)
    cdef bint more, more_other
    while True:
        more = next_token(&one)
        more_other = next_token(&other)
        if not more or not more_other:
            return more == more_other
        if one.length == 0 or other.length == 0:
            return False
        if at_end_tail(&one):
            return rest_is_whole(&other)
        if at_end_tail(&other):
            return rest_is_whole(&one)
        if is_star(one.token, one.length) or is_star(other.token, other.length):
            continue
        if not same_token(&one, &other):
            return False


cdef bytes wire_bytes(object text):
    """Return a str or bytes as bytes of the wire: UTF-8, with surrogates for other bytes."""
    if isinstance(text, str):
        return (<str> text).encode("utf-8", "surrogateescape")
    return <bytes?> text


cdef str wire_text(const char* data, Py_ssize_t length):
    """Return bytes of the wire as text; bytes that are not UTF-8 become surrogates."""
    return data[:length].decode("utf-8", "surrogateescape")


# The functions for Python: subjects are str or bytes.

def is_valid(subject) -> bool:
    """Return whether a subject may be subscribed to: wildcards are allowed, whitespace is not."""
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid(data, len(data))


def is_literal(subject) -> bool:
    """Return whether no token is a wildcard; the subject may be invalid."""
    cdef bytes data = wire_bytes(subject)
    return subject_is_literal(data, len(data))


def is_valid_literal(subject) -> bool:
    """Return whether a pedantic client may publish to the subject: no empty token, no wildcard."""
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid_literal(data, len(data))


def is_valid_publish(subject) -> bool:
    """Return whether a subject is valid and has no wildcard and no whitespace."""
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid(data, len(data)) and subject_is_literal(data, len(data))


def matches(literal, pattern) -> bool:
    """Return whether a message published to `literal` reaches a subscription to `pattern`."""
    cdef bytes data = wire_bytes(literal)
    cdef bytes wanted = wire_bytes(pattern)
    return subject_matches(data, len(data), wanted, len(wanted))


def is_subset(subject, pattern) -> bool:
    """Return whether `pattern` matches every subject that `subject`, a pattern itself, matches."""
    cdef bytes data = wire_bytes(subject)
    cdef bytes wanted = wire_bytes(pattern)
    return subject_is_subset(data, len(data), wanted, len(wanted))


def collide(first, second) -> bool:
    """Return whether two patterns are equal or have a subject in common that both receive."""
    cdef bytes one = wire_bytes(first)
    cdef bytes other = wire_bytes(second)
    return one == other or subjects_collide(one, len(one), other, len(other))


def token_count(subject) -> int:
    """Return the number of tokens; 0 for an empty subject."""
    cdef bytes data = wire_bytes(subject)
    return data.count(b".") + 1 if data else 0


def token_at(subject, index: int) -> str:
    """Return the token at `index`, counted from 1; "" if there is no such token."""
    cdef bytes data = wire_bytes(subject)
    cdef TokenCursor cursor = tokens_of(data, len(data))
    cdef Py_ssize_t left = index
    while left > 0 and next_token(&cursor):
        left -= 1
    return wire_text(cursor.token, cursor.length) if left == 0 and index > 0 else ""
