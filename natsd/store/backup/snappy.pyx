"""Compression of bytes into snappy's frames, without the GIL: most of the work of a snapshot.

It is compiled here because the `cramjam` package, which decompresses the frames, exports no C API:
its compression would return to Python, and wait for the GIL, after every 64 KiB. This one
compresses about as well and as fast.

    frame       00 length u24 │ CRC-32C, masked, u32 │ up to 64 KiB, compressed
                01 length u24 │ CRC-32C, masked, u32 │ up to 64 KiB, uncompressed
    compressed  length, varint │ elements
    element     (n - 1) << 2                               n bytes follow, up to 60
                60 << 2 │ n - 1, u8                        n bytes follow, up to 256
                61 << 2 │ n - 1, u16                       n bytes follow, up to 64 KiB
                1 | (n - 4) << 2 | (back >> 8) << 5 │ back & 255      n from 4 to 11, back < 2048
                2 | (n - 1) << 2 │ back u16                           n from 1 to 64
                copy n bytes that stand `back` bytes before; source and copy may overlap

Algorithm: a table has the last position of each hash of six bytes. If the bytes at that position
match, the longest match is copied from there. The distance of the last copy is tried as well: it
often matches where records have equal lengths. Each step looks at two positions: where nothing is
found the processor need not predict each of them right. The longer nothing matches, the more bytes
are skipped.

Promise
- Data that would not become an eighth shorter is stored uncompressed.
- Nothing is written outside of the reserved memory, whatever the bytes are.

Source: snappy's framing format, revision 2015-04-13, and its format description, 2011-10-05.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from natsd.store.codec.records cimport read_u32, read_u64, write_u32, write_u64

cdef extern from "natsd/store/backup/crc32c.h" nogil:
    ctypedef struct natsd_crc_tables:
        pass
    void natsd_crc_prepare(natsd_crc_tables* tables)
    uint32_t natsd_crc32c(const natsd_crc_tables* tables, const unsigned char* data, size_t n)
    uint32_t natsd_crc_by_tables(
        const natsd_crc_tables* tables, uint32_t crc, const unsigned char* data, size_t n
    )
    int ctz64 "__builtin_ctzll"(uint64_t value)

cdef enum:
    FRAME = 64 << 10
    HEADER = 8                  # bytes of a frame's header, with its checksum
    NUMBER = 12                 # bytes of a skippable frame with the next frame's number
    BOUND = NUMBER + HEADER + 32 + FRAME + (FRAME >> 2)   # reserved for a frame while it is made
    HASH_BITS = 14
    TAIL = 18                   # the last bytes are not searched, because reads go in words
    SHIFT = 5                   # after each 32 bytes without a match, one more byte is skipped

cdef natsd_crc_tables TABLES
natsd_crc_prepare(&TABLES)

cdef inline uint32_t hash_of(uint64_t word) noexcept nogil:
    """Return the hash of the first six bytes; the factor is a prime."""
    return <uint32_t> (((word << 16) * <uint64_t> 227718039650203) >> (64 - HASH_BITS))


cdef inline unsigned char* put_literal(
    unsigned char* to, const unsigned char* data, uint32_t n
) noexcept nogil:
    """Write `n` >= 1 bytes as a literal; return the place behind it."""
    if n <= 60:
        to[0] = <unsigned char> ((n - 1) << 2)
        to += 1
    elif n <= 256:
        to[0] = 60 << 2
        to[1] = <unsigned char> (n - 1)
        to += 2
    else:
        to[0] = 61 << 2
        to[1] = <unsigned char> (n - 1)
        to[2] = <unsigned char> ((n - 1) >> 8)
        to += 3
    memcpy(to, data, n)
    return to + n


cdef inline unsigned char* put_short_literal(
    unsigned char* to, const unsigned char* data, uint32_t n
) noexcept nogil:
    """Write up to 16 bytes as a literal; return the place behind it.

    16 bytes must be readable at `data` and writable behind the tag, whatever `n` is.
    """
    to[0] = <unsigned char> ((n - 1) << 2)
    memcpy(to + 1, data, 16)
    return to + 1 + n


cdef inline unsigned char* put_copy_element(
    unsigned char* to, uint32_t back, uint32_t n
) noexcept nogil:
    """Write a copy element with a distance of two bytes; return the place behind it."""
    write_u32(to, 2 | (n - 1) << 2 | back << 8)
    return to + 3


cdef inline unsigned char* put_copy(unsigned char* to, uint32_t back, uint32_t n) noexcept nogil:
    """Write a copy of `n` >= 4 bytes; return the place behind it.

    Writes one byte more than the copy takes.
    """
    while n >= 68:
        to = put_copy_element(to, back, 64)
        n -= 64
    if n > 64:                  # leaves at least 4 bytes for the last element
        to = put_copy_element(to, back, 60)
        n -= 60
    if n < 12 and back < 2048:
        to[0] = <unsigned char> (1 | (n - 4) << 2 | (back >> 8) << 5)
        to[1] = <unsigned char> back
        return to + 2
    return put_copy_element(to, back, n)


cdef inline uint32_t matching(
    const unsigned char* data, uint32_t earlier, uint32_t at, uint32_t end
) noexcept nogil:
    """Return the first position after `at` whose byte differs from that at the earlier position."""
    cdef uint64_t differing
    while at + 8 <= end:
        differing = read_u64(data + earlier) ^ read_u64(data + at)
        if differing:
            return at + (ctz64(differing) >> 3)
        at += 8
        earlier += 8
    while at < end and data[earlier] == data[at]:
        at += 1
        earlier += 1
    return at


cdef unsigned char* compress(
    const unsigned char* data, uint32_t n, unsigned char* to, uint16_t* places
) noexcept nogil:
    """Write the elements of up to 64 KiB; return the place behind them.

    `places` is room for the table of hashes.
    """
    cdef uint32_t at = 1
    cdef uint32_t done = 0      # so many bytes are written as elements
    cdef uint32_t back = 1
    cdef uint32_t search_end = n - TAIL if n > TAIL else 0
    cdef uint32_t earlier, next_earlier, slot, next_slot
    cdef uint64_t word
    memset(places, 0, sizeof(uint16_t) << HASH_BITS)
    while at < search_end:
        word = read_u64(data + at)
        slot, next_slot = hash_of(word), hash_of(word >> 8)
        earlier, next_earlier = places[slot], places[next_slot]
        places[slot] = <uint16_t> at
        places[next_slot] = <uint16_t> (at + 1)
        if <uint32_t> (word >> 8) == read_u32(data + at + 1 - back):
            at += 1
            earlier = at - back
        elif <uint32_t> word != read_u32(data + earlier):
            if <uint32_t> (word >> 8) != read_u32(data + next_earlier):
                at += 2 + ((at - done) >> SHIFT)
                continue
            at += 1
            earlier = next_earlier
        back = at - earlier
        while at > done and earlier > 0 and data[at - 1] == data[earlier - 1]:
            at -= 1
            earlier -= 1
        if at > done:
            if at - done <= 16:
                to = put_short_literal(to, data + done, at - done)
            else:
                to = put_literal(to, data + done, at - done)
        while True:             # adjacent copies
            done = matching(data, at - back + 4, at + 4, n)
            to = put_copy(to, back, done - at)
            at = done
            if at >= search_end:
                break
            places[hash_of(read_u64(data + at - 2))] = <uint16_t> (at - 2)
            word = read_u64(data + at)
            slot = hash_of(word)
            earlier = places[slot]
            places[slot] = <uint16_t> at
            if <uint32_t> word != read_u32(data + earlier):
                at += 1
                break
            back = at - earlier
    if done < n:
        to = put_literal(to, data + done, n - done)
    return to


cdef inline unsigned char* put_length(unsigned char* to, uint32_t n) noexcept nogil:
    while n >= 128:
        to[0] = <unsigned char> (n | 128)
        to += 1
        n >>= 7
    to[0] = <unsigned char> n
    return to + 1


cdef unsigned char* put_frame(
    const unsigned char* data, uint32_t n, unsigned char* to, uint16_t* places
) noexcept nogil:
    cdef unsigned char* body = to + HEADER
    cdef unsigned char* end = compress(data, n, put_length(body, n), places)
    cdef uint32_t crc = natsd_crc32c(&TABLES, data, n)
    cdef uint32_t kind = 0
    if end - body > n - (n >> 3):
        memcpy(body, data, n)
        end = body + n
        kind = 1
    write_u32(to, kind | <uint32_t> (end - to - 4) << 8)
    write_u32(to + 4, ((crc >> 15) | (crc << 17)) + <uint32_t> 0xA282EAD8)
    return end


cdef unsigned char* put_frames(
    const unsigned char* data, size_t n, unsigned char* to, uint64_t number
) noexcept nogil:
    cdef uint16_t[1 << HASH_BITS] places
    cdef size_t at = 0
    cdef uint32_t size
    while at < n:
        write_u32(to, 0x000008FE)
        write_u64(to + 4, number)
        size = <uint32_t> min(<size_t> FRAME, n - at)
        to = put_frame(data + at, size, to + NUMBER, places)
        at += size
        number += 1
    return to


cdef class FrameRoom:
    """A buffer in which frames are made; its memory is reused."""

    cdef unsigned char* start
    cdef size_t size

    def __dealloc__(self):
        free(self.start)

    def pack(self, uint64_t number, pieces, packed) -> bytes:
        """Return frames of each piece's bytes, numbered from `number` on.

        A skippable frame with the number stands before each frame. The frames are copied with
        `packed.copy`, which is a ReusedBytes. The GIL is released while a piece is compressed.
        """
        cdef const unsigned char[::1] piece
        cdef const unsigned char* data
        cdef size_t n
        cdef unsigned char* to
        self.need(sum([frames_of(len(piece)) for piece in pieces]) * <size_t> BOUND)
        to = self.start
        for piece in pieces:
            n = piece.shape[0]
            if n:
                data = &piece[0]
                with nogil:
                    to = put_frames(data, n, to, number)
                number += frames_of(n)
        if to == self.start:
            return b""
        return packed.copy(<unsigned char[:to - self.start]> self.start)

    cdef int need(self, size_t size) except -1:
        """Ensure `size` bytes of memory; their content is lost. Raises MemoryError."""
        if size > self.size:
            free(self.start)
            self.size = 0
            self.start = <unsigned char*> malloc(size)
            if self.start == NULL:
                raise MemoryError
            self.size = size
        return 0


cdef inline size_t frames_of(size_t n) noexcept nogil:
    return (n + FRAME - 1) >> 16


# For Python: tests.

def crc32c(bytes data not None, *, bint by_tables=False) -> int:
    """Return the CRC-32C of `data`, as frames use it.

    With `by_tables`, computes it as on processors without CRC instructions.
    """
    cdef const unsigned char* at = data
    if by_tables:
        return ~natsd_crc_by_tables(&TABLES, 0xffffffff, at, len(data)) & 0xffffffff
    return natsd_crc32c(&TABLES, at, len(data))
