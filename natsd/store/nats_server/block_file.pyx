"""One message block of nats-server, decrypted and uncompressed: verified, then copied into a log.

    record   0 length u32, bit 31: has headers · 4 sequence u64, bits 63: erased, 62: tombstone
             12 time i64, ns · 20 length of the subject u16 · 22 subject
             [length of the headers u32 · headers] · data · HighwayHash-64 u64

The checksum covers sequence, time, subject, headers and data, but none of the three lengths.

Promise
- Only records whose checksum verifies count, and only if their sequence is above all before. Where
  none verifies, the search goes on behind the record, or else at each further byte; every damage is
  noted with its offset and with the sequences around it.
- A wrong length of headers shows, since headers end with an empty line. A wrong length of a subject
  without headers shows only if the index tells which subjects there are (`IndexFile`).
- Whatever the bytes are, this takes time in proportion to their number.

Source: nats-server's `writeMsgRecordLocked`, `rebuildStateFromBufLocked`.
"""

from libc.stdlib cimport free, realloc

from natsd.store.block.sendable cimport is_sendable, sendable_headers
from natsd.store.codec.records cimport read_u32, read_u64
from natsd.store.log.message_log cimport MessageLog
from natsd.store.sequence_set cimport SequenceSet

cdef extern from "natsd/store/nats_server/highway_hash.h" nogil:
    ctypedef struct natsd_highway:
        pass
    void natsd_highway_begin(natsd_highway* hash, const unsigned char* key)
    void natsd_highway_add(natsd_highway* hash, const unsigned char* data, size_t n)
    uint64_t natsd_highway_end(natsd_highway* hash)

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t n, const void* wanted, size_t wanted_n)

cdef enum:
    HASH_KEY_BYTES = 32
    HEADER_BYTES = 22
    HASH_BYTES = 8
    RECORD_MIN = HEADER_BYTES + HASH_BYTES
    RECORD_MAX = 32 << 20
    MESSAGE_COST = 100          # cost of a message besides its bytes, in bytes that cost as much

cdef uint32_t HAS_HEADERS = 1 << 31
cdef uint64_t ERASED = <uint64_t> 1 << 63
cdef uint64_t TOMBSTONE = <uint64_t> 1 << 62
cdef uint64_t SEQUENCE_BITS = TOMBSTONE - 1

cdef struct Record:
    uint32_t length
    uint64_t sequence           # with the bits ERASED and TOMBSTONE
    int64_t time_ns
    uint32_t subject_len
    uint32_t headers_len
    uint32_t data_len
    const unsigned char* subject
    const unsigned char* headers
    const unsigned char* data


def highway_hash(bytes key not None, bytes data not None) -> bytes:
    """Return the HighwayHash-64 of `data`, as nats-server writes it; `key` has 32 bytes."""
    cdef natsd_highway hash
    cdef uint64_t value
    if len(key) != HASH_KEY_BYTES:
        raise ValueError("the key has not 32 bytes")
    natsd_highway_begin(&hash, <const unsigned char*> PyBytes_AS_STRING(key))
    natsd_highway_add(&hash, <const unsigned char*> PyBytes_AS_STRING(data), len(data))
    value = natsd_highway_end(&hash)
    return value.to_bytes(HASH_BYTES, "little")


cdef bint read_record(
    const natsd_highway* keyed, const unsigned char* at, Py_ssize_t room, Record* out
) noexcept nogil:
    """Read the record at `at`; return whether it verifies."""
    cdef natsd_highway hash
    cdef uint32_t length, prefix, content
    cdef const unsigned char* end_of_headers
    if room < RECORD_MIN:
        return False
    length = read_u32(at)
    out.subject_len = at[20] | <uint32_t> at[21] << 8
    prefix = out.subject_len + (4 if length & HAS_HEADERS else 0)
    out.length = length & ~HAS_HEADERS
    if out.length > room or out.length > RECORD_MAX or out.length < RECORD_MIN + prefix:
        return False
    out.subject = at + HEADER_BYTES
    out.headers = out.subject + prefix
    content = out.length - RECORD_MIN - prefix
    memcpy(&hash, keyed, sizeof(natsd_highway))
    natsd_highway_add(&hash, at + 4, 16)
    natsd_highway_add(&hash, out.subject, out.subject_len)
    natsd_highway_add(&hash, out.headers, content)
    if natsd_highway_end(&hash) != read_u64(at + out.length - HASH_BYTES):
        return False
    out.sequence = read_u64(at + 4)
    out.time_ns = <int64_t> read_u64(at + 12)
    out.headers_len = 0
    if length & HAS_HEADERS:
        out.headers_len = read_u32(out.subject + out.subject_len)
        if out.headers_len > content:
            return False
        end_of_headers = <const unsigned char*> memmem(out.headers, content, b"\r\n\r\n", 4)
        if end_of_headers != NULL and end_of_headers + 4 != out.headers + out.headers_len:
            return False
    out.data = out.headers + out.headers_len
    out.data_len = content - out.headers_len
    return True


cdef void read_fields(const unsigned char* at, Record* out) noexcept nogil:
    """Read a record that was verified before."""
    cdef uint32_t length = read_u32(at)
    out.length = length & ~HAS_HEADERS
    out.sequence = read_u64(at + 4)
    out.time_ns = <int64_t> read_u64(at + 12)
    out.subject_len = at[20] | <uint32_t> at[21] << 8
    out.subject = at + HEADER_BYTES
    out.headers = out.subject + out.subject_len
    out.headers_len = 0
    if length & HAS_HEADERS:
        out.headers_len = read_u32(out.headers)
        out.headers += 4
    out.data = out.headers + out.headers_len
    out.data_len = <uint32_t> (at + out.length - HASH_BYTES - out.data)


cdef bint is_zeros(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(length):
        if data[at]:
            return False
    return True


cdef class BlockFile:
    """The records of one block; `key` is that of its checksums, 32 bytes.

    `last_sequence` and `last_time_ns` are those of its last record that is no tombstone, 0 if there
    is none. `last_checksum` is that of its last record, tombstone or not. `damage` holds a tuple
    (offset, length, sequence before, sequence behind; 0: none) per damage. `torn_bytes` is the
    length of a record at the end that was never written to its end.
    """

    cdef bytes content
    cdef natsd_highway keyed
    cdef uint32_t* offsets      # of the messages, ascending
    cdef size_t count
    cdef size_t capacity
    cdef readonly uint64_t first_sequence
    cdef readonly uint64_t last_sequence
    cdef readonly int64_t last_time_ns
    cdef readonly uint64_t last_checksum
    cdef readonly uint64_t live_bytes
    cdef readonly uint64_t torn_bytes
    cdef readonly list damage
    cdef bint is_verified
    cdef readonly SequenceSet tombstones        # sequences of removed messages, in any block
    cdef readonly uint64_t last_tombstone       # the highest of them …
    cdef readonly int64_t last_tombstone_ns     # … and its time

    def __init__(
        self, bytes content not None, bytes key not None, *, bint is_verified=False,
    ):
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length = PyBytes_GET_SIZE(content)
        cdef const unsigned char* data = <const unsigned char*> PyBytes_AS_STRING(content)
        if len(key) != HASH_KEY_BYTES:
            raise ValueError("the key has not 32 bytes")
        natsd_highway_begin(&self.keyed, <const unsigned char*> PyBytes_AS_STRING(key))
        self.content = content
        self.is_verified = is_verified
        self.damage = []
        self.tombstones = SequenceSet()
        while at < length:
            with nogil:
                at = self.walk(data, at, length)
            if at < length:
                at = self.skip_damage(data, at, length)

    def __dealloc__(self):
        free(self.offsets)

    @property
    def messages(self) -> int:
        """Number of messages, with those that a tombstone removed."""
        return self.count

    cdef Py_ssize_t walk(
        self, const unsigned char* data, Py_ssize_t at, Py_ssize_t length
    ) except -1 nogil:
        """Note all records up to the first that does not verify; return its offset."""
        cdef Record record
        while at < length:
            if self.is_verified:
                read_fields(data + at, &record)
            elif not read_record(&self.keyed, data + at, length - at, &record):
                break
            self.note(at, &record)
            at += record.length
        return at

    cdef int note(self, Py_ssize_t at, const Record* record) except -1 nogil:
        cdef uint64_t sequence = record.sequence & SEQUENCE_BITS
        self.last_checksum = read_u64(record.subject - HEADER_BYTES + record.length - HASH_BYTES)
        if record.sequence & TOMBSTONE:
            if sequence:
                with gil:
                    self.tombstones.add_run(sequence, sequence)
            if sequence > self.last_tombstone:
                self.last_tombstone, self.last_tombstone_ns = sequence, record.time_ns
            return 0
        if sequence <= self.last_sequence:
            return 0
        self.last_sequence, self.last_time_ns = sequence, record.time_ns
        if not record.sequence & ERASED:
            if self.count == self.capacity:
                self.grow()
            if self.count == 0:
                self.first_sequence = sequence
            self.offsets[self.count] = <uint32_t> at
            # Not `+=`, which needs the GIL where all checks are compiled in.
            self.count = self.count + 1
            self.live_bytes = self.live_bytes + record.length
        return 0

    cdef int grow(self) except -1 nogil:
        cdef size_t capacity = self.capacity * 2 or 1024
        cdef void* memory = realloc(self.offsets, capacity * sizeof(uint32_t))
        if memory == NULL:
            with gil:
                raise MemoryError
        self.offsets, self.capacity = <uint32_t*> memory, capacity
        return 0

    cdef Py_ssize_t skip_damage(
        self, const unsigned char* data, Py_ssize_t at, Py_ssize_t length
    ) except -1:
        """Note the damage at `at`, and return the offset of the next record that verifies."""
        cdef Py_ssize_t begin = at
        cdef uint64_t behind = 0
        cdef Record record
        with nogil:
            at = self.next_record(data, at, length)
            if at < length:
                read_record(&self.keyed, data + at, length - at, &record)
                behind = record.sequence & SEQUENCE_BITS
        if at == length and self.is_torn(data + begin, length - begin):
            self.torn_bytes = length - begin
        else:
            self.damage.append((begin, at - begin, self.last_sequence, behind))
        return at

    cdef Py_ssize_t next_record(
        self, const unsigned char* data, Py_ssize_t at, Py_ssize_t length
    ) noexcept nogil:
        """Return the offset of the next record behind the damage at `at`; `length`: none."""
        cdef Record record
        cdef uint32_t told
        if length - at >= RECORD_MIN:
            told = read_u32(data + at) & ~HAS_HEADERS
            if RECORD_MIN <= told <= RECORD_MAX and told < length - at:
                if read_record(&self.keyed, data + at + told, length - at - told, &record):
                    if self.is_next(&record):
                        return at + told
        for at in range(at + 1, length - RECORD_MIN + 1):
            if read_record(&self.keyed, data + at, length - at, &record) and self.is_next(&record):
                return at
        return length

    cdef bint is_next(self, const Record* record) noexcept nogil:
        """Return whether the record can follow those before: it is in order, or a tombstone."""
        return (record.sequence & TOMBSTONE) or (
            record.sequence & SEQUENCE_BITS
        ) > self.last_sequence

    cdef bint is_torn(self, const unsigned char* data, Py_ssize_t length) noexcept nogil:
        """Return whether these last bytes can be a record whose end was never written."""
        cdef uint32_t told
        if length < HEADER_BYTES or is_zeros(data, length):
            return True
        told = read_u32(data) & ~HAS_HEADERS
        return length < told <= RECORD_MAX

    def add_sequences(self, SequenceSet found not None):
        """Add the sequences of the messages to `found`."""
        cdef const unsigned char* data = <const unsigned char*> PyBytes_AS_STRING(self.content)
        cdef uint64_t sequence, first = 0, last = 0
        cdef size_t number
        for number in range(self.count):
            sequence = read_u64(data + self.offsets[number] + 4)
            if number and sequence == last + 1:
                last = sequence
                continue
            if number:
                found.add_run(first, last)
            first = last = sequence
        if self.count:
            found.add_run(first, last)

    def append_to(
        self, MessageLog log not None, SequenceSet removed not None, uint64_t last,
        size_t number, uint64_t bytes_max, subjects, lifetime, list refused not None,
    ) -> int:
        """Append messages to the log, from the one with that number on, about `bytes_max` bytes.

        Left out are those in `removed`, those above the sequence `last`, and those that the log
        has. `subjects` is the set of all subjects, or None if it is not known. `lifetime` returns
        the time at which a message with the given headers and time expires; None: none does. A
        message that cannot be taken is noted in `refused`: its sequence, and the reason. Return the
        number to go on with; -1: all were appended. Raises the errors of the log's append.
        """
        cdef const unsigned char* data = <const unsigned char*> PyBytes_AS_STRING(self.content)
        cdef Record record
        cdef uint64_t taken = 0, sequence
        cdef int64_t expires_ns
        while number < self.count:
            if taken >= bytes_max:
                return number
            read_fields(data + self.offsets[number], &record)
            number += 1
            sequence = record.sequence
            if sequence > last or sequence <= log.edges.last or removed.has(sequence):
                continue
            reason = why_not(&record, subjects)
            if reason is not None:
                refused.append((sequence, reason))
                continue
            expires_ns = 0
            if lifetime is not None and record.headers_len:
                expires_ns = lifetime(record.headers[:record.headers_len], record.time_ns)
            log.append_raw(
                <const char*> record.subject, record.subject_len, <const char*> record.headers,
                sendable_headers(<const char*> record.headers, record.headers_len),
                <const char*> record.data, record.data_len, record.time_ns, sequence, expires_ns,
                False,
            )
            taken += MESSAGE_COST + record.length
        return -1


cdef object why_not(const Record* record, subjects):
    """Return why the message cannot be taken; None: it can."""
    if not is_sendable(<const char*> record.subject, record.subject_len):
        return "its subject is none that a client could receive"
    if subjects is not None and not record.headers_len:
        if record.subject[:record.subject_len] not in subjects:
            return "its subject is damaged: index.db does not know it"
    if record.headers_len and sendable_headers(
        <const char*> record.headers, record.headers_len
    ) == 0:
        return "its headers are no header block"
    return None
