"""The commits of a consumer's state, and the answers to acknowledgements that wait for them.

    acknowledgements with a reply   ▪ ▪ ▪ ▪ ▪ ▪ ▪      each with the number of changes it waits for
                                        ▲ durable

Promise
- Answers are sent in the order of their acknowledgements, each when all changes up to it are
  durable. Changes that an answer waits for are committed at once, together with all other changes.
- Other changes are committed COMMIT_NS after the first of them, or when COMMIT_CHANGES are due,
  whichever is first: that many can be lost in a crash, and their messages are delivered again.
- Memory is bounded by BYTES_MAX: when so many bytes of answers wait for the disk, acknowledgements
  are applied but not answered, so the client asks again.

Source: docs/store.md; the answers are nats-server's double ack (`sendAckReply`).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from natsd.core.network cimport AccountPublisher
from natsd.core.routing cimport MatchResult, fanout_of

from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore

cdef enum:
    HEAD_BYTES = 12
    QUEUE_CAPACITY_MIN = 1024
    BYTES_MAX = 8 << 20
    COMMIT_CHANGES = 32 * 1024  # about a megabyte
    COMMIT_NS = 100_000_000


cdef class Confirmations:
    def __cinit__(self, store, AccountPublisher publisher not None, on_durable):
        self.store = store
        self.tracker = store.tracker
        self.publisher = publisher
        self.on_durable = on_durable
        self.is_file = not isinstance(store, MemoryConsumerStore)
        if self.is_file:
            self.tracker.listen(None)   # changes are committed by this object
            self.durable = store.durable_changes
            store.on_durable = self._reached

    def __dealloc__(self):
        free(self.bytes)

    def _reached(self, uint64_t change_count) -> None:
        """Note that so many changes are on disk; the store calls this."""
        self.durable = change_count
        if self.count or 0 < self.wanted <= change_count:
            self.wanted = 0
            self.on_durable()

    cdef bint add(self, const char* reply, Py_ssize_t length) except -1:
        cdef uint32_t size = <uint32_t> length
        self.last_count = self.tracker.change_count
        if self.tail - self.head + HEAD_BYTES + length > BYTES_MAX:
            return False
        if self.tail + HEAD_BYTES + length > self.capacity:
            self.make_room(HEAD_BYTES + length)
        memcpy(&self.bytes[self.tail], &self.last_count, 8)
        memcpy(&self.bytes[self.tail + 8], &size, 4)
        memcpy(&self.bytes[self.tail + HEAD_BYTES], reply, length)
        self.tail += HEAD_BYTES + length
        self.count += 1
        return True

    cdef int make_room(self, Py_ssize_t need) except -1:
        cdef Py_ssize_t used = self.tail - self.head
        cdef Py_ssize_t capacity = max(QUEUE_CAPACITY_MIN, self.capacity)
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

    cdef bint serve(self, Py_ssize_t most) except? -1:
        if not self.is_file:
            self.durable = self.tracker.change_count
        if self.count == 0:
            return False
        self.send(most)
        if self.count == 0:
            return False
        if self.last_count > self.durable and self.last_count > self.commit_asked:
            self.commit()
        return self.next_count() <= self.durable

    cdef int send(self, Py_ssize_t most) except -1:
        cdef uint32_t size
        cdef char* reply
        cdef MatchResult to
        while self.count and most > 0 and self.next_count() <= self.durable:
            memcpy(&size, &self.bytes[self.head + 8], 4)
            reply = &self.bytes[self.head + HEAD_BYTES]
            to = self.publisher.resolve(reply, size)
            if fanout_of(to):
                self.publisher.send(to, reply, size, b"", 0, b"", 0, b"", 0)
            self.head += HEAD_BYTES + size
            self.count -= 1
            most -= 1
        if self.count == 0:
            self.head = self.tail = 0
        return 0

    cdef uint64_t next_count(self) noexcept nogil:
        """Return the number of changes that the oldest answer waits for."""
        cdef uint64_t change_count
        memcpy(&change_count, &self.bytes[self.head], 8)
        return change_count

    cdef bint want(self, uint64_t change_count) except -1:
        if change_count <= self.durable_changes():
            return True
        self.wanted = change_count
        if change_count > self.commit_asked:
            self.commit()
        return False

    cdef uint64_t durable_changes(self) noexcept:
        return self.durable if self.is_file else self.tracker.change_count

    cdef int keep(self, int64_t now_ns) except -1:
        if not self.is_file or self.tracker.changes.count == 0:
            self.due_ns = 0
        elif self.tracker.changes.count >= COMMIT_CHANGES or 0 < self.due_ns <= now_ns:
            self.commit()
        elif self.due_ns == 0:
            self.due_ns = now_ns + COMMIT_NS
        return 0

    cdef int commit(self) except -1:
        self.commit_asked = self.tracker.change_count
        self.due_ns = 0
        self.store.commit()
        return 0

    cdef int drop(self) except -1:
        self.head = self.tail = self.count = 0
        return 0
