"""AckQueue: the answers to publishers, in the order of their messages.

    buffer   … │ head │ reply │ text │ pad to 8 │ head │ …        head: AnswerHead (ack_queue.pxd)
                 ▲ start                                 ▲ end

Promise
- First in, first out: no publisher is answered before the publisher of an earlier message.
- The queue is bytes in one buffer, which is freed when it is empty and large. `size` is the number
  of queued bytes, which the owner of the queue bounds.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    CAPACITY_MIN = 4096
    CAPACITY_KEPT = 1 << 20     # a larger buffer is freed once it is empty


cdef inline size_t padded(size_t size) noexcept nogil:
    return (size + 7) & ~<size_t> 7


cdef class AckQueue:
    def __dealloc__(self):
        free(self.buffer)

    cdef size_t size(self) noexcept nogil:
        return self.end - self.start

    cdef char* room(self, size_t need) except NULL:
        """Return the end of the buffer, with room for `need` bytes."""
        cdef size_t capacity
        cdef char* buffer
        if self.capacity - self.end < need and self.start > self.capacity // 2:
            memmove(self.buffer, self.buffer + self.start, self.end - self.start)
            self.last -= self.start
            self.end -= self.start
            self.start = 0
        if self.capacity - self.end < need:
            capacity = max(<size_t> CAPACITY_MIN, 2 * self.capacity)
            while capacity - self.end < need:
                capacity *= 2
            buffer = <char*> realloc(self.buffer, capacity)
            if buffer == NULL:
                raise MemoryError()
            self.buffer = buffer
            self.capacity = capacity
        return self.buffer + self.end

    cdef int push(
        self, AnswerKind kind, uint64_t wait, uint64_t value, const char* reply, size_t reply_len,
        const char* text, size_t text_len,
    ) except -1:
        cdef size_t need = padded(sizeof(AnswerHead) + reply_len + text_len)
        cdef char* at = self.room(need)
        cdef AnswerHead* head = <AnswerHead*> at
        head.wait = wait
        head.value = value
        head.batch = 0
        head.kind = <uint16_t> kind
        head.is_held = False
        head.reply_len = <uint32_t> reply_len
        head.text_len = <uint32_t> text_len
        memcpy(at + sizeof(AnswerHead), reply, reply_len)
        if text_len:
            memcpy(at + sizeof(AnswerHead) + reply_len, text, text_len)
        self.last = self.end
        self.end += need
        self.count += 1
        return 0

    cdef bint peek(self, Answer* out) noexcept nogil:
        cdef AnswerHead* head
        if self.count == 0:
            return False
        head = <AnswerHead*> (self.buffer + self.start)
        out.wait = head.wait
        out.value = head.value
        out.kind = <AnswerKind> head.kind
        out.is_held = head.is_held
        out.batch = head.batch
        out.reply = <const char*> head + sizeof(AnswerHead)
        out.reply_len = head.reply_len
        out.text = out.reply + head.reply_len
        out.text_len = head.text_len
        return True

    cdef int pop(self) except -1:
        cdef AnswerHead* head = <AnswerHead*> (self.buffer + self.start)
        assert self.count > 0
        self.start += padded(sizeof(AnswerHead) + head.reply_len + head.text_len)
        self.count -= 1
        if self.count == 0:
            self.start = self.end = 0
            if self.capacity > CAPACITY_KEPT:
                free(self.buffer)
                self.buffer = NULL
                self.capacity = 0
        return 0

    cdef int hold_last(self) except -1:
        assert self.count > 0
        (<AnswerHead*> (self.buffer + self.last)).is_held = True
        return 0

    cdef int mark_last(self, uint32_t batch) noexcept:
        assert self.count > 0
        (<AnswerHead*> (self.buffer + self.last)).batch = batch
        return 0

    cdef int release(self, uint64_t value) noexcept nogil:
        cdef size_t at = self.start
        cdef AnswerHead* head
        while at < self.end:
            head = <AnswerHead*> (self.buffer + at)
            if head.is_held and head.value == value:
                head.is_held = False
                return 1
            if head.wait > value:       # later answers wait for later messages
                return 0
            at += padded(sizeof(AnswerHead) + head.reply_len + head.text_len)
        return 0

    cdef int fail_above(self, uint64_t durable, const char* text, size_t text_len) except -1:
        cdef AckQueue kept = AckQueue()
        cdef Answer answer
        while self.peek(&answer):
            if answer.wait <= durable:
                kept.keep(&answer)
            elif answer.kind == TEXT:   # the publish was refused already
                kept.push(
                    TEXT, durable, 0, answer.reply, answer.reply_len, answer.text, answer.text_len
                )
            else:
                kept.push(TEXT, durable, 0, answer.reply, answer.reply_len, text, text_len)
            self.pop()
        self.take(kept)
        return 0

    cdef set fail_held(self, uint64_t value, const char* text, size_t text_len):
        cdef AckQueue kept = AckQueue()
        cdef Answer answer
        cdef set batches = set()
        while self.peek(&answer):
            if answer.kind != TEXT and (answer.value == value or answer.batch in batches):
                kept.push(
                    TEXT, answer.wait, 0, answer.reply, answer.reply_len, text, text_len
                )
                if answer.batch:
                    batches.add(answer.batch)
            else:
                kept.keep(&answer)
            self.pop()
        self.take(kept)
        return batches

    cdef int keep(self, const Answer* answer) except -1:
        self.push(
            answer.kind, answer.wait, answer.value, answer.reply, answer.reply_len, answer.text,
            answer.text_len,
        )
        self.mark_last(answer.batch)
        if answer.is_held:
            self.hold_last()
        return 0

    cdef int take(self, AckQueue other) except -1:
        """Replace the content of this queue by the content of the other one."""
        self.buffer, other.buffer = other.buffer, self.buffer
        self.capacity, other.capacity = other.capacity, self.capacity
        self.start, self.end, self.last = other.start, other.end, other.last
        self.count = other.count
        return 0
