"""Rebuilding of a stream's state in memory from the blocks that hold its messages.

    block (scanned) ──▶ BlockShare: subjects of its live messages in a trie of its own, expiries,
                        times; in any thread, without the GIL
                            │ merge_into
                            ▼
                        the stream's SubjectIndex ──▶ slots: each message's place in that index

    block, for index.db   id u32 │ flags u32 (1 sealed, 2 open) │ seed u64 │ base u64 │ last u64
                          │ size u32 │ messages u32 │ live bytes u64 │ commit u64 │ chain u64
                          │ last checksum u64     open: later records may follow in the file

Promise
- The shares of all blocks, merged in any order, add up to the whole stream.
- `BlockShare` and `look_up_slots` read a block or scan that no other code uses yet, and release the
  GIL. `look_up_slots` may run while the index is being written: a name that it does not find has no
  live message any more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from natsd.store.block.blocks cimport (
    BlockIndex, MsgBlock, NO_SLOT, OFFSET_MASK, REMOVED, Scan, index_next_live, index_seek,
    index_sequence,
)
from natsd.store.codec.records cimport ERASED, RecordView, view_record
from natsd.store.codec.xxh64 cimport xxh64
from natsd.store.log.subjects cimport BIRTH_LAST, Subject, SubjectIndex, sequence_in
from natsd.store.sequence_set cimport SequenceSet
from natsd.trie.in_memory cimport Lease, PATTERN_NO_MEMORY, PatternCursor, RecordTrie, enter, leave

from natsd.store.errors import DamagedEncoding

cdef enum:
    EXPIRIES_MIN = 64
    FOUND_NAMES = 2048          # entries, 32 KiB of a thread's stack

cdef struct FoundName:
    const char* name
    uint32_t length
    uint32_t slot


cdef class BlockShare:
    """The subjects, expiries, times and totals of one block's live messages.

    The block must have all of its bytes and arrays in memory, else ValueError is raised. Messages
    in `removed` or below `floor` are first marked dead in it. Messages before the offset
    `from_offset` do not belong to the share.
    """

    def __cinit__(
        self, MsgBlock block not None, SequenceSet removed not None, uint64_t floor,
        uint32_t from_offset=0,
    ):
        if not block.has_arrays or block.cache_start:
            raise ValueError("the block is not in memory")
        self.subjects = RecordTrie(sizeof(Span))
        with nogil:
            self.read(block, removed, floor, from_offset)

    def __dealloc__(self):
        free(self.expiries)

    cdef int read(
        self, MsgBlock block, SequenceSet removed, uint64_t floor, uint32_t from_offset
    ) except -1 nogil:
        cdef uint32_t place = 0, offset
        cdef uint64_t sequence
        cdef RecordView view
        cdef bint any_removed = removed.count != 0
        while place < block.index.count:
            if block.index.offsets[place] == 0:
                place += 1
                continue
            sequence = index_sequence(&block.index, place)
            if sequence < floor or (any_removed and removed.has(sequence)):
                block.mark_dead(sequence)
            offset = block.index.offsets[place]
            view_record(block.data + (offset & OFFSET_MASK), &view)
            self.last_time_ns = view.time_ns
            if from_offset <= offset < REMOVED:
                self.count = self.count + 1
                self.live_bytes = self.live_bytes + view.size
                if self.first_sequence == 0:
                    self.first_sequence = sequence
                    self.first_time_ns = view.time_ns
                self.last_sequence = sequence
                self.note(<const unsigned char*> view.subject, view.subject_len, sequence)
                if view.expires_ns > 0:
                    self.note_expiry(view.expires_ns, sequence)
            place += 1
        return 0

    cdef int note(
        self, const unsigned char* name, uint32_t length, uint64_t sequence
    ) except -1 nogil:
        cdef bint created = False
        cdef int64_t slot = self.subjects.insert(name, length, &created)
        cdef Span* span = <Span*> self.subjects.record(slot)
        if span.count == 0:
            span.first = sequence
        span.last = sequence
        span.count += 1
        return 0

    cdef int note_expiry(self, int64_t at_ns, uint64_t sequence) except -1 nogil:
        cdef Expiry* grown
        cdef uint32_t capacity
        if self.expiry_count == self.expiry_capacity:
            capacity = max(<uint32_t> EXPIRIES_MIN, 2 * self.expiry_capacity)
            grown = <Expiry*> realloc(self.expiries, capacity * sizeof(Expiry))
            if grown == NULL:
                with gil:
                    raise MemoryError()
            self.expiries = grown
            self.expiry_capacity = capacity
        self.expiries[self.expiry_count] = Expiry(at_ns=at_ns, sequence=sequence)
        self.expiry_count = self.expiry_count + 1
        return 0

    def merge_into(self, SubjectIndex index not None, Expiries expiries not None) -> None:
        """Add the share to the stream's index and expiries; one thread at a time."""
        cdef PatternCursor cursor = PatternCursor(self.subjects, None)
        cdef SequenceSet none_dead = SequenceSet()
        cdef uint32_t at
        cdef int64_t slot
        with nogil:
            while True:
                slot = cursor.next()
                if slot < 0:
                    break
                merge_subject(
                    index, cursor.key, cursor.key_len, <const Span*> self.subjects.record(slot)
                )
        if slot == PATTERN_NO_MEMORY:
            raise MemoryError()
        for at in range(self.expiry_count):
            expiries.add(
                self.expiries[at].at_ns, self.expiries[at].sequence, 0, none_dead, NULL
            )


cdef int merge_subject(
    SubjectIndex index, const unsigned char* name, Py_ssize_t length, const Span* span
) except -1 nogil:
    """Add a block's subject to the index."""
    cdef bint created = False
    cdef int64_t slot = index.trie.insert(name, length, &created)
    cdef Subject* record = index.record(slot)
    index.trie.begin_write(slot)
    if created:
        index.births = index.births % BIRTH_LAST + 1
        record.birth = index.births
        record.first = span.first
        record.last = span.last
        index.count = index.count + 1
    else:
        if span.first < sequence_in(record.first):
            record.first = span.first
        if span.last > sequence_in(record.last):
            record.last = span.last
    record.count += span.count
    index.trie.end_write(slot)
    return 0


def unnote_removed(
    MsgBlock block not None, SubjectIndex index not None, SequenceSet removed not None,
    SequenceSet dead not None, uint64_t first_sequence, uint64_t floor, uint32_t upto_offset,
) -> tuple[int, int]:
    """Subtract messages from an index that were removed since it was written.

    They are the messages before the offset `upto_offset` that are in `removed` or below `floor`
    now, and were live then: neither in `dead` nor below `first_sequence`. Returns how many they
    are, and their bytes. A subject that the index does not know had no message left. Raises
    DamagedEncoding if one of them was erased, because its subject is unknown then.

    Call it before anything newer is merged.
    """
    cdef uint32_t place
    cdef uint64_t sequence, messages = 0, live_bytes = 0
    cdef RecordView view
    cdef int64_t slot
    cdef Subject* record
    for place in range(block.index.count):
        if block.index.offsets[place] == 0:
            continue
        if (block.index.offsets[place] & OFFSET_MASK) >= upto_offset:
            break
        sequence = index_sequence(&block.index, place)
        if sequence < first_sequence or dead.has(sequence):
            continue
        if sequence >= floor and not removed.has(sequence):
            continue
        view_record(block.data + (block.index.offsets[place] & OFFSET_MASK), &view)
        if view.flags & ERASED:
            raise DamagedEncoding("a message was erased since: nothing tells its subject")
        messages += 1
        live_bytes += view.size
        slot = index.find(view.subject, view.subject_len)
        if slot < 0:
            continue
        record = index.record(slot)
        if record.count:
            index.unnote(slot, sequence)
        if record.count == 0:
            index.forget(view.subject, view.subject_len, slot)
    return messages, live_bytes


# Blocks in index.db

cdef enum:
    BLOCK_SEALED = 1
    BLOCK_OPEN = 2

cdef packed struct BlockNumbers:
    uint32_t block_id
    uint32_t flags
    uint64_t seed
    uint64_t base_sequence
    uint64_t last_sequence
    uint32_t size
    uint32_t message_count
    uint64_t live_bytes
    uint64_t commit_number
    uint64_t chain
    uint64_t last_checksum


def pack_blocks(tuple blocks not None) -> bytes:
    """Return the entries of index.db for the blocks as they are now, committed or not."""
    cdef MsgBlock block
    cdef BlockNumbers* numbers
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, len(blocks) * sizeof(BlockNumbers))
    numbers = <BlockNumbers*> PyBytes_AS_STRING(packed)
    for block in blocks:
        numbers.block_id = block.block_id
        numbers.flags = BLOCK_SEALED if block.sealed else BLOCK_OPEN
        numbers.seed = block.seed
        numbers.base_sequence = block.base_sequence
        numbers.last_sequence = block.last_sequence
        numbers.size = block.size
        numbers.message_count = block.message_count
        numbers.live_bytes = block.live_bytes
        numbers.commit_number = block.commit_number
        numbers.chain = block.chain
        numbers.last_checksum = block.last_checksum
        numbers += 1
    return packed


# The slots of a block's messages

cdef int find_slots(
    const BlockIndex* index, const unsigned char* data, RecordTrie trie
) noexcept nogil:
    """Set each message's slot by looking up its name; return 0, or -1: out of memory.

    In most blocks names repeat soon: recent names are cached by their hash, which costs a fifth of
    a search.
    """
    cdef FoundName[FOUND_NAMES] lately
    cdef FoundName* known
    cdef uint32_t place
    cdef int64_t found
    cdef RecordView view
    cdef Lease* lease = enter(&trie.memory.epochs)
    if lease == NULL:
        return -1
    memset(lately, 0, sizeof(lately))
    for place in range(index.count):
        if index.offsets[place] == 0:
            continue
        view_record(data + (index.offsets[place] & OFFSET_MASK), &view)
        known = &lately[
            xxh64(<const unsigned char*> view.subject, view.subject_len, 0) % FOUND_NAMES
        ]
        if (
            known.name == NULL or known.length != view.subject_len
            or memcmp(known.name, view.subject, known.length) != 0
        ):
            known.name = view.subject
            known.length = view.subject_len
            found = trie.find(<const unsigned char*> known.name, known.length)
            known.slot = <uint32_t> found if found >= 0 else <uint32_t> NO_SLOT
        index.slots[place] = known.slot
    leave(lease)
    return 0


def look_up_slots(Scan scan not None, SubjectIndex index not None) -> None:
    """Set the slots of the scan's messages; callable from any thread. Raises MemoryError."""
    cdef int rc
    cdef RecordTrie trie = index.trie
    with nogil:
        rc = find_slots(&scan.index, scan.bytes_at, trie)
    if rc < 0:
        raise MemoryError()


def set_slots(MsgBlock block not None, SubjectIndex index not None) -> None:
    """Set the slots of the block's messages, once the shares of all blocks are merged.

    Raises ValueError if the block is not wholly in memory.
    """
    cdef int rc
    cdef RecordTrie trie = index.trie
    if not block.has_arrays or block.cache_start:
        raise ValueError("the block is not in memory")
    with nogil:
        rc = find_slots(&block.index, block.data, trie)
    if rc < 0:
        raise MemoryError()


def note_gaps(
    MsgBlock block not None, uint64_t first, uint64_t last, SequenceSet dead not None
) -> None:
    """Add to `dead` each sequence of `first`..`last` that is no live message of the block."""
    cdef uint64_t at = first
    cdef uint64_t live
    cdef uint32_t place = <uint32_t> index_seek(&block.index, first)
    while at <= last:
        place = index_next_live(&block.index, place)
        live = index_sequence(&block.index, place) if place < block.index.count else last + 1
        if live > at:
            dead.add_run(at, min(live - 1, last))
        at = live + 1
        place += 1


# Expiries in index.db

def dump_expiries(Expiries expiries not None) -> bytes:
    """Return all expiries, unordered: 16 bytes each, in native byte order."""
    cdef bytes heap = PyBytes_FromStringAndSize(
        <const char*> expiries.heap.items, expiries.heap.count * sizeof(Expiry)
    )
    return heap + PyBytes_FromStringAndSize(
        <const char*> expiries.old.items, expiries.old.count * sizeof(Expiry)
    )


def load_expiries(Expiries expiries not None, bytes data not None) -> None:
    """Add the expiries that `dump_expiries` returned.

    Raises DamagedEncoding for a partial entry.
    """
    cdef Expiry item
    cdef Py_ssize_t at
    cdef SequenceSet none_dead = SequenceSet()
    if len(data) % sizeof(Expiry):
        raise DamagedEncoding("expiries are cut short")
    for at in range(0, len(data), sizeof(Expiry)):
        memcpy(&item, <const char*> data + at, sizeof(Expiry))
        expiries.add(item.at_ns, item.sequence, 0, none_dead, NULL)
