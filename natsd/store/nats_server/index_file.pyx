"""The file `index.db` of nats-server: what a stream held at one moment.

    0 magic 11 · 1 version 1 … 4 · messages, bytes, first sequence, first time (signed), last
    sequence, last time (signed), number of subjects
    subject   length · the subject · messages · first block · last block (version 4, or more than
              one message)
    blocks    number of blocks, then for each: number, bytes, first sequence, first time, last
              sequence, last time, number of removed messages, [with a lifetime: version 2],
              [schedules: version 3], [the removed messages, a set]
    end       number of the last block · checksum of its last record, 8 bytes
    set       22, version 1 or 2 · nodes u32 · size u32 · per node: base u64, 64 or 32 words of
              bits, height u16

Numbers without a size are varints. Behind all that, in the file, stands a HighwayHash-64.

A removed message never comes back, and no sequence is used twice: so what an old index says about
removed messages is still true.

Source: nats-server's `recoverFullState`; `Decode` in server/avl/seqset.go.
"""

from natsd.store.errors import DamagedEncoding

cdef enum:
    INDEX_MAGIC = 11
    INDEX_VERSION_MAX = 4
    SET_MAGIC = 22
    SET_HEADER = 10


cdef class Varints:
    """A reader of varints; it raises DamagedEncoding where there is none."""

    cdef bytes data
    cdef Py_ssize_t at

    cdef uint64_t number(self) except? 0:
        cdef uint64_t value
        if not read_varint(
            <const unsigned char*> PyBytes_AS_STRING(self.data), len(self.data), &self.at, &value
        ):
            raise DamagedEncoding("index.db ends too early")
        return value

    cdef int64_t signed_number(self) except? 0:
        cdef uint64_t value = self.number()
        return <int64_t> (value >> 1) ^ -<int64_t> (value & 1)

    cdef bytes take(self, uint64_t length):
        if length > <uint64_t> (len(self.data) - self.at):
            raise DamagedEncoding("index.db ends too early")
        self.at += length
        return self.data[self.at - length:self.at]


cdef class IndexFile:
    """The content of an index; `removed` has all sequences that are known to hold no message.

    Raises DamagedEncoding if the bytes are no index.
    """

    cdef readonly uint64_t messages
    cdef readonly uint64_t last_sequence
    cdef readonly int64_t last_time_ns
    cdef readonly set subjects
    cdef readonly SequenceSet removed
    cdef readonly uint64_t last_block
    cdef readonly uint64_t last_checksum

    def __init__(self, bytes data not None):
        cdef Varints varints = Varints()
        if len(data) < 2 or data[0] != INDEX_MAGIC or not 1 <= data[1] <= INDEX_VERSION_MAX:
            raise DamagedEncoding("index.db is of no known version")
        varints.data, varints.at = data, 2
        self.messages = varints.number()
        varints.number()
        varints.number()
        varints.signed_number()
        self.last_sequence = varints.number()
        self.last_time_ns = varints.signed_number()
        self.read_subjects(varints, data[1])
        self.read_blocks(varints, data[1])
        self.last_block = varints.number()
        self.last_checksum = int.from_bytes(varints.take(HASH_BYTES), "little")

    cdef int read_subjects(self, Varints varints, int version) except -1:
        cdef uint64_t length, count, _number
        self.subjects = set()
        for _number in range(varints.number()):
            length = varints.number()
            if length == 0:
                continue
            self.subjects.add(varints.take(length))
            count = varints.number()
            varints.number()
            if count > 1 or version >= 4:
                varints.number()
        return 0

    cdef int read_blocks(self, Varints varints, int version) except -1:
        cdef uint64_t first, last, removed, _number
        cdef uint64_t before = 0
        self.removed = SequenceSet()
        for _number in range(varints.number()):
            varints.number()
            varints.number()
            first = varints.number()
            varints.signed_number()
            last = varints.number()
            varints.signed_number()
            removed = varints.number()
            if version >= 2:
                varints.number()
            if version >= 3:
                varints.number()
            if max(first, last) > SEQUENCE_BITS:
                raise DamagedEncoding("index.db tells impossible sequences")
            if before + 1 < first:
                self.removed.add_run(before + 1, first - 1)
            if removed:
                self.read_set(varints)
            before = max(before, last)
        return 0

    cdef int read_set(self, Varints varints) except -1:
        cdef bytes head = varints.take(SET_HEADER)
        cdef bytes words
        cdef uint64_t base, word, bit
        cdef uint32_t at, _node
        if head[0] != SET_MAGIC or head[1] not in (1, 2):
            raise DamagedEncoding("index.db holds a set of no known version")
        count = 64 if head[1] == 1 else 32
        for _node in range(int.from_bytes(head[2:6], "little")):
            base = int.from_bytes(varints.take(8), "little")
            words = varints.take(8 * count)
            varints.take(2)
            if base > SEQUENCE_BITS:
                raise DamagedEncoding("index.db tells impossible sequences")
            for at in range(count):
                word = read_u64(<const unsigned char*> PyBytes_AS_STRING(words) + 8 * at)
                for bit in range(64):
                    if word >> bit & 1 and base + at * 64 + bit:
                        self.removed.add_run(base + at * 64 + bit, base + at * 64 + bit)
        return 0
