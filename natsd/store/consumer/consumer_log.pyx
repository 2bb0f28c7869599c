"""Encoder and decoder of the slots that consumer_log.pxd draws. No files, no clock: only bytes.

Promise of reading, whatever the bytes are
- Entries come back in order and as they were written, or not at all. Nothing behind the last mark
  that verifies counts: it is torn.
- If entries are lost in spite of the parity, those behind the gap are returned as `late`: they
  happened, but the state that they build upon is unknown. A last extent that is not whole, and that
  no later mark proves, is dropped: either nothing was told that it is durable, or it is damaged.
- Every slot that does not verify is reported with its offset, whether it cost something or not.

The layout and the rules are our own; see docs/store.md for durability.
"""

import struct

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from natsd.store.codec.records cimport mix_chain, read_u16, read_u32, read_u64, write_u32, write_u64
from natsd.store.codec.xxh64 cimport xxh64

from natsd.store.codec.records import checksum

cdef enum:
    LOG_CAPACITY_MIN = 64
    FIRST_SLOT = 2              # the first slot behind the header
    LOG_VERSION = 1


# Slots

cdef inline uint64_t slot_checksum(
    const unsigned char* at, uint64_t seed, uint64_t number
) noexcept nogil:
    return xxh64(at + 8, 24, seed ^ number * <uint64_t> 0x9E3779B97F4A7C15 ^ read_u32(at))


cdef void write_slot(
    unsigned char* at, uint8_t kind, uint8_t flags, uint16_t count,
    uint64_t a, uint64_t b, uint64_t c,
) noexcept nogil:
    """Write a slot, except for its check."""
    write_u32(at, kind | <uint32_t> flags << 8 | <uint32_t> count << 16)
    write_u32(at + 4, 0)
    write_u64(at + 8, a)
    write_u64(at + 16, b)
    write_u64(at + 24, c)


cdef void read_slot(const unsigned char* at, Slot* out) noexcept nogil:
    out.kind = at[0]
    out.flags = at[1]
    out.count = read_u16(at + 2)
    out.a = read_u64(at + 8)
    out.b = read_u64(at + 16)
    out.c = read_u64(at + 24)


cdef uint8_t kind_of(const unsigned char* at, uint64_t seed, uint64_t number) noexcept nogil:
    """Return the slot's kind if it verifies, else 0."""
    if at[0] < DELIVERED or at[0] > TERMINATED:
        return 0
    return at[0] if read_u32(at + 4) == <uint32_t> slot_checksum(at, seed, number) else 0


cdef inline bint is_entry(uint8_t kind) noexcept nogil:
    return kind != 0 and kind != MARK


cdef inline void add_parity(unsigned char* parity, const unsigned char* slot) noexcept nogil:
    cdef int at
    for at in range(0, SLOT_BYTES, 8):
        write_u64(parity + at, read_u64(parity + at) ^ read_u64(slot + at))


cdef inline Py_ssize_t parity_place(
    Py_ssize_t entry, Py_ssize_t count, Py_ssize_t lanes
) noexcept nogil:
    """Return the index of the parity slot, behind `count` entries, that covers the entry."""
    return (entry % lanes + lanes - count % lanes) % lanes


def encode_log_header(log_id: int, seed: int, total: int) -> bytes:
    """Return the first 64 bytes of a log file; `total` counts the entries before this log."""
    start = struct.pack("<8sHHIQQ24x", b"NATSDOBS", LOG_VERSION, 0, log_id, seed, total)
    return start + struct.pack("<Q", checksum(start, 0))


# Writing

cdef class EntryBuffer:

    def __dealloc__(self) -> None:
        free(self.slots)

    cdef int add(
        self, uint8_t kind, uint8_t flags, uint64_t count, uint64_t a, uint64_t b, uint64_t c
    ) except -1:
        """Add an entry. Raises MemoryError, with nothing changed."""
        cdef unsigned char* grown
        cdef Py_ssize_t capacity
        if self.count == self.capacity:
            capacity = max(<Py_ssize_t> LOG_CAPACITY_MIN, self.capacity * 2)
            grown = <unsigned char*> realloc(self.slots, capacity * SLOT_BYTES)
            if grown == NULL:
                raise MemoryError
            self.slots = grown
            self.capacity = capacity
        count = min(count, <uint64_t> DELIVERY_COUNT_MAX)
        write_slot(
            self.slots + self.count * SLOT_BYTES, kind, flags, <uint16_t> count, a, b, c
        )
        self.count += 1
        return 0

    cpdef void clear(self) noexcept:
        """Drop all entries, and free a buffer that has grown large."""
        self.count = 0
        if self.capacity > 1024 * LOG_CAPACITY_MIN:
            free(self.slots)
            self.slots = NULL
            self.capacity = 0

    cpdef bytes seal(self, uint64_t seed, uint64_t first_slot, uint64_t total, bint closing):
        """Return the entries as an extent for that place in the file, and empty the buffer.

        `first_slot`: place in the file, in slots. `total`: number of all entries ever, these
        included. Without entries the extent has only the two marks.
        """
        cdef Py_ssize_t parity_count = min(self.count, <Py_ssize_t> PARITY_SLOTS_MAX)
        cdef Py_ssize_t size = (self.count + parity_count + 2) * SLOT_BYTES
        cdef bytes extent = PyBytes_FromStringAndSize(NULL, size)
        cdef unsigned char* to = <unsigned char*> PyBytes_AS_STRING(extent)
        cdef unsigned char* parity = to + self.count * SLOT_BYTES
        cdef unsigned char* slot
        cdef Py_ssize_t at
        cdef uint64_t check, digest = 0
        cdef uint8_t flags = CLOSING if closing else 0
        if self.count:
            memcpy(to, self.slots, self.count * SLOT_BYTES)
        memset(parity, 0, parity_count * SLOT_BYTES)
        for at in range(self.count):
            slot = to + at * SLOT_BYTES
            check = slot_checksum(slot, seed, first_slot + at)
            write_u32(slot + 4, <uint32_t> check)
            digest = mix_chain(digest, check)
            add_parity(parity + parity_place(at, self.count, parity_count) * SLOT_BYTES, slot)
        for at in range(2):
            slot = parity + (parity_count + at) * SLOT_BYTES
            write_slot(
                slot, MARK, flags | (SECOND if at else 0), 0, total, digest,
                <uint64_t> self.count | <uint64_t> parity_count << 32,
            )
            check = slot_checksum(slot, seed, first_slot + self.count + parity_count + at)
            write_u32(slot + 4, <uint32_t> check)
        self.clear()
        return extent


# Reading

cdef class LogScan:
    """The content of a log file.

    `entries` and `late` are the bytes of slots; `total` counts all entries up to the last mark,
    lost ones included; `end` is the offset for the next extent. `damage` lists (offset, length,
    description, whether nothing was lost). `torn`: bytes behind `end` are not zero. `closed`: the
    last extent was written by a clean close.
    """
    cdef readonly bytearray entries
    cdef readonly bytearray late
    cdef readonly list damage
    cdef readonly uint64_t total
    cdef readonly Py_ssize_t end
    cdef readonly bint torn
    cdef readonly bint closed
    cdef bytearray data             # a copy, into which entries computed from the parity are put
    cdef unsigned char* base
    cdef uint8_t* kinds             # kind of each slot; 0: it does not verify
    cdef Py_ssize_t slot_count
    cdef Py_ssize_t last_mark
    cdef uint64_t seed
    cdef bint lost

    def __cinit__(self, data: bytes, uint64_t seed, uint64_t total) -> None:
        self.entries = bytearray()
        self.late = bytearray()
        self.damage = []
        self.total = total
        self.seed = seed
        self.data = bytearray(data) + bytes(2 * SLOT_BYTES)     # a second mark may be cut off
        self.base = <unsigned char*> PyByteArray_AS_STRING(self.data)
        self.slot_count = len(self.data) // SLOT_BYTES
        self.last_mark = -1
        self.end = LOG_HEADER_BYTES
        self.kinds = <uint8_t*> malloc(self.slot_count + 1)
        if self.kinds == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self.kinds)

    cdef unsigned char* slot(self, Py_ssize_t number) noexcept:
        return self.base + number * SLOT_BYTES

    cdef void verify_all(self) noexcept:
        cdef Py_ssize_t number
        for number in range(FIRST_SLOT, self.slot_count):
            self.kinds[number] = kind_of(self.slot(number), self.seed, number)
            if self.kinds[number] == MARK:
                self.last_mark = number

    cdef int report(self, Py_ssize_t number, Py_ssize_t count, str what, bint harmless) except -1:
        self.damage.append((number * SLOT_BYTES, count * SLOT_BYTES, what, harmless))
        return 0

    cdef int run(self) except -1:
        """Read extent after extent; a mark tells where its extent begins."""
        cdef Py_ssize_t number, start, marks, end = FIRST_SLOT
        cdef Slot mark
        self.verify_all()
        number = FIRST_SLOT
        while number < self.slot_count:
            if self.kinds[number] != MARK:
                number += 1
                continue
            read_slot(self.slot(number), &mark)
            marks = number - 1 if mark.flags & SECOND else number
            start = marks - <Py_ssize_t> (mark.c >> 32) - <Py_ssize_t> (mark.c & 0xffffffff)
            if start < end or marks + 1 >= self.slot_count:
                self.kinds[number] = 0      # a mark that was written here would fit
                number += 1
                continue
            if start > end:
                self.take_unmarked(end, start, mark.a - (mark.c & 0xffffffff))
            if not self.take_extent(start, marks, &mark):
                end = start
                break
            number = end = marks + 2
            self.closed = mark.flags & CLOSING
        self.end = end * SLOT_BYTES
        self.torn = bool(self.data[self.end:].strip(b"\0"))
        return 0

    cdef int take_unmarked(self, Py_ssize_t start, Py_ssize_t end, uint64_t total) except -1:
        """Take the entries of extents that lost both marks: each entry still verifies by itself.

        The next mark's total tells whether entries are missing.
        """
        cdef Py_ssize_t number, found = 0, first_bad = end
        for number in range(start, end):
            if is_entry(self.kinds[number]):
                found += 1
            elif first_bad == end:
                first_bad = number
        lost = <uint64_t> found != total - self.total
        self.report(start, end - start, "marks do not verify", not lost)
        for number in range(start, end):
            if lost and number == first_bad:
                self.lost = True
            if is_entry(self.kinds[number]):
                self.keep(number)
        self.lost = self.lost or lost
        self.total = total
        return 0

    cdef bint take_extent(self, Py_ssize_t start, Py_ssize_t marks, const Slot* mark) except -1:
        """Keep the entries of an extent; return false if it is the last and not whole."""
        cdef Py_ssize_t count = mark.c & 0xffffffff, lanes = mark.c >> 32
        cdef Py_ssize_t lane, number
        cdef bint verified = True, whole
        for lane in range(lanes):
            if not self.check_lane(start, count, lanes, lane):
                verified = False
        whole = verified and self.digest(start, count) == mark.b
        for number in range(marks, marks + 2):
            if self.kinds[number] != MARK:
                self.report(number, 1, "mark does not verify", True)
        if not whole and self.last_mark <= marks + 1:
            self.report(start, marks + 2 - start, "last extent torn or damaged", False)
            return False
        if mark.a - count != self.total or (verified and not whole):
            self.report(start, count, "entries are not those that were written", False)
            self.lost = True
        for number in range(start, start + count):
            if is_entry(self.kinds[number]):
                self.keep(number)
            else:
                self.lost = True
        self.total = mark.a
        return True

    cdef int keep(self, Py_ssize_t number) except -1:
        cdef bytearray to = self.late if self.lost else self.entries
        to += self.base[number * SLOT_BYTES:(number + 1) * SLOT_BYTES]
        return 0

    cdef uint64_t digest(self, Py_ssize_t start, Py_ssize_t count) noexcept:
        cdef uint64_t digest = 0
        cdef Py_ssize_t number
        for number in range(start, start + count):
            digest = mix_chain(digest, slot_checksum(self.slot(number), self.seed, number))
        return digest

    cdef bint check_lane(
        self, Py_ssize_t start, Py_ssize_t count, Py_ssize_t lanes, Py_ssize_t lane
    ) except -1:
        """Return whether all entries of a lane verify, after one was computed from the parity."""
        cdef unsigned char parity[SLOT_BYTES]
        cdef Py_ssize_t place = start + count + parity_place(lane, count, lanes)
        cdef unsigned char* stored = self.slot(place)
        cdef Py_ssize_t number, bad = -1, bad_count = 0
        memset(parity, 0, SLOT_BYTES)
        for number in range(start + lane, start + count, lanes):
            if is_entry(self.kinds[number]):
                add_parity(parity, self.slot(number))
            else:
                bad = number
                bad_count += 1
        if bad_count == 0:
            if memcmp(parity, stored, SLOT_BYTES) != 0:
                self.report(place, 1, "parity does not fit", True)
            return True
        add_parity(parity, stored)
        self.kinds[bad] = kind_of(parity, self.seed, bad) if bad_count == 1 else 0
        if not is_entry(self.kinds[bad]):
            self.report_lane(start + lane, start + count, lanes)
            return False
        memcpy(self.slot(bad), parity, SLOT_BYTES)
        self.report(bad, 1, "entry does not verify; its parity gave it back", True)
        return True

    cdef int report_lane(self, Py_ssize_t number, Py_ssize_t end, Py_ssize_t lanes) except -1:
        for number in range(number, end, lanes):
            if not is_entry(self.kinds[number]):
                self.report(number, 1, "entry does not verify", False)
        return 0


def scan_log(data: bytes, seed: int, total: int) -> LogScan:
    """Read the bytes of a log file, header included; `total` entries came before the file."""
    cdef LogScan scan = LogScan(data, seed, total)
    scan.run()
    return scan
