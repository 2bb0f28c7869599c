"""AtomicBatch: the messages of a batch that is not committed yet, as their publisher sent them.

    messages   at, lengths │ at, lengths │ …
                │
    data       subject headers payload │ subject headers payload │ …

Promise
- The batch is in memory only: an uncommitted batch is not promised to survive a restart.
- No Python object is made for a message; all messages are freed at once.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from natsd.jetstream.stream.checks cimport Batch, Entry

cdef extern from "natsd/store/block/buffers.h" nogil:
    void natsd_give_back_pages(char* data, size_t size)

cdef enum:
    BYTES_MIN = 4096
    MESSAGES_MIN = 16
    LINE_END = 2                # the CRLF that ends a header block


cdef class AtomicBatch(Batch):
    def __dealloc__(self):
        free(self.messages)
        free(self.data)

    cdef int reserve(self, size_t more) except -1:
        cdef size_t capacity = max(self.capacity, <size_t> BYTES_MIN)
        cdef char* data
        if self.size + more <= self.capacity:
            return 0
        while capacity < self.size + more:
            capacity *= 2
        data = <char*> realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError()
        self.data = data
        self.capacity = capacity
        return 0

    cdef int add(self, Entry* entry) except -1:
        cdef uint64_t room = self.messages_room
        cdef Staged* messages
        cdef char* to
        if self.count == room:
            room = max(<uint64_t> MESSAGES_MIN, 2 * room)
            messages = <Staged*> realloc(self.messages, room * sizeof(Staged))
            if messages == NULL:
                raise MemoryError()
            self.messages = messages
            self.messages_room = room
        self.reserve(entry.subject_len + entry.headers_len + entry.data_len)
        to = self.data + self.size
        memcpy(to, entry.subject, entry.subject_len)
        memcpy(to + entry.subject_len, entry.headers, entry.headers_len)
        memcpy(to + entry.subject_len + entry.headers_len, entry.data, entry.data_len)
        self.messages[self.count] = Staged(
            at=self.size, data_len=entry.data_len, subject_len=<uint32_t> entry.subject_len,
            headers_len=<uint32_t> entry.headers_len,
        )
        self.count += 1
        self.size += entry.subject_len + entry.headers_len + entry.data_len
        return 0

    cdef void get(self, uint64_t number, Entry* entry) noexcept nogil:
        cdef Staged* message = &self.messages[number - 1]
        entry.subject = self.data + message.at
        entry.subject_len = message.subject_len
        entry.headers = entry.subject + message.subject_len
        entry.headers_len = message.headers_len
        entry.data = entry.headers + message.headers_len
        entry.data_len = message.data_len

    cdef int add_header(self, const char* line, size_t length) except -1:
        cdef Staged* message
        cdef char* at
        assert self.count
        self.reserve(length)
        message = &self.messages[self.count - 1]
        at = self.data + message.at + message.subject_len + message.headers_len - LINE_END
        memmove(at + length, at, LINE_END + message.data_len)
        memcpy(at, line, length)
        message.headers_len += <uint32_t> length
        self.size += length
        return 0

    cdef void give_back(self, uint64_t number) noexcept nogil:
        cdef size_t end = self.messages[number].at if number < self.count else self.size
        natsd_give_back_pages(self.data + self.given_back, end - self.given_back)
        self.given_back = end

    cdef size_t memory_bytes(self) noexcept nogil:
        return self.capacity + self.messages_room * sizeof(Staged)
