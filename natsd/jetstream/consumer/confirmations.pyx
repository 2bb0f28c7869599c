"""Acknowledgements that asked for an answer: they get one when what they changed is durable.

In the order in which they came. Memory is bounded by BYTES_MAX: what comes when that much waits for
the disk is taken like the others but not answered, so its client asks again.

Source: "Durability" of the design; reference §6.8 (double ack).
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from natsd.core.match_result cimport MatchResult
from natsd.core.outlet cimport Outlet

cdef enum:
    HEAD_BYTES = 12
    CAPACITY_MIN = 1024
    BYTES_MAX = 8 << 20


cdef class Confirmations:
    def __dealloc__(self):
        free(self.bytes)

    cdef bint add(self, uint64_t change_count, const char* reply, Py_ssize_t length) except -1:
        cdef uint32_t size = <uint32_t> length
        if self.tail - self.head + HEAD_BYTES + length > BYTES_MAX:
            return False
        if self.tail + HEAD_BYTES + length > self.capacity:
            self.make_room(HEAD_BYTES + length)
        memcpy(&self.bytes[self.tail], &change_count, 8)
        memcpy(&self.bytes[self.tail + 8], &size, 4)
        memcpy(&self.bytes[self.tail + HEAD_BYTES], reply, length)
        self.tail += HEAD_BYTES + length
        self.count += 1
        self.last_count = change_count
        return True

    cdef int make_room(self, Py_ssize_t need) except -1:
        cdef Py_ssize_t used = self.tail - self.head, capacity = max(CAPACITY_MIN, self.capacity)
        cdef char* grown
        if self.head:
            memmove(self.bytes, &self.bytes[self.head], used)
            self.head, self.tail = 0, used
        while capacity < used + need:
            capacity *= 2
        if capacity > self.capacity:
            grown = <char*> realloc(self.bytes, capacity)
            if grown == NULL:
                raise MemoryError
            self.bytes = grown
            self.capacity = capacity
        return 0

    cdef int send(self, Outlet outlet, uint64_t durable, Py_ssize_t most) except -1:
        cdef uint64_t change_count
        cdef uint32_t size
        cdef char* reply
        cdef MatchResult to
        while self.count and most > 0:
            memcpy(&change_count, &self.bytes[self.head], 8)
            if change_count > durable:
                return 0
            memcpy(&size, &self.bytes[self.head + 8], 4)
            reply = &self.bytes[self.head + HEAD_BYTES]
            to = outlet.resolve(reply, size)
            if to.plain_count or to.queue_count:
                outlet.send(to, reply, size, NULL, 0, b"", 0, b"", 0)
            self.head += HEAD_BYTES + size
            self.count -= 1
            most -= 1
        if self.count == 0:
            self.head = self.tail = 0
        return 0

    cdef uint64_t awaited(self) noexcept nogil:
        return self.last_count if self.count else 0

    cdef int drop(self) except -1:
        self.head = self.tail = self.count = 0
        return 0
