"""Messages as nats-server's records: the bytes of one of its blocks, plain and uncompressed."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize

from natsd.store.block.blocks cimport FOUND, MsgBlock
from natsd.store.codec.records cimport RecordView, write_u32, write_u64

cdef enum:
    SUBJECT_MAX = 65_535        # bytes of a subject: its length has two bytes


def encode_block(MsgBlock block not None, bytes key not None) -> tuple[bytes, list[int]]:
    """Return the records of all messages of a block, and the sequences that have none there.

    Those are messages with a subject that nats-server's records cannot hold. `key` is that of the
    block's checksums, 32 bytes. Raises DamagedEncoding if a message does not verify.
    """
    cdef natsd_highway keyed
    cdef RecordView view
    cdef bytearray records = bytearray()
    cdef Py_ssize_t at = 0, length
    cdef uint64_t sequence = block.next_live(0)
    left_out = []
    if len(key) != HASH_KEY_BYTES:
        raise ValueError("the key has not 32 bytes")
    natsd_highway_begin(&keyed, <const unsigned char*> PyBytes_AS_STRING(key))
    while sequence:
        if block.view(sequence, &view) != FOUND:
            raise DamagedEncoding("a message does not verify")
        if view.subject_len > SUBJECT_MAX:
            left_out.append(sequence)
        else:
            length = RECORD_MIN + view.subject_len + view.headers_len + view.data_len
            length += 4 if view.headers_len else 0
            if at + length > len(records):
                PyByteArray_Resize(records, max(at + length, 2 * len(records)))
            put_record(<unsigned char*> PyByteArray_AS_STRING(records) + at, length, &view, &keyed)
            at += length
        sequence = block.next_live(sequence + 1)
    return bytes(memoryview(records)[:at]), left_out


def encode_tombstone(uint64_t sequence, int64_t time_ns, bytes key not None) -> bytes:
    """Return the record that says that the message of this sequence and time is removed."""
    head = (sequence | TOMBSTONE).to_bytes(8, "little") + time_ns.to_bytes(8, "little", signed=True)
    size = RECORD_MIN
    return size.to_bytes(4, "little") + head + bytes(2) + highway_hash(key, head)


cdef void put_record(
    unsigned char* to, Py_ssize_t length, const RecordView* view, const natsd_highway* keyed
) noexcept nogil:
    cdef natsd_highway hash
    cdef unsigned char* at = to + HEADER_BYTES
    write_u32(to, <uint32_t> length | (HAS_HEADERS if view.headers_len else 0))
    write_u64(to + 4, view.sequence)
    write_u64(to + 12, <uint64_t> view.time_ns)
    to[20] = view.subject_len & 0xff
    to[21] = view.subject_len >> 8
    memcpy(at, view.subject, view.subject_len)
    at += view.subject_len
    if view.headers_len:
        write_u32(at, view.headers_len)
        memcpy(at + 4, view.headers, view.headers_len)
        at += 4 + view.headers_len
    memcpy(at, view.data, view.data_len)
    memcpy(&hash, keyed, sizeof(natsd_highway))
    natsd_highway_add(&hash, to + 4, 16)
    natsd_highway_add(&hash, to + HEADER_BYTES, view.subject_len)
    if view.headers_len:
        natsd_highway_add(&hash, at - view.headers_len, view.headers_len)
    natsd_highway_add(&hash, at, view.data_len)
    write_u64(to + length - HASH_BYTES, natsd_highway_end(&hash))
