"""The common part of both tries: opening, closing, queries, and the errors of a refused write.

A trie lives as long as its last cursor: each cursor holds a reference to it, so that cells, slots
and leases exist whenever they are read.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint32_t


from typing import NamedTuple

from natsd.trie.errors import ConcurrentWrite, TrieFull


class TrieUsage(NamedTuple):
    """The size of a trie: counts, and bytes of memory that were ever used."""

    cells: int              # with nodes, or waiting for readers
    cells_free: int         # recycled, to be reused first
    slots: int              # with content, or waiting for readers
    waiting: int            # obsolete cells and slots that readers may still see
    cell_bytes: int
    slot_bytes: int
    bookkeeping_bytes: int


cdef class CellTrie:
    """Base of InMemoryTrie and RecordTrie."""

    def __dealloc__(self):
        close_memory(&self.memory)

    def __len__(self) -> int:
        return self.key_count

    @property
    def root(self) -> int:
        """The root pointer; 0: the trie is empty; negative: a leaf."""
        return root_of(&self.memory)

    def cell(self, offset: int) -> bytes:
        """Return the 32 bytes of the cell with that offset or pointer. Raises IndexError."""
        cdef uint32_t start = offset
        start -= start % CELL_BYTES
        if start >= self.memory.cells.top:
            raise IndexError(f"no cell at {offset:#x}")
        return PyBytes_FromStringAndSize(
            <char*> cell_address(&self.memory.cells, start), CELL_BYTES
        )

    def usage(self) -> TrieUsage:
        """Return the sizes of the trie."""
        return TrieUsage(
            cells=cells_in_use(&self.memory.cells),
            cells_free=self.memory.cells.free_count,
            slots=slots_in_use(&self.memory.contents),
            waiting=self.memory.epochs.count,
            cell_bytes=self.memory.cells.top,
            slot_bytes=<object> self.memory.contents.top * self.memory.contents.stride,
            bookkeeping_bytes=(
                self.memory.epochs.capacity * 8 + self.memory.path_capacity * sizeof(int32_t)
            ),
        )

    def recycle(self) -> None:
        """Recycle everything that no reader can see, now rather than with a later write."""
        recycle(&self.memory)

    def cursor(self, reverse: bool = False) -> Cursor:
        """Return a cursor at the root; `natsd.trie.views` builds slices and unions on it."""
        return TrieCursor(self, reverse)

    def apply(self, mutation: object, transformer: object) -> None:
        """Merge the content of another trie, or of a view of tries, into this trie.

        Each content becomes `transformer(existing, update)`, where `existing` is None for a new
        key; if the transformer returns None, the key stays as it is. The transformer must not write
        to this trie. Readers see a merge branch by branch. TrieFull, and whatever `mutation` or
        `transformer` raise, end the merge between two keys: keys merged before stay.
        """
        cdef Cursor cursor = mutation.cursor()
        cdef Merge merge
        cdef int reason
        self.begin_write_call()
        try:
            reason = merge_open(&merge, &self.memory)
            if reason < 0:
                self.refuse(reason)
            _replaced = self._merge_with(&merge, cursor, transformer)
        finally:
            merge_close(&merge)
            self.end_write_call()

    cdef list _merge_with(self, Merge* merge, Cursor cursor, object transformer):
        """Merge every key of the cursor; return the replaced objects, to be released last."""
        cdef list replaced = []
        cdef int reason
        while cursor.depth >= 0:
            update = cursor.content()
            if update is not None:
                replaced.append(self._merge_content(merge, update, transformer))
            if cursor.advance() < 0:
                break
            merge_ascend_to(merge, cursor.depth - 1)
            reason = merge_descend(merge, <unsigned char> cursor.incoming_transition)
            if reason < 0:
                self.refuse(reason)
        return replaced

    cdef object _merge_content(self, Merge* merge, object update, object transformer):
        cdef int32_t slot = merge.states[merge.depth].content
        cdef bint created
        value = transformer(None if slot < 0 else self.content_at(slot), update)
        if value is None:
            return None
        self.check_content(value)
        slot = merge_slot(merge, &created)
        if slot < 0:
            self.refuse(slot)
        self.key_count += created
        return self.set_content(slot, created, value)

    cdef object content_at(self, int32_t index):
        raise NotImplementedError

    cdef int check_content(self, object value) except -1:
        raise NotImplementedError

    cdef object set_content(self, int32_t index, bint created, object value):
        raise NotImplementedError

    cdef int begin_write_call(self) except -1:
        if self.writing:
            raise ConcurrentWrite("a write to this trie is under way")
        self.writing = True
        return 0

    cdef void end_write_call(self) noexcept:
        """End a write; destructors of objects that it released run here."""
        self.writing = False
        if self.memory.epochs.count >= self.memory.epochs.look_at:
            recycle(&self.memory)

    cdef int refuse(self, int reason) except -1:
        """Raise the error for the reason why nothing was written."""
        if reason == NO_MEMORY:
            raise MemoryError
        assert reason == NO_ROOM
        raise TrieFull(
            f"a trie of at most {self.memory.cells.limit:,} bytes of cells has no room for this"
        )


cdef uint32_t cell_limit(object max_bytes) except? 0:
    """Return the limit for the cells in bytes; their pointers reach a little less than 2 GiB."""
    if max_bytes < CELL_BYTES:
        raise ValueError(f"max_bytes must be at least {CELL_BYTES}: {max_bytes}")
    return min(max_bytes, CELL_BYTES_MAX)


cdef uint32_t garbage_limit(object garbage_bytes_max) except? 0:
    """Return how many obsolete cells may wait for resting cursors."""
    if garbage_bytes_max < 0:
        raise ValueError(f"garbage_bytes_max must not be negative: {garbage_bytes_max}")
    return min(garbage_bytes_max // CELL_BYTES, CELL_BYTES_MAX // CELL_BYTES)
