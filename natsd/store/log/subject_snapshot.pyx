"""A snapshot of all subjects of a stream, written piece by piece while the stream goes on.

    entry      shared u8 │ rest u16 │ edges u8 │ the name's rest │ first │ last - first │ count
               shared: number of leading bytes in common with the name before it in its piece
               edges:  1 first is BOUND, 2 last is BOUND (subject_index.pxd)
               the last three are LEB128 varints

Promise
- A piece holds the state of its subjects at the time when the snapshot was made. A record that
  changes before it is written is copied first, with the 1,023 slots around it (SubjectIndex.keep).
- A subject that has left the index since may be missing: its messages of that time were all removed
  by later commits. A subject that was added later is not written.
- Pieces are in byte order of the names, and each can be read by itself.
- There is one snapshot of an index at a time; `close` ends the copying.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from natsd.trie.in_memory cimport PATTERN_NO_MEMORY, PATTERN_STALE, PatternCursor

from natsd.store.errors import DamagedEncoding

cdef enum:
    FIRST_BOUND = 1
    LAST_BOUND = 2
    SHARED_MAX = 255
    ENTRY_FIXED_BYTES = 4
    VARINT_BYTES_MAX = 10
    NAME_BYTES_MAX = 0xffff


cdef class SubjectSnapshot:
    """A snapshot of `index` as it is now. Raises ValueError if another one is not closed yet."""

    def __cinit__(self, SubjectIndex index not None):
        if index.frozen != NULL:
            raise ValueError("a snapshot of these subjects is being taken")
        self.index = index
        self.name = bytearray()
        self.piece = bytearray()
        self.cursor = PatternCursor(index.trie, None)
        self.frozen.top = index.trie.memory.contents.top
        self.frozen.pages = <Subject**> calloc(
            (self.frozen.top >> FROZEN_PAGE_BITS) + 1, sizeof(Subject*)
        )
        if self.frozen.pages == NULL:
            raise MemoryError()
        index.frozen = &self.frozen

    def __dealloc__(self):
        self.release()

    def close(self) -> None:
        """End the snapshot; the index makes no more copies."""
        self.release()
        self.cursor.close()

    cdef void release(self) noexcept:
        cdef uint32_t page
        if self.frozen.pages == NULL:
            return
        self.index.frozen = NULL
        for page in range((self.frozen.top >> FROZEN_PAGE_BITS) + 1):
            free(self.frozen.pages[page])
        free(self.frozen.pages)
        self.frozen.pages = NULL

    def next_piece(self, int64_t keys_max) -> bytes | None:
        """Return the next piece, which covers up to `keys_max` names; None: there are no more.

        The piece may be empty. Raises ValueError if the snapshot is closed, or MemoryError.
        """
        cdef int64_t slot
        cdef int64_t looked_at = 0
        cdef Subject record
        if self.frozen.pages == NULL:
            raise ValueError("the snapshot is closed")
        self.piece = bytearray()
        self.begun = False
        while looked_at < keys_max:
            slot = self.cursor.next()
            if slot == PATTERN_STALE:
                self.cursor.resume()
                continue
            if slot == PATTERN_NO_MEMORY or self.frozen.failed:
                raise MemoryError()
            if slot < 0:
                if looked_at == 0:
                    return None
                break
            looked_at += 1
            if self.was_there(slot, &record):
                self.write(self.cursor.key, self.cursor.key_len, &record)
        return bytes(self.piece)

    cdef bint was_there(self, int64_t slot, Subject* record) noexcept:
        """Copy the slot's record at the time of the snapshot; return whether it had messages.

        Returns false too if the slot belonged to another subject then.
        """
        cdef Subject* now = self.index.record(slot)
        cdef Subject* page
        if slot >= self.frozen.top:
            return False
        page = self.frozen.pages[slot >> FROZEN_PAGE_BITS]
        memcpy(record, now if page == NULL else &page[slot & (FROZEN_PAGE - 1)], SUBJECT_BYTES)
        return record.count != 0 and record.birth == now.birth

    cdef int write(
        self, const unsigned char* name, Py_ssize_t length, const Subject* record
    ) except -1:
        cdef uint64_t first = sequence_in(record.first)
        cdef uint64_t last = sequence_in(record.last)
        cdef Py_ssize_t shared = 0
        cdef Py_ssize_t limit = min(length, len(self.name), SHARED_MAX) if self.begun else 0
        cdef const unsigned char* before = <const unsigned char*> PyByteArray_AS_STRING(self.name)
        cdef unsigned char[ENTRY_FIXED_BYTES + 3 * VARINT_BYTES_MAX] fixed
        cdef int at = ENTRY_FIXED_BYTES
        while shared < limit and name[shared] == before[shared]:
            shared += 1
        fixed[0] = <unsigned char> shared
        fixed[1] = <unsigned char> (length - shared)
        fixed[2] = <unsigned char> ((length - shared) >> 8)
        fixed[3] = (0 if is_exact(record.first) else FIRST_BOUND) | (
            0 if is_exact(record.last) else LAST_BOUND
        )
        self.piece += fixed[:ENTRY_FIXED_BYTES]
        self.piece += name[shared:length]
        at = put_varint(fixed, 0, first)
        at = put_varint(fixed, at, last - first)
        at = put_varint(fixed, at, record.count)
        self.piece += fixed[:at]
        del self.name[shared:]
        self.name += name[shared:length]
        self.begun = True
        return 0


cdef inline int put_varint(unsigned char* into, int at, uint64_t value) noexcept:
    while value >= 0x80:
        into[at] = <unsigned char> (value | 0x80)
        value >>= 7
        at += 1
    into[at] = <unsigned char> value
    return at + 1


cdef inline bint take_varint(
    const unsigned char* data, Py_ssize_t size, Py_ssize_t* at, uint64_t* value
) noexcept nogil:
    cdef int shift = 0
    value[0] = 0
    while at[0] < size and shift < 64:
        value[0] |= <uint64_t> (data[at[0]] & 0x7f) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            return True
        shift += 7
    return False


def load_subjects(SubjectIndex index not None, bytes piece not None) -> int:
    """Add a piece's subjects to an index that has none of them; return how many were added.

    Raises DamagedEncoding: the index must then be discarded.
    """
    cdef const unsigned char* data = piece
    cdef Py_ssize_t size = len(piece)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t shared, rest
    cdef uint64_t first = 0, length = 0, count = 0
    cdef uint32_t name_len = 0
    cdef unsigned char edges
    cdef char[NAME_BYTES_MAX] name
    cdef int64_t loaded = 0
    while at < size:
        if at + ENTRY_FIXED_BYTES > size:
            raise DamagedEncoding("subjects are cut short")
        shared = data[at]
        rest = data[at + 1] | data[at + 2] << 8
        edges = data[at + 3]
        at += ENTRY_FIXED_BYTES
        if shared > name_len or shared + rest > NAME_BYTES_MAX or at + rest > size:
            raise DamagedEncoding("a subject's name does not fit")
        memcpy(name + shared, data + at, rest)
        name_len = <uint32_t> (shared + rest)
        at += rest
        if not (
            take_varint(data, size, &at, &first) and take_varint(data, size, &at, &length)
            and take_varint(data, size, &at, &count)
        ) or count == 0:
            raise DamagedEncoding("a subject's numbers do not fit")
        place_subject(index, name, name_len, first, first + length, count, edges)
        loaded += 1
    return loaded


cdef int place_subject(
    SubjectIndex index, const char* name, uint32_t length, uint64_t first, uint64_t last,
    uint64_t count, unsigned char edges,
) except -1:
    cdef bint created = False
    cdef int64_t slot = index.trie.insert(<const unsigned char*> name, length, &created)
    cdef Subject* record = index.record(slot)
    if not created:
        raise DamagedEncoding("a subject comes twice")
    index.births = index.births % BIRTH_LAST + 1
    index.trie.begin_write(slot)
    record.birth = index.births
    record.first = first | (BOUND if edges & FIRST_BOUND else 0)
    record.last = last | (BOUND if edges & LAST_BOUND else 0)
    record.count = count
    index.trie.end_write(slot)
    index.count += 1
    return 0
