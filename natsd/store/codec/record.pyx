"""Encoder and decoder of the records that record.pxd draws.

Promise
- A written record verifies when it is read with the same seed. If any one bit of it is flipped, or
  the seed is another, `parse_header` or `body_is_whole` returns false.
- `parse_header` and `parse_mark` accept any bytes, and read at most `room` of them.
- Nothing here allocates except `StoredMessage` and the functions for Python at the end.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp

from natsd.core.routing cimport wire_bytes, wire_text

cdef const char* BLOCK_MAGIC = b"NATSDBLK"
cdef const char* MARK_MAGIC = b"MARK"

HEADER_BYTES = BLOCK_HEADER_BYTES
OVERHEAD_BYTES = RECORD_BYTES_MIN         # bytes of a record without subject, headers and payload
KIND_MESSAGE = MESSAGE
KIND_SKIP = SKIP
KIND_TOMBSTONES = TOMBSTONES
KIND_MARK = MARK
FLAG_ERASED = ERASED
FLAG_VOID_PREVIOUS = VOID_PREVIOUS
FLAG_CLOSING = CLOSING


@cython.freelist(256)
@cython.no_gc
cdef class StoredMessage:
    """A stored message with its own copies of the subject, headers and payload.

    `headers` is None if the message has none; `expires_ns` is 0 if it does not expire.
    """

    def __init__(self, sequence, subject, headers, data, time_ns, expires_ns=0):
        self.sequence = sequence
        self.subject = subject
        self.headers = headers
        self.data = data
        self.time_ns = time_ns
        self.expires_ns = expires_ns

    def __eq__(self, other):
        cdef StoredMessage that
        if not isinstance(other, StoredMessage):
            return NotImplemented
        that = <StoredMessage> other
        return (
            self.sequence == that.sequence and self.time_ns == that.time_ns
            and self.expires_ns == that.expires_ns and self.subject == that.subject
            and self.headers == that.headers and self.data == that.data
        )

    def __hash__(self):
        return hash((self.sequence, self.time_ns, self.subject))

    def __repr__(self):
        expiry = f", expires_ns={self.expires_ns}" if self.expires_ns else ""
        return (
            f"StoredMessage({self.sequence}, {self.subject!r}, {self.headers!r}, {self.data!r}, "
            f"{self.time_ns}{expiry})"
        )


cdef StoredMessage message_of(const RecordView* view):
    cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
    message.sequence = view.sequence
    message.time_ns = view.time_ns
    message.expires_ns = view.expires_ns
    message.subject = wire_text(view.subject, view.subject_len)
    if view.headers_len:
        message.headers = PyBytes_FromStringAndSize(view.headers, view.headers_len)
    message.data = PyBytes_FromStringAndSize(view.data, view.data_len)
    return message


cdef inline uint64_t seal_record(
    unsigned char* to, uint32_t length, uint64_t seed
) noexcept nogil:
    """Write the checksum at the end of a record and return it."""
    cdef uint64_t checksum = xxh64(to, length - RECORD_CHECKSUM_BYTES, seed)
    write_u64(to + length - RECORD_CHECKSUM_BYTES, checksum)
    return checksum


cdef inline void encode_header(
    unsigned char* to, uint64_t seed, uint32_t length, uint8_t kind, uint8_t flags,
    uint16_t subject_len, uint64_t sequence, int64_t time_ns, uint32_t headers_len,
) noexcept nogil:
    """Write the RECORD_HEADER_BYTES of a record's header, its checksum included."""
    write_u32(to, length)
    to[4] = kind
    to[5] = flags
    to[6] = <unsigned char> subject_len
    to[7] = <unsigned char> (subject_len >> 8)
    write_u64(to + 8, sequence)
    write_u64(to + 16, <uint64_t> time_ns)
    write_u32(to + 24, headers_len)
    write_u32(to + 28, <uint32_t> xxh64(to, 28, seed))


cdef uint64_t encode_record(
    unsigned char* to, uint64_t seed, uint8_t kind, uint8_t flags, uint64_t sequence,
    int64_t time_ns, int64_t expires_ns, const char* subject, uint16_t subject_len,
    const char* headers, uint32_t headers_len, const char* data, uint32_t data_len,
) noexcept nogil:
    cdef unsigned char* body = to + RECORD_HEADER_BYTES
    cdef uint32_t length
    if expires_ns:
        flags |= HAS_EXPIRY
        write_u64(body, <uint64_t> expires_ns)
        body += EXPIRY_BYTES
    length = <uint32_t> record_size(subject_len, headers_len, data_len, expires_ns != 0)
    encode_header(to, seed, length, kind, flags, subject_len, sequence, time_ns, headers_len)
    memcpy(body, subject, subject_len)
    body += subject_len
    if headers_len:
        memcpy(body, headers, headers_len)
        body += headers_len
    memcpy(body, data, data_len)
    return seal_record(to, length, seed)


cdef void encode_mark(unsigned char* to, const Mark* mark) noexcept nogil:
    cdef unsigned char* body = to + RECORD_HEADER_BYTES
    encode_header(to, 0, MARK_BYTES, MARK, mark.flags, 0, mark.last_sequence, 0, 0)
    memcpy(body, MARK_MAGIC, 4)
    write_u32(body + 4, mark.block_id)
    write_u64(body + 8, mark.seed)
    write_u64(body + 16, mark.commit_number)
    write_u64(body + 24, mark.first_sequence)
    write_u64(body + 32, mark.last_sequence)
    write_u32(body + 40, mark.extent_start)
    write_u32(body + 44, mark.extent_length)
    write_u64(body + 48, mark.previous_chain)
    write_u64(body + 56, mark.chain)
    seal_record(to, MARK_BYTES, 0)


cdef bint parse_mark(const unsigned char* at, size_t room, Mark* out) noexcept nogil:
    cdef RecordHeader header
    cdef const unsigned char* body = at + RECORD_HEADER_BYTES
    if room < MARK_BYTES or at[4] != MARK or memcmp(body, MARK_MAGIC, 4) != 0:
        return False
    if not parse_header(at, room, 0, &header) or header.length != MARK_BYTES:
        return False
    if not body_is_whole(at, &header, 0):
        return False
    out.flags = header.flags
    out.block_id = read_u32(body + 4)
    out.seed = read_u64(body + 8)
    out.commit_number = read_u64(body + 16)
    out.first_sequence = read_u64(body + 24)
    out.last_sequence = read_u64(body + 32)
    out.extent_start = read_u32(body + 40)
    out.extent_length = read_u32(body + 44)
    out.previous_chain = read_u64(body + 48)
    out.chain = read_u64(body + 56)
    return True


cdef void encode_block_header(unsigned char* to, const BlockHeader* header) noexcept nogil:
    memcpy(to, BLOCK_MAGIC, 8)
    to[8] = <unsigned char> header.version
    to[9] = <unsigned char> (header.version >> 8)
    to[10] = <unsigned char> header.flags
    to[11] = <unsigned char> (header.flags >> 8)
    write_u32(to + 12, header.block_id)
    write_u64(to + 16, header.seed)
    write_u64(to + 24, header.first_sequence)
    write_u64(to + 32, <uint64_t> header.created_ns)
    memcpy(to + 40, header.salt, 16)
    write_u64(to + 56, xxh64(to, 56, 0))


cdef bint parse_block_header(
    const unsigned char* at, size_t room, BlockHeader* out
) noexcept nogil:
    if room < BLOCK_HEADER_BYTES or memcmp(at, BLOCK_MAGIC, 8) != 0:
        return False
    if read_u64(at + 56) != xxh64(at, 56, 0):
        return False
    out.version = read_u16(at + 8)
    out.flags = read_u16(at + 10)
    out.block_id = read_u32(at + 12)
    out.seed = read_u64(at + 16)
    out.first_sequence = read_u64(at + 24)
    out.created_ns = <int64_t> read_u64(at + 32)
    memcpy(out.salt, at + 40, 16)
    return True


cdef bytes erased_record(uint64_t seed, uint64_t sequence, bytes noise):
    cdef Py_ssize_t noise_len = len(noise)
    cdef bytes record = PyBytes_FromStringAndSize(NULL, RECORD_BYTES_MIN + noise_len)
    encode_record(
        <unsigned char*> PyBytes_AS_STRING(record), seed, MESSAGE, ERASED, sequence, 0, 0, "", 0,
        "", 0, PyBytes_AS_STRING(noise), <uint32_t> noise_len,
    )
    return record


# For Python: tests, and tools that look at single records.

def checksum(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 of `data`."""
    return xxh64(<const unsigned char*> PyBytes_AS_STRING(data), len(data), seed)


def encode(
    seed, sequence, subject, headers, data, time_ns, expires_ns=0, kind=MESSAGE, flags=0
) -> bytes:
    """Return one encoded record. Raises ValueError if a length does not fit into its field."""
    cdef bytes subject_bytes = wire_bytes(subject)
    cdef bytes header_bytes = b"" if headers is None else headers
    cdef bytes data_bytes = data
    cdef size_t size = record_size(
        len(subject_bytes), len(header_bytes), len(data_bytes), expires_ns != 0
    )
    cdef bytes record
    if len(subject_bytes) > SUBJECT_BYTES_MAX or size > RECORD_BYTES_MAX:
        raise ValueError(f"a record of {size} bytes with a subject of {len(subject_bytes)}")
    record = PyBytes_FromStringAndSize(NULL, size)
    encode_record(
        <unsigned char*> PyBytes_AS_STRING(record), seed, kind, flags, sequence, time_ns,
        expires_ns, subject_bytes, <uint16_t> len(subject_bytes), header_bytes,
        <uint32_t> len(header_bytes), data_bytes, <uint32_t> len(data_bytes),
    )
    return record


def erased(seed: int, sequence: int, noise: bytes) -> bytes:
    """Return the record that replaces an erased message.

    It is OVERHEAD_BYTES longer than `noise`.
    """
    return erased_record(seed, sequence, noise)


def header_is_whole(data: bytes, seed: int) -> bool:
    """Return whether `data` begins with a record's header that was written with `seed`."""
    cdef RecordHeader header
    return parse_header(<const unsigned char*> PyBytes_AS_STRING(data), len(data), seed, &header)


def decode(data: bytes, seed: int) -> StoredMessage | None:
    """Return the message of the record at the start of `data`; None if it does not verify."""
    cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(data)
    cdef RecordHeader header
    cdef RecordView view
    if not parse_header(at, len(data), seed, &header) or header.kind != MESSAGE:
        return None
    if header.length > <size_t> len(data) or not body_is_whole(at, &header, seed):
        return None
    view_record(at, &view)
    return message_of(&view)
