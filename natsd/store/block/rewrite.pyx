"""The rewriting of a block's file with a part of its messages: for compaction and truncation.

    old  │header│ 1 2† 3 MARKS │ 4† 5 † of 1 and 2 MARKS │ 6 MARKS │      seed a
    new  │header│ 3 5 6 │ tombstones still needed │ MARKS │              seed b

Erased messages are dropped by it too.

Promise
- Bytes in, bytes out: the caller handles the files. Records are copied without the GIL, so a thread
  should call it; the arguments may not change meanwhile.
- Only records that verified when they were scanned are copied, byte for byte except for the
  checksums: the seed is new, so that remains of the old file can never pass for the new one.
- Damaged parts are not copied; report them before.
- The new file is one commit, with a closing mark: sync it before it replaces the old file.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from natsd.store.codec.records cimport (
    BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockHeader, CLOSING, ERASED, MARK_BYTES, Mark,
    RECORD_CHECKSUM_BYTES, TOMBSTONES, encode_block_header, encode_mark, encode_record, mix_chain,
    record_length_at, record_size, write_u32, write_u64, xxh64,
)
from natsd.store.sequence_set cimport SequenceSet

from natsd.store.errors import BlockFull

cdef struct Choice:             # selection of the messages for the new file
    uint64_t last_sequence
    uint32_t place              # next place in the scan's index


cdef const unsigned char* next_kept(Scan scan, SequenceSet dead, Choice* choice) noexcept nogil:
    """Return the next record to copy; NULL: there are no more."""
    cdef uint32_t offset
    cdef uint64_t sequence
    while choice.place < scan.index.count:
        offset = scan.index.offsets[choice.place]
        sequence = index_sequence(&scan.index, choice.place)
        choice.place += 1
        if offset - 1 < OFFSET_MASK and sequence <= choice.last_sequence and not (
            dead.has(sequence)
        ):
            return scan.bytes_at + offset
    return NULL


cdef uint64_t kept_bytes(Scan scan, SequenceSet dead, Choice choice) noexcept nogil:
    """Return the number of bytes of all records to copy."""
    cdef uint64_t total = 0
    cdef const unsigned char* record = next_kept(scan, dead, &choice)
    while record != NULL:
        total += record_length_at(record)
        record = next_kept(scan, dead, &choice)
    return total


cdef uint64_t copy_record(
    unsigned char* to, const unsigned char* record, uint64_t seed
) noexcept nogil:
    """Copy a record with the checksums of another seed; return its checksum."""
    cdef uint32_t length = record_length_at(record)
    cdef uint64_t checksum
    memcpy(to, record, length)
    write_u32(to + 28, <uint32_t> xxh64(to, 28, seed))
    checksum = xxh64(to, length - RECORD_CHECKSUM_BYTES, seed)
    write_u64(to + length - RECORD_CHECKSUM_BYTES, checksum)
    return checksum


cdef unsigned char* copy_kept(
    unsigned char* to, Scan scan, SequenceSet dead, Choice choice, Mark* mark
) noexcept nogil:
    """Copy all chosen records and extend the mark's chain by them; return the place behind them."""
    cdef const unsigned char* record = next_kept(scan, dead, &choice)
    while record != NULL:
        mark.chain = mix_chain(mark.chain, copy_record(to, record, mark.seed))
        to += record_length_at(record)
        record = next_kept(scan, dead, &choice)
    return to


cdef unsigned char* put_tombstones(
    unsigned char* to, bytes encoded, bint erased, Mark* mark
) except NULL:
    """Write one record of removals and extend the mark's chain; return the place behind it."""
    cdef uint32_t length = <uint32_t> PyBytes_GET_SIZE(encoded)
    cdef uint64_t checksum = encode_record(
        to, mark.seed, TOMBSTONES, ERASED if erased else 0, mark.last_sequence, 0, 0, "", 0, "", 0,
        PyBytes_AS_STRING(encoded), length,
    )
    mark.chain = mix_chain(mark.chain, checksum)
    return to + record_size(0, 0, length, False)


def rewrite(
    Scan scan not None, SequenceSet dead not None, *, uint64_t seed, uint64_t commit_number,
    uint64_t first_sequence, uint64_t last_sequence, tombstones=(), int64_t created_ns=0,
    uint16_t flags=0,
) -> bytes:
    """Return the bytes of a block file with the messages that `scan` found, and tombstones.

    Messages in `dead` or above `last_sequence` are left out. `tombstones` are pairs of (erased,
    encoded sequences). `seed` is random, 64 bits; `first_sequence` is written into the mark: all
    lower sequences are removed. Raises BlockFull if the new block would be too large.
    """
    cdef Mark mark
    cdef BlockHeader header
    cdef Choice choice = Choice(last_sequence=last_sequence, place=0)
    cdef uint64_t size
    cdef bytes written
    cdef unsigned char* to
    with nogil:
        size = BLOCK_HEADER_BYTES + 2 * MARK_BYTES + kept_bytes(scan, dead, choice)
    size += sum(record_size(0, 0, len(encoded), False) for _, encoded in tombstones)
    if size > LOGICAL_BYTES_MAX:
        raise BlockFull(f"{size} bytes in one block")
    memset(&mark, 0, sizeof(mark))
    mark.block_id = header.block_id = scan.header.block_id
    mark.seed = header.seed = seed
    mark.commit_number = commit_number
    mark.first_sequence = first_sequence
    mark.last_sequence = last_sequence
    mark.extent_start = BLOCK_HEADER_BYTES
    mark.flags = CLOSING
    header.version = BLOCK_VERSION
    header.flags = flags
    header.first_sequence = scan.header.first_sequence or scan.index.base or 1
    header.created_ns = created_ns
    memset(header.salt, 0, 16)
    if scan.header_is_whole:
        memcpy(header.salt, scan.header.salt, 16)
    written = PyBytes_FromStringAndSize(NULL, size)
    to = <unsigned char*> PyBytes_AS_STRING(written)
    encode_block_header(to, &header)
    with nogil:
        to = copy_kept(to + BLOCK_HEADER_BYTES, scan, dead, choice, &mark)
    for erased, encoded in tombstones:
        to = put_tombstones(to, encoded, erased, &mark)
    mark.extent_length = <uint32_t> (size - BLOCK_HEADER_BYTES - 2 * MARK_BYTES)
    encode_mark(to, &mark)
    encode_mark(to + MARK_BYTES, &mark)
    assert to + 2 * MARK_BYTES == <unsigned char*> PyBytes_AS_STRING(written) + size
    return written
