"""A trie whose content is a fixed number of bytes per key, accessed without the GIL.

Promise
- A key's slot, and the address of its record, stay the same until the key is removed, whatever else
  happens to the trie. A slot is reused only when no reader from before is left.
- A new record is zero. The writer changes it in place between `begin_write` and `end_write`;
  `get` returns one consistent state of it.
- `find` and `record` are for the writer, and for others while they hold a pinned lease.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy


from collections.abc import Iterable

cdef enum:
    RECORD_BYTES_MAX = 4096


cdef void take_over(
    void* context, unsigned char* into, const unsigned char* update,
    int64_t slot, int64_t update_slot, bint created,
) noexcept nogil:
    memcpy(into, update, (<uint32_t*> context)[0])


cdef class RecordTrie(CellTrie):
    """A map from byte strings to records of `record_bytes` bytes."""

    def __cinit__(
        self, record_bytes: int, *,
        max_bytes: int = CELL_BYTES_MAX, garbage_bytes_max: int = GARBAGE_BYTES_MAX,
    ):
        if not 0 < record_bytes <= RECORD_BYTES_MAX:
            raise ValueError(f"record_bytes must be 1 to {RECORD_BYTES_MAX}: {record_bytes}")
        open_memory(
            &self.memory, cell_limit(max_bytes), record_bytes, garbage_limit(garbage_bytes_max)
        )

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return self.memory.contents.width

    # For compiled callers

    cdef int64_t find(self, const unsigned char* key, Py_ssize_t length) noexcept nogil:
        cdef int32_t slot = content_of(
            &self.memory.cells, find_node(&self.memory.cells, root_of(&self.memory), key, length)
        )
        if slot >= 0:
            prefetch_cell(slot_address(&self.memory.contents, <uint32_t> slot))
        return slot

    cdef int64_t insert(
        self, const unsigned char* key, Py_ssize_t length, bint* created
    ) except -2 nogil:
        return self.insert_record(key, length, NULL, created)

    cdef int64_t insert_record(
        self, const unsigned char* key, Py_ssize_t length, const unsigned char* initial,
        bint* created,
    ) except -2 nogil:
        cdef int32_t slot = insert_key(&self.memory, key, length, initial, created)
        if slot == NO_ROOM and self.memory.epochs.count:
            recycle(&self.memory)
            slot = insert_key(&self.memory, key, length, initial, created)
        if slot < 0:
            with gil:
                self.refuse(slot)
        self.key_count = self.key_count + created[0]
        self._tidy()
        return slot

    cdef bint remove(
        self, const unsigned char* key, Py_ssize_t length
    ) except? -1 nogil:
        cdef int32_t slot = remove_key(&self.memory, key, length)
        if slot == NO_ROOM and self.memory.epochs.count:
            recycle(&self.memory)
            slot = remove_key(&self.memory, key, length)
        if slot == NOT_THERE:
            return False
        if slot < 0:
            with gil:
                self.refuse(slot)
        self.key_count = self.key_count - 1
        self._tidy()
        return True

    cdef inline void _tidy(self) noexcept nogil:
        if self.memory.epochs.count >= self.memory.epochs.look_at:
            recycle(&self.memory)

    cdef unsigned char* record(self, int64_t slot) noexcept nogil:
        return slot_address(&self.memory.contents, <uint32_t> slot)

    cdef void begin_write(self, int64_t slot) noexcept nogil:
        begin_slot_write(&self.memory.contents, <uint32_t> slot)

    cdef void end_write(self, int64_t slot) noexcept nogil:
        end_slot_write(&self.memory.contents, <uint32_t> slot)

    cdef object content_at(self, int32_t index):
        cdef bytes record = PyBytes_FromStringAndSize(NULL, self.memory.contents.width)
        copy_slot(&self.memory.contents, index, <unsigned char*> PyBytes_AS_STRING(record))
        return record

    cdef int check_content(self, object value) except -1:
        if len(<bytes?> value) != self.memory.contents.width:
            raise ValueError(f"a record has {self.memory.contents.width} bytes, not {len(value)}")
        return 0

    cdef object set_content(self, int32_t index, bint created, object value):
        self.begin_write(index)
        memcpy(
            self.record(index), <const unsigned char*> <bytes> value, self.memory.contents.width
        )
        self.end_write(index)
        return None

    cdef int merge_records(
        self, RecordTrie other, MergeRecord merge_record, void* context
    ) except -1 nogil:
        cdef Lease* lease = enter(&other.memory.epochs)
        cdef Walk walk
        cdef Merge merge
        cdef int reason = NO_MEMORY
        if lease != NULL and walk_open(&walk, &other.memory, False) == 0:
            reason = merge_open(&merge, &self.memory)
            if reason == 0:
                reason = self._merge_walk(&merge, &walk, other, merge_record, context)
            merge_close(&merge)
            walk_close(&walk)
        if lease != NULL:
            leave(lease)
        self._tidy()
        if reason < 0:
            with gil:
                self.refuse(reason)
        return 0

    cdef int _merge_walk(
        self, Merge* merge, Walk* walk, RecordTrie other, MergeRecord merge_record, void* context
    ) noexcept nogil:
        cdef int reason = 0
        cdef int depth
        cdef int32_t slot
        cdef bint created
        while reason == 0:
            if walk.content >= 0:
                slot = merge_slot(merge, &created)
                if slot < 0:
                    return slot
                self.key_count = self.key_count + created
                self.begin_write(slot)
                merge_record(
                    context, self.record(slot), other.record(walk.content),
                    slot, walk.content, created,
                )
                self.end_write(slot)
            depth = walk_advance(walk)
            if depth < 0:
                return NO_MEMORY if depth == WALK_NO_MEMORY else 0
            merge_ascend_to(merge, walk.depth - 1)
            reason = merge_descend(merge, walk.path[walk.depth - 1])
        return reason

    # For Python

    def get(self, key: bytes, default: object = None) -> bytes | None:
        """Return a consistent copy of the key's record, or `default`; callable from any thread."""
        cdef Lease* lease = enter(&self.memory.epochs)
        cdef int64_t slot
        if lease == NULL:
            raise MemoryError
        try:
            slot = self.find(key, len(key))
            return default if slot < 0 else self.content_at(<int32_t> slot)
        finally:
            leave(lease)

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def put(self, key: bytes, record: bytes) -> bool:
        """Set the key's record as a whole; return whether the key was new."""
        self.check_content(record)
        return self._put(key, record)

    def put_many(self, keys: Iterable[bytes], record: bytes) -> int:
        """Set the record of each of these keys; return how many keys were new."""
        cdef Py_ssize_t created = 0
        self.check_content(record)
        for key in keys:
            created += self._put(key, record)
        return created

    cdef bint _put(self, bytes key, bytes record) except -1:
        cdef bint created
        cdef int64_t slot = self.insert_record(key, len(key), record, &created)
        if not created:
            self.set_content(<int32_t> slot, created, record)
        return created

    def update(self, other: RecordTrie) -> None:
        """Set all keys of another trie to their records there.

        Raises ValueError if the records differ in width.
        """
        if other.memory.contents.width != self.memory.contents.width:
            raise ValueError("the records of the two tries differ in width")
        with nogil:
            self.merge_records(other, take_over, &self.memory.contents.width)

    def count_of(self, keys: Iterable[bytes]) -> int:
        """Return how many of these keys exist; callable from any thread."""
        cdef Lease* lease = enter(&self.memory.epochs)
        cdef Py_ssize_t found = 0
        if lease == NULL:
            raise MemoryError
        try:
            for key in keys:
                found += self.find(key, len(key)) >= 0
        finally:
            leave(lease)
        return found

    def delete(self, key: bytes) -> bool:
        """Delete the key; return whether it was there."""
        return self.remove(key, len(key))
