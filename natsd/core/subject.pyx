"""What a subject is, and which subjects meet.

A subject is one or more non-empty tokens separated by `.`; there is no limit on their number. A
token that is exactly `*` stands for one token, a last token that is exactly `>` for one or more.
Inside a longer token both are ordinary characters, and in a *published* subject they are ordinary
tokens: `PUB foo.*` reaches `foo.*` and `foo.>` because `*` is a token like any other, and never
`foo.bar`.

Reference: §3.6. Behaviour where it is silent: nats-server's, tried.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp

from natsd.core.name_table cimport hash_name


cdef enum:
    SUBJECT_LEN_MAX = 0x7fffffff


class InvalidSubject(ValueError):
    """A subject with an empty token, or with `>` before its end."""


cdef int grow_tokens(TokenList* tokens) noexcept nogil:
    cdef uint32_t capacity = tokens.capacity * 2 if tokens.capacity else 16
    cdef Token* items = <Token*> realloc(tokens.items, capacity * sizeof(Token))
    if items == NULL:
        return -1
    tokens.items = items
    tokens.capacity = capacity
    return 0


cdef int split_tokens(TokenList* tokens, const char* subject, Py_ssize_t length) noexcept nogil:
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
    """The subscribe form: wildcards allowed, whitespace not."""
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
    """No token is a wildcard; says nothing about validity."""
    cdef TokenCursor cursor
    if memchr(subject, c'*', length) == NULL and memchr(subject, c'>', length) == NULL:
        return True
    cursor = tokens_of(subject, length)
    while next_token(&cursor):
        if is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length):
            return False
    return True


cdef bint subject_is_valid_literal(const char* subject, Py_ssize_t length) noexcept nogil:
    """What a pedantic client may publish to: no empty token, no wildcard."""
    cdef TokenCursor cursor = tokens_of(subject, length)
    while next_token(&cursor):
        if cursor.length == 0:
            return False
        if is_star(cursor.token, cursor.length) or is_tail(cursor.token, cursor.length):
            return False
    return True


cdef inline bint same_token(TokenCursor* one, TokenCursor* other) noexcept nogil:
    return one.length == other.length and memcmp(one.token, other.token, one.length) == 0


cdef inline bint at_end_tail(TokenCursor* cursor) noexcept nogil:
    return cursor.rest == NULL and is_tail(cursor.token, cursor.length)


cdef inline bint rest_is_whole(TokenCursor* cursor) noexcept nogil:
    """Neither the current token nor one after it is empty."""
    if cursor.length == 0:
        return False
    while next_token(cursor):
        if cursor.length == 0:
            return False
    return True


cdef bint subject_matches(
    const char* literal, Py_ssize_t literal_len, const char* pattern, Py_ssize_t pattern_len
) noexcept nogil:
    """Would a message published to `literal` reach a subscription to `pattern`?"""
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
    """Does everything that `subject`, wildcards and all, can receive also reach `pattern`?"""
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
    """Is there a subject that both would receive?"""
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
    if isinstance(text, str):
        return (<str> text).encode("utf-8", "surrogateescape")
    return <bytes?> text


cdef str wire_text(const char* data, Py_ssize_t length):
    return data[:length].decode("utf-8", "surrogateescape")


# The same for Python.

def is_valid(subject) -> bool:
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid(data, len(data))


def is_literal(subject) -> bool:
    cdef bytes data = wire_bytes(subject)
    return subject_is_literal(data, len(data))


def is_valid_literal(subject) -> bool:
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid_literal(data, len(data))


def is_valid_publish(subject) -> bool:
    cdef bytes data = wire_bytes(subject)
    return subject_is_valid(data, len(data)) and subject_is_literal(data, len(data))


def matches(literal, pattern) -> bool:
    cdef bytes data = wire_bytes(literal)
    cdef bytes wanted = wire_bytes(pattern)
    return subject_matches(data, len(data), wanted, len(wanted))


def is_subset(subject, pattern) -> bool:
    cdef bytes data = wire_bytes(subject)
    cdef bytes wanted = wire_bytes(pattern)
    return subject_is_subset(data, len(data), wanted, len(wanted))


def collide(first, second) -> bool:
    cdef bytes one = wire_bytes(first)
    cdef bytes other = wire_bytes(second)
    return one == other or subjects_collide(one, len(one), other, len(other))


def token_count(subject) -> int:
    cdef bytes data = wire_bytes(subject)
    return data.count(b".") + 1 if data else 0


def token_at(subject, index: int) -> str:
    """The token at `index`, counted from one; empty where there is none."""
    cdef bytes data = wire_bytes(subject)
    cdef TokenCursor cursor = tokens_of(data, len(data))
    cdef Py_ssize_t left = index
    while left > 0 and next_token(&cursor):
        left -= 1
    return wire_text(cursor.token, cursor.length) if left == 0 and index > 0 else ""
