"""The queue of answers to publishers, each with the sequence that must be durable before it."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum AnswerKind:
    STORED = 0                  # `value` is the sequence of the stored message
    DUPLICATE = 1               # `value` is the sequence of the original message
    TEXT = 2                    # `text` is the whole answer: the publish was refused
    STORED_WITH = 3             # `value` is the sequence, `text` the rest of the PubAck
    STORED_TEXT = 4             # `text` is the whole answer: the message was stored

cdef struct Answer:             # the front answer; its pointers hold until the queue changes
    uint64_t wait               # sent once every sequence up to this one is durable
    uint64_t value
    AnswerKind kind
    bint is_held                # also waits for `release`, whatever is durable
    uint32_t batch              # the batch whose answers rest on each other; 0: none
    const char* reply
    uint32_t reply_len
    const char* text
    uint32_t text_len

cdef struct AnswerHead:         # in the buffer; the reply and the text follow
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
    cdef size_t start           # offset of the first answer
    cdef size_t end             # offset behind the last answer
    cdef size_t last            # offset of the last answer
    cdef readonly size_t count

    cdef int push(
        self, AnswerKind kind, uint64_t wait, uint64_t value, const char* reply, size_t reply_len,
        const char* text, size_t text_len,
    ) except -1
    cdef bint peek(self, Answer* out) noexcept nogil
    cdef int pop(self) except -1
    cdef int hold_last(self) except -1      # Keep the answer that was pushed last until `release`.
    # Let the held answer of a sequence go. Returns 1 if there was one.
    cdef int release(self, uint64_t value) noexcept nogil
    # Turn every answer that waits for more than `durable` into this text.
    cdef int fail_above(self, uint64_t durable, const char* text, size_t text_len) except -1
    # Turn the held answer of a sequence into this text, its duplicates too, and the later answers
    # of each batch that one of them belongs to. Returns the numbers of these batches.
    cdef set fail_held(self, uint64_t value, const char* text, size_t text_len)
    # Give the answer that was pushed last a batch.
    cdef int mark_last(self, uint32_t batch) noexcept
    cdef size_t size(self) noexcept nogil   # Bytes of the queued answers.
    cdef char* room(self, size_t need) except NULL
    cdef int keep(self, const Answer* answer) except -1     # Push an answer of another queue.
    cdef int take(self, AckQueue other) except -1
