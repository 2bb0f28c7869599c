"""Republisher: messages are published again under another subject, with their place in the stream.

    stored ─▶ note ─▶ ring of sequences ─▶ run, when they are visible ─▶ publisher

Promise
- Nothing is published again before it is durable; a message that a failed commit took back never
  is.
- Messages are published in the order of the stream, each once; a message that is removed before its
  turn is skipped.
- A message needs 16 bytes until it is published. The publish path bounds their number (`waiting`).

Source: ADR-28.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from natsd.core.routing cimport SubjectTransform, subject_is_literal, subject_is_valid
from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.block.blocks cimport COLD, FOUND, Found, MsgBlock
from natsd.store.codec.records cimport RecordView

from natsd.jetstream.models.times import format_time
from natsd.store.errors import StoreError, StoreUnavailable

cdef enum:
    RING_MIN = 64
    PUBLISHED_PER_SLICE = 128


cdef class Republisher(Actor):
    def __init__(self, StreamReaders stream not None, settings not None):
        """Take RepublishSettings. Raises InvalidMapping."""
        self.stream = stream
        self.settings = settings
        self.transform = SubjectTransform(settings.mapping.source, settings.mapping.destination)
        self.headers_only = settings.headers_only
        self.name = stream.name.encode("utf-8", "surrogateescape")

    def __dealloc__(self):
        free(self.ring)

    cdef uint64_t waiting(self) noexcept nogil:
        return self.tail - self.head

    cdef int note(
        self, const char* subject, Py_ssize_t length, uint64_t sequence, uint64_t previous
    ) except -1:
        cdef const char* to = NULL
        cdef Py_ssize_t to_len = 0
        if not self.transform.apply(subject, length, &to, &to_len):
            return 0
        if self.ring == NULL or self.tail - self.head > self.ring_mask:
            self.grow()
        self.ring[self.tail & self.ring_mask] = Republished(sequence, previous)
        self.tail += 1
        self.stream.scheduler.submit(self)
        return 0

    cdef int grow(self) except -1:
        cdef uint64_t room = 2 * (self.ring_mask + 1) if self.ring != NULL else RING_MIN
        cdef Republished* ring = <Republished*> malloc(room * sizeof(Republished))
        cdef uint64_t at
        if ring == NULL:
            raise MemoryError()
        for at in range(self.head, self.tail):
            ring[at & (room - 1)] = self.ring[at & self.ring_mask]
        free(self.ring)
        self.ring = ring
        self.ring_mask = room - 1
        return 0

    cdef int forget_above(self, uint64_t sequence) except -1:
        while self.tail > self.head:
            if self.ring[(self.tail - 1) & self.ring_mask].sequence <= sequence:
                break
            self.tail -= 1
        return 0

    cdef bint run(self, int64_t now_ns) except? -1:
        cdef int left = PUBLISHED_PER_SLICE
        cdef Republished item
        cdef RecordView view
        cdef MsgBlock block
        cdef Found found
        while self.head < self.tail and self.fetching is None:
            item = self.ring[self.head & self.ring_mask]
            if item.sequence > self.stream.visible:
                return False
            if left == 0:
                return True
            left -= 1
            if self.stream.log.is_here(item.sequence):
                block = self.stream.log.blocks.holding(item.sequence)
                found = block.view(item.sequence, &view)
                if found == COLD:
                    self.fetch(block)
                    return False
                if found == FOUND:
                    self.publish(&item, &view)
            self.head += 1
        return False

    def fetch(self, block) -> None:
        """Fetch a block; go on when it is in memory."""
        self.fetching = self.stream.scheduler.reactor.loop.create_task(self._fetch(block))

    async def _fetch(self, block) -> None:
        try:
            await self.stream.store.fetch(block)
        except StoreUnavailable:
            pass                # the next fetch waits for the one that failed
        except StoreError:
            self.head += 1      # an unreadable message is skipped
        finally:
            self.fetching = None
            self.stream.scheduler.submit(self)

    cdef int publish(self, Republished* item, RecordView* view) except -1:
        cdef const char* to = NULL
        cdef Py_ssize_t to_len = 0
        cdef bytes headers
        if not self.transform.apply(view.subject, view.subject_len, &to, &to_len):
            return 0
        if not subject_is_valid(to, to_len) or not subject_is_literal(to, to_len):
            return 0
        headers = self.headers_of(item, view)
        self.stream.publisher.send(
            self.stream.publisher.resolve(to, to_len), to, to_len, NULL, 0, headers, len(headers),
            view.data, 0 if self.headers_only else view.data_len,
        )
        return 0

    cdef bytes headers_of(self, Republished* item, RecordView* view):
        """Return the message's headers and those that say where it is."""
        cdef bytes own = b"NATS/1.0\r\n"
        cdef bytes size = b""
        if view.headers_len:
            own = view.headers[:view.headers_len - 2]
        if self.headers_only:
            size = b"Nats-Msg-Size: %d\r\n" % view.data_len
        return (
            b"%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\n"
            b"Nats-Time-Stamp: %b\r\nNats-Last-Sequence: %d\r\n%b\r\n"
        ) % (
            own, self.name, <bytes> view.subject[:view.subject_len], item.sequence,
            format_time(view.time_ns).encode(), item.previous, size,
        )

    def close(self) -> None:
        """Publish nothing more."""
        self.head = self.tail
        if self.fetching is not None:
            self.fetching.cancel()
