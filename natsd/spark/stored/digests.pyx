"""Digests of messages for an audit, so that replicas are compared without payloads.

    message ─▶ XXH64 of subject, headers, data; XXH64 of sequence, time and these: its digest
    chunk   ─▶ 65,536 sequences: the number of messages, and the exclusive or of their digests
    id      ─▶ XXH64 of a Nats-Msg-Id, with sequence and time

Promise
- Chunks with equal digests hold equal messages, except by a chance of 1 in 2^64; the digest of a
  chunk may be computed in pieces, in any order.
- A message costs its share of its chunk, 24 bytes if it has an id, and 48 bytes if its chunk is
  among the wanted ones; no payload is kept.
- Columns are returned as plain buffers of int64, in the order of the sequences.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp

from natsd.store.block.array cimport Array, array_add
from natsd.store.block.blocks cimport index_sequence
from natsd.store.codec.records cimport RecordView
from natsd.store.codec.xxh64 cimport xxh64
from natsd.store.sequence_set cimport SequenceSet

cdef enum:
    CHUNK_SHIFT = 16
    ID_KEY_LEN = 12

cdef const char* ID_KEY = "Nats-Msg-Id:"

CHUNK_BITS = CHUNK_SHIFT


cdef inline int put(Array* column, uint64_t value) except -1 nogil:
    cdef uint64_t* slot = <uint64_t*> array_add(column, sizeof(uint64_t))
    if slot == NULL:
        raise MemoryError
    slot[0] = value
    return 0


cdef bytes taken(Array* column):
    return PyBytes_FromStringAndSize(<const char*> column.items, column.count * sizeof(uint64_t))


cdef inline uint64_t hashed(const char* at, uint32_t length) noexcept nogil:
    return xxh64(<const unsigned char*> at, length, 0)


cdef bint find_id(const RecordView* view, const char** at, uint32_t* length) noexcept nogil:
    """Find the value of the first Nats-Msg-Id, without surrounding spaces; False: there is none."""
    cdef const char* line = view.headers
    cdef const char* end = view.headers + view.headers_len
    cdef const char* line_end
    while line < end:
        line_end = <const char*> memchr(line, c"\n", end - line)
        if line_end == NULL:
            line_end = end
        if line_end - line > ID_KEY_LEN and memcmp(line, ID_KEY, ID_KEY_LEN) == 0:
            line += ID_KEY_LEN
            while line < line_end and line[0] == c" ":
                line += 1
            while line_end > line and (line_end[-1] == c" " or line_end[-1] == c"\r"):
                line_end -= 1
            at[0] = line
            length[0] = <uint32_t> (line_end - line)
            return line_end > line
        line = line_end + 1
    return False


cdef class Digests:
    """Digests of the messages of a stream.

    `wanted` holds the numbers of the chunks whose single messages are kept too; None: no chunk's.
    """

    def __init__(self, SequenceSet wanted=None):
        self.wanted = wanted

    def __dealloc__(self):
        cdef int at
        for at in range(3):
            free(self.chunks[at].items)
            free(self.ids[at].items)
        for at in range(6):
            free(self.rows[at].items)

    def add(self, Records records not None) -> None:
        """Add all wanted messages of a block; blocks are added in the order of their sequences."""
        with nogil:
            self.add_all(records)

    cdef int add_all(self, Records records) except -1 nogil:
        cdef RecordView view
        while records.place < records.scan.index.count:
            if index_sequence(&records.scan.index, records.place) > records.last_sequence:
                break
            if records.view(records.place, &view) and records.is_wanted(&view):
                self.add_one(&view)
            records.place = records.place + 1
        return 0

    cdef int add_one(self, const RecordView* view) except -1 nogil:
        cdef uint64_t[5] parts
        cdef uint64_t chunk = view.sequence >> CHUNK_SHIFT
        cdef const char* id_at
        cdef uint32_t id_len
        if self.count == 0:
            self.first_sequence = view.sequence
            self.first_time_ns = view.time_ns
            self.last_time_ns = INT64_MIN
            self.chunk = chunk
        elif chunk != self.chunk:
            self.end_chunk()
            self.chunk = chunk
        if view.time_ns < self.last_time_ns:
            self.descents = self.descents + 1
        self.last_sequence = view.sequence
        self.last_time_ns = view.time_ns
        self.count = self.count + 1
        self.data_bytes = self.data_bytes + view.data_len
        parts[0] = view.sequence
        parts[1] = <uint64_t> view.time_ns
        parts[2] = hashed(view.subject, view.subject_len)
        parts[3] = hashed(view.headers, view.headers_len)
        parts[4] = hashed(view.data, view.data_len)
        self.chunk_count = self.chunk_count + 1
        self.chunk_digest = self.chunk_digest ^ xxh64(<const unsigned char*> parts, 40, 0)
        if view.headers_len and find_id(view, &id_at, &id_len):
            put(&self.ids[0], hashed(id_at, id_len))
            put(&self.ids[1], view.sequence)
            put(&self.ids[2], <uint64_t> view.time_ns)
        if self.wanted is not None and self.wanted.has(chunk):
            self.keep_row(parts)
        return 0

    cdef int keep_row(self, const uint64_t* parts) except -1 nogil:
        cdef int at
        for at in range(5):
            put(&self.rows[at], parts[at])
        return put(&self.rows[5], xxh64(<const unsigned char*> parts, 40, 0))

    cdef int end_chunk(self) except -1 nogil:
        put(&self.chunks[0], self.chunk)
        put(&self.chunks[1], self.chunk_count)
        put(&self.chunks[2], self.chunk_digest)
        self.chunk_count = self.chunk_digest = 0
        return 0

    def take_chunks(self) -> list[bytes]:
        """Return the columns number, count and digest of the chunks, and forget the chunks."""
        if self.chunk_count:
            self.end_chunk()
        return self.take_columns(self.chunks, 3)

    def take_ids(self) -> list[bytes]:
        """Return the columns hash, sequence and time of the ids, and forget the ids."""
        return self.take_columns(self.ids, 3)

    def take_rows(self) -> list[bytes]:
        """Return the columns of the kept messages, and forget the messages.

        They are sequence, time, the hashes of subject, headers and data, and digest.
        """
        return self.take_columns(self.rows, 6)

    cdef list take_columns(self, Array* columns, int count):
        cdef list taken_columns = [taken(&columns[at]) for at in range(count)]
        for at in range(count):
            columns[at].count = 0
        return taken_columns
