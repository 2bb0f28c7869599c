"""The record: the unit of a block file, written by an append, a skip, a removal or a commit.

    record     0 length u32 (all of it) │ 4 kind u8 │ 5 flags u8 │ 6 subject_len u16
               8 sequence u64           │ 16 time_ns i64
              24 header_len u32         │ 28 header checksum u32: low half of XXH64 of bytes 0..28
              32 [expiry_ns i64, if flags & HAS_EXPIRY] │ subject │ NATS headers │ payload
                 XXH64, 8 bytes, of everything before it

    MARK       a commit mark: a record without a subject and with a body of 64 bytes. Its checksums
               have seed 0; those of all other records have the block's seed:
               0 magic "MARK" │ 4 block_id u32 │ 8 seed u64 │ 16 commit number u64
              24 first_sequence u64: all lower ones are removed │ 32 last_sequence u64
              40 extent start u32 │ 44 extent length u32: the bytes it covers, just before it
              48 previous chain u64 │ 56 chain u64

    block      0 magic "NATSDBLK" │ 8 version u16 │ 10 flags u16 │ 12 block_id u32 │ 16 seed u64
    header    24 first_sequence u64 │ 32 created_ns i64 │ 40 store id u64 │ 48 follows u64 (for both
              see block_identity.py; they are one field here, `salt`) │ 56 XXH64 of 0..56

All integers are little-endian; nothing is aligned. A block's `first_sequence` is the next sequence
of its stream at the time when the block began. The headers of a message are the complete block
"NATS/1.0\r\n…\r\n\r\n"; a message without headers has a header_len of 0.

A payload can hold any bytes, even a whole block file, but not the block's seed, which was drawn at
random when the block began. So a payload cannot pass for a record. Marks are readable without the
seed, so that the seed can be recovered when the block's header is lost; a mark proves that it is
not part of a payload by naming the seed and its own place.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from natsd.store.codec.xxh64 cimport natsd_little64, xxh64


cdef enum:
    BLOCK_HEADER_BYTES = 64
    BLOCK_VERSION = 1
    RECORD_HEADER_BYTES = 32
    RECORD_CHECKSUM_BYTES = 8
    RECORD_BYTES_MIN = RECORD_HEADER_BYTES + RECORD_CHECKSUM_BYTES
    RECORD_BYTES_MAX = 1 << 29
    SUBJECT_BYTES_MAX = 0xffff
    EXPIRY_BYTES = 8
    MARK_BODY_BYTES = 64
    MARK_BYTES = RECORD_BYTES_MIN + MARK_BODY_BYTES

cdef enum RecordKind:
    MESSAGE = 1
    SKIP = 2                    # body: count u64; reserves sequence .. sequence + count - 1
    TOMBSTONES = 3              # body: an encoded SequenceSet; sequence: the last one so far
    MARK = 4                    # commit mark; sequence: the last one so far

cdef enum RecordFlag:
    HAS_EXPIRY = 1              # MESSAGE: the body begins with expiry_ns
    ERASED = 2                  # TOMBSTONES: overwrite their bytes; MESSAGE: it was overwritten
    VOID_PREVIOUS = 4           # MARK: the commit before is torn, so its removals do not count
    CLOSING = 8                 # MARK: written when everything before it was synced
    TOGETHER = 16               # MESSAGE: part of a batch, found as a whole or not at all

cdef struct RecordHeader:
    uint32_t length
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint64_t sequence
    int64_t time_ns
    uint32_t header_len

cdef struct RecordView:         # pointers into a record's bytes; valid as long as these bytes are
    uint64_t sequence
    int64_t time_ns
    int64_t expires_ns          # 0: does not expire
    const char* subject
    const char* headers
    const char* data
    uint32_t subject_len
    uint32_t headers_len
    uint32_t data_len
    uint32_t size               # of the whole record, in bytes
    uint8_t kind
    uint8_t flags

cdef struct Mark:
    uint32_t block_id
    uint64_t seed
    uint64_t commit_number
    uint64_t first_sequence
    uint64_t last_sequence
    uint32_t extent_start
    uint32_t extent_length
    uint64_t previous_chain
    uint64_t chain
    uint8_t flags

cdef struct BlockHeader:
    uint16_t version
    uint16_t flags
    uint32_t block_id
    uint64_t seed
    uint64_t first_sequence
    int64_t created_ns
    unsigned char salt[16]


cdef inline uint64_t read_u64(const unsigned char* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return natsd_little64(value)


cdef inline void write_u64(unsigned char* at, uint64_t value) noexcept nogil:
    value = natsd_little64(value)
    memcpy(at, &value, 8)


# The compiler turns each of these functions into a single load or store.
cdef inline uint32_t read_u32(const unsigned char* at) noexcept nogil:
    return at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24


cdef inline void write_u32(unsigned char* at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char> value
    at[1] = <unsigned char> (value >> 8)
    at[2] = <unsigned char> (value >> 16)
    at[3] = <unsigned char> (value >> 24)


cdef inline uint16_t read_u16(const unsigned char* at) noexcept nogil:
    return <uint16_t> (at[0] | at[1] << 8)


cdef inline size_t record_size(
    size_t subject_len, size_t headers_len, size_t data_len, bint has_expiry
) noexcept nogil:
    """Return the length of a record in bytes.

    It may exceed RECORD_BYTES_MAX; the caller must check that and refuse the record.
    """
    return (
        RECORD_BYTES_MIN + subject_len + headers_len + data_len
        + (EXPIRY_BYTES if has_expiry else 0)
    )


cdef inline uint32_t record_length_at(const unsigned char* at) noexcept nogil:
    """Return the length in bytes of the record at `at`, which must be a verified record."""
    return read_u32(at)


cdef inline uint64_t record_checksum(const unsigned char* at) noexcept nogil:
    """Return the checksum at the end of the record at `at`, which must be a verified record."""
    return read_u64(at + read_u32(at) - RECORD_CHECKSUM_BYTES)


cdef inline uint64_t mix_chain(uint64_t chain, uint64_t checksum) noexcept nogil:
    """Return `chain` extended by a record's checksum. The order of the records matters."""
    chain = (chain ^ checksum) * <uint64_t> 0x9E3779B185EBCA87
    return (chain << 31 | chain >> 33) + <uint64_t> 0x85EBCA77C2B2AE63


cdef inline bint parse_header(
    const unsigned char* at, size_t room, uint64_t seed, RecordHeader* out
) noexcept nogil:
    """Parse a record's header; return true if its checksum verifies and its lengths are consistent.

    `room` bytes are readable at `at`. The record itself may be longer than that: compare
    `out.length`.
    """
    if room < RECORD_HEADER_BYTES:
        return False
    out.length = read_u32(at)
    out.kind = at[4]
    out.flags = at[5]
    out.subject_len = read_u16(at + 6)
    out.header_len = read_u32(at + 24)
    # This check is cheap and comes first: while searching for a record, most candidates are none.
    if out.kind < MESSAGE or out.kind > MARK or out.length > RECORD_BYTES_MAX:
        return False
    if out.length < record_size(out.subject_len, out.header_len, 0, out.flags & HAS_EXPIRY):
        return False
    if read_u32(at + 28) != <uint32_t> xxh64(at, 28, seed):
        return False
    out.sequence = read_u64(at + 8)
    out.time_ns = <int64_t> read_u64(at + 16)
    return True


cdef inline bint body_is_whole(
    const unsigned char* at, const RecordHeader* header, uint64_t seed
) noexcept nogil:
    """Return whether the record's checksum verifies; all `header.length` bytes must be readable."""
    cdef size_t covered = header.length - RECORD_CHECKSUM_BYTES
    return read_u64(at + covered) == xxh64(at, covered, seed)


cdef inline void view_record(const unsigned char* at, RecordView* view) noexcept nogil:
    """Fill `view` with pointers into the record at `at`, which must be a verified record."""
    cdef const char* body = <const char*> at + RECORD_HEADER_BYTES
    view.size = read_u32(at)
    view.kind = at[4]
    view.flags = at[5]
    view.subject_len = read_u16(at + 6)
    view.sequence = read_u64(at + 8)
    view.time_ns = <int64_t> read_u64(at + 16)
    view.headers_len = read_u32(at + 24)
    view.expires_ns = 0
    if view.flags & HAS_EXPIRY:
        view.expires_ns = <int64_t> read_u64(at + RECORD_HEADER_BYTES)
        body += EXPIRY_BYTES
    view.subject = body
    view.headers = body + view.subject_len
    view.data = view.headers + view.headers_len
    view.data_len = <uint32_t> (
        <const char*> at + view.size - RECORD_CHECKSUM_BYTES - view.data
    )


cdef class StoredMessage:
    cdef readonly uint64_t sequence
    cdef readonly str subject
    cdef readonly bytes headers
    cdef readonly bytes data
    cdef readonly int64_t time_ns
    cdef readonly int64_t expires_ns


cdef StoredMessage message_of(const RecordView* view)
# Return a StoredMessage with copies of the subject, headers and payload.

# Write record_size(…) bytes; return the checksum that ends them.
cdef uint64_t encode_record(
    unsigned char* to, uint64_t seed, uint8_t kind, uint8_t flags, uint64_t sequence,
    int64_t time_ns, int64_t expires_ns, const char* subject, uint16_t subject_len,
    const char* headers, uint32_t headers_len, const char* data, uint32_t data_len,
) noexcept nogil

# Return the record that replaces an erased message: valid, and as long as the erased record if
# `noise` is RECORD_BYTES_MIN bytes shorter than that.
cdef bytes erased_record(uint64_t seed, uint64_t sequence, bytes noise)

# Write MARK_BYTES.
cdef void encode_mark(unsigned char* to, const Mark* mark) noexcept nogil
# Return whether a valid mark stands at `at`. Its block and its place are not checked.
cdef bint parse_mark(const unsigned char* at, size_t room, Mark* out) noexcept nogil

# Write BLOCK_HEADER_BYTES.
cdef void encode_block_header(unsigned char* to, const BlockHeader* header) noexcept nogil
# Return whether `at` begins with a valid block header.
cdef bint parse_block_header(
    const unsigned char* at, size_t room, BlockHeader* out
) noexcept nogil
