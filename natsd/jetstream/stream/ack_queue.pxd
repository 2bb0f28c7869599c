"""Answers to publishers, in order, each with what it waits for."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum AnswerKind:
    STORED = 0                  # `value` is its sequence
    DUPLICATE = 1               # `value` is the sequence of the original
    TEXT = 2                    # the text as it is; what was refused
    STORED_WITH = 3             # `value` is its sequence, the text what follows that
    STORED_TEXT = 4             # the text as it is; what was stored

cdef struct Answer:             # at the front of the queue; good until that is changed
    uint64_t wait               # goes out once all up to this sequence is durable
    uint64_t value
    AnswerKind kind
    bint is_held                # waits for something else, whatever is durable
    uint32_t batch              # whose answers rest on all of them; 0: none
    const char* reply
    uint32_t reply_len
    const char* text
    uint32_t text_len

cdef struct AnswerHead:         # as it stands in the buffer, the reply and the text behind it
    uint64_t wait
    uint64_t value
    uint32_t reply_len
    uint32_t text_len
    uint32_t batch
    uint16_t kind
    uint16_t is_held


cdef class AckQueue:
    cdef char* buffer
    cdef size_t capacity
    cdef size_t start           # of the first answer
    cdef size_t end             # behind the last one
    cdef size_t last            # where the last one begins
    cdef readonly size_t count

    cdef int push(
        self, AnswerKind kind, uint64_t wait, uint64_t value, const char* reply, size_t reply_len,
        const char* text, size_t text_len,
    ) except -1
    cdef bint peek(self, Answer* out) noexcept nogil
    cdef int pop(self) except -1
    cdef int hold_last(self) except -1      # the answer that was pushed last waits for `release`
    cdef int release(self, uint64_t value) noexcept nogil   # the held one of that sequence
    # Everything that waits for more than `durable` is answered with this text instead.
    cdef int fail_above(self, uint64_t durable, const char* text, size_t text_len) except -1
    # The held one of that sequence is answered with this text instead, and so are its duplicates,
    # and what follows of a batch that one of them is of. These batches.
    cdef set fail_held(self, uint64_t value, const char* text, size_t text_len)
    cdef int mark_last(self, uint32_t batch) noexcept   # the answer pushed last is of that batch
    cdef size_t size(self) noexcept nogil   # bytes that are queued
    cdef char* room(self, size_t need) except NULL
    cdef int keep(self, const Answer* answer) except -1     # one of another queue, as it is
    cdef int take(self, AckQueue other) except -1
