"""The outbound buffer of a connection: frames in pooled chunks, large payloads by reference.

    segments (oldest first)                                    the open run
    +-----------------+------------------+------------------+  +------------------+ - - - - +
    | end of a chunk  | payload, shared  | piece of a chunk |  | run ... position | limit   |
    +-----------------+------------------+------------------+  +------------------+ - - - - +
      chunk: freed       owner: a bytes    (chunk goes on         chunk being filled
      when sent          object, or        in the run)
                         borrowed

Promise
- The connection itself appends a frame between `position` and `limit` (one comparison, then
  memcpy). This module handles the rare cases: a full chunk, a large payload, a partial write.
- A chunk belongs to one connection from `take` to `give`; idle connections hold none. Chunks of the
  three sizes are recycled through the pool, up to `FREE_CHUNKS_MAX` of each size.
- No reference into the read buffer outlives the read: bytes that the socket did not take at once
  are copied, with one copy for all recipients (`promote`).
- `ChunkPool.pending_bytes` is the memory that the pending bytes of all connections take: the chunks
  in use, and each large payload once, however many connections wait to send it. It changes when a
  chunk is taken or given back and when a socket is full, never per message.
- Bytes are sent in the order in which they were appended.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    CHUNK_HEADER_BYTES = 16
    SEGMENTS_MIN = 8

cdef Py_ssize_t[CHUNK_CLASSES] CHUNK_BYTES
cdef int[CHUNK_CLASSES] FREE_CHUNKS_MAX
CHUNK_BYTES = [4 * 1024, 64 * 1024, 256 * 1024]
FREE_CHUNKS_MAX = [1024, 64, 32]


cdef struct ChunkHeader:
    char* next                 # next chunk of the pool's free list
    int chunk_class            # size class; CHUNK_CLASSES: a larger chunk that is never pooled
    int capacity_kib


cdef inline ChunkHeader* header_of(char* chunk) noexcept:
    """Return the header before a chunk's bytes."""
    return <ChunkHeader*>(chunk - CHUNK_HEADER_BYTES)


cdef inline Py_ssize_t chunk_bytes(char* chunk) noexcept:
    """Return the capacity of a chunk in bytes."""
    return <Py_ssize_t>header_of(chunk).capacity_kib * 1024


cdef class ChunkPool:
    """Free chunks of three sizes, the payloads promoted in this read, and the pending bytes."""

    def __dealloc__(self):
        cdef int i
        cdef char* chunk
        self.forget_promoted()
        for i in range(CHUNK_CLASSES):
            while self.free_chunks[i] != NULL:
                chunk = self.free_chunks[i]
                self.free_chunks[i] = header_of(chunk).next
                free(header_of(chunk))

    def __cinit__(self):
        self.pending_bytes_max = INT64_MAX
        self.payloads = {}

    cdef char* take(self, int chunk_class, Py_ssize_t need) except NULL:
        """Return a chunk of that size class, or a larger one if `need` bytes would not fit.

        Raises MemoryError.
        """
        cdef char* chunk
        cdef Py_ssize_t capacity
        while chunk_class < CHUNK_CLASSES and CHUNK_BYTES[chunk_class] < need:
            chunk_class += 1
        if chunk_class < CHUNK_CLASSES and self.free_chunks[chunk_class] != NULL:
            chunk = self.free_chunks[chunk_class]
            self.free_chunks[chunk_class] = header_of(chunk).next
            self.free_counts[chunk_class] -= 1
            self.pending_bytes += CHUNK_BYTES[chunk_class]
            return chunk
        capacity = CHUNK_BYTES[chunk_class] if chunk_class < CHUNK_CLASSES else need + 1023
        chunk = <char*>malloc(CHUNK_HEADER_BYTES + capacity)
        if chunk == NULL:
            raise MemoryError
        chunk += CHUNK_HEADER_BYTES
        header_of(chunk).chunk_class = chunk_class
        header_of(chunk).capacity_kib = <int>(capacity // 1024)
        self.pending_bytes += chunk_bytes(chunk)
        return chunk

    cdef void give(self, char* chunk) noexcept:
        """Take back a chunk, for reuse or to free it."""
        cdef int chunk_class = header_of(chunk).chunk_class
        self.pending_bytes -= chunk_bytes(chunk)
        if (
            chunk_class < CHUNK_CLASSES
            and self.free_counts[chunk_class] < FREE_CHUNKS_MAX[chunk_class]
        ):
            header_of(chunk).next = self.free_chunks[chunk_class]
            self.free_chunks[chunk_class] = chunk
            self.free_counts[chunk_class] += 1
        else:
            free(header_of(chunk))

    cdef object promote(self, const char* data, Py_ssize_t size):
        """Return a bytes object with a copy of borrowed bytes; the same one for the whole read."""
        cdef int i
        for i in range(self.promoted_count):
            if self.promoted_from[i] == data:
                return <object>self.promoted[i]
        owner = PyBytes_FromStringAndSize(data, size)
        if self.promoted_count < PROMOTIONS_MAX:
            Py_INCREF(owner)
            self.promoted_from[self.promoted_count] = data
            self.promoted[self.promoted_count] = <PyObject*>owner
            self.promoted_count += 1
        return owner

    cdef void forget_promoted(self) noexcept:
        """Forget the copies at the end of a read: the same address may hold other bytes then."""
        while self.promoted_count:
            self.promoted_count -= 1
            Py_DECREF(<object>self.promoted[self.promoted_count])

    cdef int count_payload(self, PyObject* owner) except -1:
        """Count one more unsent segment that refers to the payload."""
        cdef object address = <size_t>owner
        cdef object segments = self.payloads.get(address, 0)
        self.payloads[address] = segments + 1
        if not segments:
            self.pending_bytes += PyBytes_GET_SIZE(<object>owner)
        return 0

    cdef int uncount_payload(self, PyObject* owner) except -1:
        """Count one segment less that refers to the payload."""
        cdef object address = <size_t>owner
        cdef object segments = self.payloads[address] - 1
        if segments:
            self.payloads[address] = segments
        else:
            del self.payloads[address]
            self.pending_bytes -= PyBytes_GET_SIZE(<object>owner)
        return 0


cdef char* chunk_end(char* chunk) noexcept:
    """Return the address after a chunk's last byte."""
    return chunk + chunk_bytes(chunk)


cdef int64_t out_pending(Outbound* out) noexcept:
    """Return the bytes that the socket has not taken yet."""
    return out.queued + (out.position - out.run)


cdef Segment* add_segment(Outbound* out) except NULL:
    """Append a segment, whose fields the caller must set. Raises MemoryError."""
    cdef Segment* grown
    if out.first + out.count == out.capacity:
        if out.first > out.capacity // 2:
            memmove(out.segments, out.segments + out.first, out.count * sizeof(Segment))
            out.first = 0
        else:
            grown = <Segment*>realloc(
                out.segments, max(SEGMENTS_MIN, out.capacity * 2) * sizeof(Segment)
            )
            if grown == NULL:
                raise MemoryError
            out.segments = grown
            out.capacity = max(SEGMENTS_MIN, out.capacity * 2)
    out.count += 1
    return &out.segments[out.first + out.count - 1]


cdef int close_run(Outbound* out, char* chunk) except -1:
    """Turn the open run into a segment; `chunk`, unless NULL, is freed with the segment."""
    cdef Segment* segment
    if out.position == out.run and chunk == NULL:
        return 0
    segment = add_segment(out)
    segment.data = out.run
    segment.size = out.position - out.run
    segment.chunk = chunk
    segment.owner = NULL
    segment.borrowed = False
    segment.counted = False
    out.queued += segment.size
    out.run = out.position
    return 0


cdef int out_roll(Outbound* out, ChunkPool pool, Py_ssize_t need) except -1:
    """Make room for `need` bytes between `position` and `limit`, in a new chunk if needed."""
    cdef char* chunk
    if out.chunk != NULL:
        if chunk_end(out.chunk) - out.position >= need:
            out.limit = chunk_end(out.chunk)
            return 0
        out.chunk_class = min(out.chunk_class + 1, CHUNK_CLASSES - 1)
    chunk = pool.take(out.chunk_class, need)
    if out.chunk != NULL:
        close_run(out, out.chunk)
    out.chunk = chunk
    out.run = chunk
    out.position = chunk
    out.limit = chunk_end(chunk)
    return 0


cdef int out_push(
    Outbound* out, ChunkPool pool, const char* data, Py_ssize_t size, PyObject* owner
) except -1:
    """Append bytes by reference; `owner` keeps them alive, NULL: they are in the read buffer."""
    cdef Segment* segment
    close_run(out, NULL)
    segment = add_segment(out)
    segment.data = data
    segment.size = size
    segment.chunk = NULL
    segment.owner = owner
    segment.borrowed = owner == NULL
    segment.counted = False
    out.fresh += 1
    if owner != NULL:
        Py_INCREF(<object>owner)
    out.queued += size
    return 0


cdef int out_gather(Outbound* out, iovec* vector, int most) noexcept:
    """Describe the pending bytes, oldest first, in at most `most` vectors; return their number."""
    cdef int n = min(out.count, most)
    cdef int i
    for i in range(n):
        vector[i].iov_base = <void*>out.segments[out.first + i].data
        vector[i].iov_len = out.segments[out.first + i].size
    if n < most and out.position != out.run:
        vector[n].iov_base = out.run
        vector[n].iov_len = out.position - out.run
        n += 1
    return n


cdef void release(Segment* segment, Outbound* out, ChunkPool pool) noexcept:
    """Release the memory behind a segment that was sent or dropped."""
    if segment.chunk != NULL:
        pool.give(segment.chunk)
    if segment.counted:
        pool.uncount_payload(segment.owner)
    elif segment.borrowed or segment.owner != NULL:
        out.fresh -= 1
    Py_XDECREF(segment.owner)


cdef void out_sent(Outbound* out, ChunkPool pool, Py_ssize_t size) noexcept:
    """Remove the first `size` pending bytes, which the socket took."""
    cdef Segment* segment
    while out.count:
        segment = &out.segments[out.first]
        if size < segment.size:
            segment.data += size
            segment.size -= size
            out.queued -= size
            return
        size -= segment.size
        out.queued -= segment.size
        release(segment, out, pool)
        out.first += 1
        out.count -= 1
    if out.segments != NULL:
        out.first = 0
        if out.capacity > SEGMENTS_MIN:
            free(out.segments)
            out.segments = NULL
            out.capacity = 0
    out.run += size
    if out.run == out.position:
        rest(out, pool)


cdef void rest(Outbound* out, ChunkPool pool) noexcept:
    """Give back the buffer of an idle connection; choose the size class of its next chunk."""
    if out.chunk == NULL:
        return
    if out.position - out.chunk < CHUNK_BYTES[0] and out.chunk_class > 0:
        out.chunk_class -= 1
    pool.give(out.chunk)
    out.chunk = out.run = out.position = out.limit = NULL
    free(out.segments)
    out.segments = NULL
    out.capacity = 0


cdef int out_keep(Outbound* out, ChunkPool pool) except -1:
    """Copy the pending bytes that are still in the read buffer, and count the unsent payloads.

    This is called when the socket is full, before the read buffer is used again.
    """
    cdef Segment* segment
    cdef int i
    for i in range(out.first + out.count - 1, out.first - 1, -1):
        if out.fresh == 0:
            break
        segment = &out.segments[i]
        if segment.counted:
            continue
        if segment.borrowed:
            owner = pool.promote(segment.data, segment.size)
            Py_INCREF(owner)
            segment.owner = <PyObject*>owner
            segment.data = PyBytes_AS_STRING(owner)
            segment.borrowed = False
        if segment.owner != NULL:
            pool.count_payload(segment.owner)
            segment.counted = True
            out.fresh -= 1
    return 0


cdef void out_clear(Outbound* out, ChunkPool pool) noexcept:
    """Drop all pending bytes."""
    cdef int i
    for i in range(out.first, out.first + out.count):
        release(&out.segments[i], out, pool)
    free(out.segments)
    out.segments = NULL
    out.first = out.count = out.capacity = 0
    out.queued = 0
    if out.chunk != NULL:
        pool.give(out.chunk)
    out.chunk = out.run = out.position = out.limit = NULL


cdef bytes out_take(Outbound* out, ChunkPool pool, Py_ssize_t most):
    """Remove and return the first `most` pending bytes, or all if there are fewer."""
    cdef Py_ssize_t size = min(<int64_t>most, out_pending(out))
    cdef Py_ssize_t filled = 0
    cdef Py_ssize_t piece
    cdef int i
    cdef bytes taken = PyBytes_FromStringAndSize(NULL, size)
    for i in range(out.first, out.first + out.count):
        piece = min(out.segments[i].size, size - filled)
        memcpy(PyBytes_AS_STRING(taken) + filled, out.segments[i].data, piece)
        filled += piece
    memcpy(PyBytes_AS_STRING(taken) + filled, out.run, size - filled)
    out_sent(out, pool, size)
    return taken
