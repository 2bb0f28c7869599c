"""S2 and snappy frames, unpacked: compressed blocks, and the archive of a snapshot.

    stream   ff 06 00 00 "S2sTwO" or "sNaPpY", then frames
    frame    00 length u24 │ CRC-32C, masked, u32 │ length of the content, varint │ S2 block
             01 length u24 │ CRC-32C, masked, u32 │ content, uncompressed
             80 … ff length u24 │ bytes to skip

Source: snappy's framing format, revision 2015-04-13; klauspost/compress, s2/README.md.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef extern from "natsd/store/backup/crc32c.h" nogil:
    ctypedef struct natsd_crc_tables:
        pass
    void natsd_crc_prepare(natsd_crc_tables* tables)
    uint32_t natsd_crc32c(const natsd_crc_tables* tables, const unsigned char* data, size_t n)

cdef extern from "natsd/store/nats_server/s2.h" nogil:
    bint natsd_s2_decode(const unsigned char* data, size_t n, unsigned char* to, size_t size)

cdef enum:
    IDENTIFIER_BYTES = 10
    FRAME_HEADER = 4
    CRC_BYTES = 4
    CONTENT_MAX = 4 << 20       # bytes of one frame's content
    CONTENTS_MAX = 256 << 20    # and of all frames; no block of nats-server is as long

cdef natsd_crc_tables TABLES
natsd_crc_prepare(&TABLES)


cdef inline int read_varint(
    const unsigned char* data, Py_ssize_t length, Py_ssize_t* at, uint64_t* value
) noexcept nogil:
    """Read a varint at `at`, and move behind it; return 0 if there is none."""
    cdef uint32_t shift = 0
    value[0] = 0
    while at[0] < length and shift < 64:
        value[0] |= <uint64_t> (data[at[0]] & 0x7f) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            return 1
        shift += 7
    return 0


cdef inline uint32_t u24(const unsigned char* data) noexcept nogil:
    return data[1] | <uint32_t> data[2] << 8 | <uint32_t> data[3] << 16


cdef bint is_identifier(const unsigned char* data) noexcept nogil:
    return (
        memcmp(data, b"\xff\x06\x00\x00S2sTwO", IDENTIFIER_BYTES) == 0
        or memcmp(data, b"\xff\x06\x00\x00sNaPpY", IDENTIFIER_BYTES) == 0
    )


def unpack_frames(bytes data not None) -> tuple[bytes, int]:
    """Return the content of frames, and how many frames are damaged.

    The content of a damaged frame is zeros, of the length that the frame tells. What follows a
    damaged frame's header is left out, and counts as one damaged frame; so does what exceeds
    256 MiB. Works without the GIL.
    """
    cdef const unsigned char* start = <const unsigned char*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
    cdef int64_t size, damaged
    cdef unsigned char* to
    with nogil:
        size = content_size(start, length)
    content = PyBytes_FromStringAndSize(NULL, size)
    to = <unsigned char*> PyBytes_AS_STRING(content)
    with nogil:
        damaged = unpack(start, length, to, size)
    return content, damaged


cdef int64_t frame_size(const unsigned char* frame, Py_ssize_t length) noexcept nogil:
    """Return the length of a frame's content; -1: it has none that could be told."""
    cdef Py_ssize_t at = FRAME_HEADER + CRC_BYTES
    cdef uint64_t size
    if frame[0] >= 0x80:
        return 0
    if frame[0] > 1 or length < at:
        return -1
    if frame[0] == 1:
        return -1 if length - at > CONTENT_MAX else length - at
    if not read_varint(frame, length, &at, &size) or size > CONTENT_MAX:
        return -1
    return <int64_t> size


cdef int64_t content_size(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, n
    cdef int64_t total = 0, size
    while at + FRAME_HEADER <= length:
        n = FRAME_HEADER + u24(data + at)
        if at + n > length:
            break
        size = frame_size(data + at, n)
        if size < 0 or total + size > CONTENTS_MAX:
            break
        total += size
        at += n
    return total


cdef int64_t unpack(
    const unsigned char* data, Py_ssize_t length, unsigned char* to, int64_t room
) noexcept nogil:
    """Unpack the frames whose contents fit in `room` bytes; return how many are damaged."""
    cdef Py_ssize_t at = 0, n
    cdef int64_t damaged = 0, size
    while at < length:
        n = FRAME_HEADER + u24(data + at) if at + FRAME_HEADER <= length else length
        if at + n > length:
            return damaged + 1
        size = frame_size(data + at, n)
        if size < 0 or size > room:
            return damaged + 1
        if data[at] < 0x80 and not unpack_frame(data + at, n, to, size):
            memset(to, 0, size)
            damaged += 1
        elif data[at] == 0xff and (n != IDENTIFIER_BYTES or not is_identifier(data + at)):
            damaged += 1
        to += size
        room -= size
        at += n
    return damaged


cdef bint unpack_frame(
    const unsigned char* frame, Py_ssize_t length, unsigned char* to, int64_t size
) noexcept nogil:
    cdef Py_ssize_t at = FRAME_HEADER + CRC_BYTES
    cdef uint64_t told
    cdef uint32_t crc
    if frame[0] == 1:
        memcpy(to, frame + at, size)
    else:
        read_varint(frame, length, &at, &told)
        if not natsd_s2_decode(frame + at, length - at, to, size):
            return False
    crc = natsd_crc32c(&TABLES, to, size)
    crc = ((crc >> 15) | (crc << 17)) + <uint32_t> 0xA282EAD8
    return memcmp(frame + FRAME_HEADER, &crc, CRC_BYTES) == 0
