"""A trie whose content is any Python object; part of the package's public API.

The seed is Cassandra's `InMemoryTrie`. The server itself stores records (`record_trie`).

Promise
- An object is owned from `put` until it is replaced, or until its key is deleted and no reader from
  before is left. None is no content: readers get it where there is none.
- A value that replaces another takes its slot; the trie's structure does not change.
- Reading and writing hold the GIL, because of the objects; cursors that read only keys do not need
  it.
- The cycle collector does not see the trie's content: an object in it that refers to the trie keeps
  both alive.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, uint32_t


from types import GenericAlias


cdef class InMemoryTrie(CellTrie):
    """A map from byte strings to objects; `max_bytes` limits its cells."""

    def __cinit__(
        self, *, max_bytes: int = CELL_BYTES_MAX, garbage_bytes_max: int = GARBAGE_BYTES_MAX
    ):
        open_memory(&self.memory, cell_limit(max_bytes), 0, garbage_limit(garbage_bytes_max))

    @classmethod
    def __class_getitem__(cls, content: object) -> object:
        """Return a generic alias such as `InMemoryTrie[int]`, for annotations."""
        return GenericAlias(cls, content)

    cdef object content_at(self, int32_t index):
        cdef PyObject* content = (
            <PyObject**> slot_address(&self.memory.contents, <uint32_t> index)
        )[0]
        return None if content == NULL else <object> content

    def get(self, key: bytes, default: object = None) -> object:
        """Return the object at this key, or `default`; callable from any thread."""
        cdef Lease* lease = enter(&self.memory.epochs)
        cdef int32_t slot
        if lease == NULL:
            raise MemoryError
        try:
            slot = content_of(
                &self.memory.cells,
                find_node(&self.memory.cells, root_of(&self.memory), key, len(key)),
            )
            return default if slot < 0 else self.content_at(slot)
        finally:
            leave(lease)

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def put(self, key: bytes, value: object) -> None:
        """Set the object at this key. Raises TrieFull, with nothing changed."""
        self.check_content(value)
        self.begin_write_call()
        try:
            _replaced = self._set(key, value)
        finally:
            self.end_write_call()

    def put_recursive(self, key: bytes, update: object, transformer: object) -> None:
        """Set the object at this key to `transformer(existing, update)`.

        `existing` is None for a new key. If the transformer returns None, the key is deleted; it
        must not write to this trie.
        """
        self.begin_write_call()
        try:
            existing = self.get(key)
            value = transformer(existing, update)
            if value is not None:
                _replaced = self._set(key, value)
            elif existing is not None:
                self._delete(key)
        finally:
            self.end_write_call()

    def delete(self, key: bytes) -> bool:
        """Delete the key; return whether it was there."""
        self.begin_write_call()
        try:
            return self._delete(key)
        finally:
            self.end_write_call()

    cdef int check_content(self, object value) except -1:
        if value is None:
            raise TypeError("None cannot be content")
        return 0

    cdef object set_content(self, int32_t index, bint created, object value):
        cdef PyObject** place = (
            <PyObject**> slot_address(&self.memory.contents, <uint32_t> index)
        )
        cdef object replaced = None
        if not created:
            replaced = <object> place[0]
            Py_DECREF(replaced)
        Py_INCREF(value)
        place[0] = <PyObject*> value
        return replaced

    cdef object _set(self, bytes key, object value):
        """Set the object of a key; return the replaced one, which the caller must release last."""
        cdef bint created
        cdef int32_t slot = insert_key(&self.memory, key, len(key), NULL, &created)
        if slot == NO_ROOM and self.memory.epochs.count:
            recycle(&self.memory)
            slot = insert_key(&self.memory, key, len(key), NULL, &created)
        if slot < 0:
            self.refuse(slot)
        self.key_count += created
        return self.set_content(slot, created, value)

    cdef bint _delete(self, bytes key) except -1:
        cdef int32_t slot = remove_key(&self.memory, key, len(key))
        if slot == NO_ROOM and self.memory.epochs.count:
            recycle(&self.memory)
            slot = remove_key(&self.memory, key, len(key))
        if slot == NOT_THERE:
            return False
        if slot < 0:
            self.refuse(slot)
        self.key_count -= 1
        return True
