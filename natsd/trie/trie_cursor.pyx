"""The cursor over a trie's own cells: a walk, and the lease under which it reads them.

- The lease is taken when the cursor is made, and released at the end of the walk, by `close`, or
  with the cursor. Between two moves it rests: the cells that the cursor has reached stay readable,
  unless it rested for so long that the trie had to recycle them. Then every move and `content`
  raise StaleCursor, and only `key` still returns the last position.
- No move releases the GIL: two threads that use one cursor take turns.
- `natsd/trie/trie.md` tells which concurrent writes a cursor sees.
"""

cimport cython


from natsd.trie.errors import StaleCursor


# The lease points into the trie, so the cycle collector must not clear the trie first.
@cython.no_gc_clear
cdef class TrieCursor(Cursor):
    """A walk over the keys of a trie. Raises StaleCursor (`natsd.trie.errors`)."""

    def __cinit__(self, CellTrie trie not None, bint reverse=False):
        self.trie = trie
        self.lease = enter(&trie.memory.epochs)
        if self.lease == NULL or walk_open(&self.walk, &trie.memory, reverse) < 0:
            raise MemoryError()
        rest(self.lease)
        self.reverse = reverse
        self.depth = 0
        self.incoming_transition = -1

    def __dealloc__(self):
        self._leave()
        walk_close(&self.walk)

    cpdef object content(self):
        """Return this node's object, or a copy of its record; None if it has no content."""
        if self.walk.content < 0:
            return None
        self._wake()
        try:
            return self.trie.content_at(self.walk.content)
        finally:
            rest(self.lease)

    cpdef bytes key(self):
        """Return the transitions from the root to this node."""
        return self.walk.path[:max(self.walk.depth, 0)]

    cpdef int advance(self) except -2:
        """Go to the next node of the walk; return its depth, -1 past the end."""
        if self.lease == NULL:
            return -1
        self._wake()
        return self._landed(walk_advance(&self.walk))

    cpdef int advance_multiple(self, bytearray receiver) except -2:
        """Advance, to the end of a chain's cell at once; return the new depth."""
        cdef int before = self.depth
        cdef int depth
        if self.lease == NULL:
            return -1
        self._wake()
        depth = self._landed(walk_advance_multiple(&self.walk))
        if depth > before + 1:
            receiver += self.walk.path[before:depth - 1]
        return depth

    cpdef int advance_to_content(self) except -2:
        """Go to the next node with content; return its depth, -1 past the end."""
        cdef int depth
        if self.lease == NULL:
            return -1
        self._wake()
        depth = walk_advance_multiple(&self.walk)
        while depth >= 0 and self.walk.content < 0:
            depth = walk_advance_multiple(&self.walk)
        return self._landed(depth)

    cpdef int skip_children(self) except -2:
        """Go to the next node that is not below this one; return its depth, -1 past the end."""
        if self.lease == NULL:
            return -1
        self._wake()
        return self._landed(walk_skip_children(&self.walk))

    cpdef int skip_to(self, int depth, int transition) except -2:
        """Go to (depth, transition), or the first position behind it; return the new depth."""
        if self.lease == NULL:
            return -1
        assert 0 < depth <= self.depth + 1 and -1 <= transition <= 256
        self._wake()
        return self._landed(walk_skip_to(&self.walk, depth, transition))

    cpdef object close(self):
        """Release the lease; the cursor is past the end then."""
        self._leave()
        walk_close(&self.walk)
        Cursor.close(self)

    @property
    def pointer(self):
        """This node's pointer as its parent links to it: NONE is 0, a leaf is negative."""
        return self.walk.linked

    @property
    def kind(self):
        """Kind of the node that has the children: "Chain", "Sparse", "Split"; "Leaf": none."""
        cdef int kind = kind_of(self.walk.node)
        if self.walk.node == NONE:
            return "Leaf"
        return "Split" if kind == SPLIT else "Sparse" if kind == SPARSE else "Chain"

    @property
    def has_prefix(self):
        """Whether the content is in a Prefix before the node."""
        return self.walk.linked > 0 and kind_of(self.walk.linked) == PREFIX

    @property
    def content_index(self):
        """The content's slot index; negative if there is no content."""
        return self.walk.content

    cdef int _wake(self) except -1:
        if self.lease == NULL or not wake(self.lease):
            raise StaleCursor("the trie has recycled what this cursor stood on")
        return 0

    cdef int _landed(self, int depth) except -2:
        """Take over the walk's new position; return its depth, -1 past the end."""
        if depth >= 0:
            rest(self.lease)
            self.depth = depth
            self.incoming_transition = self.walk.path[depth - 1]
            return depth
        self.close()
        if depth == WALK_NO_MEMORY:
            raise MemoryError()
        return -1

    cdef void _leave(self) noexcept:
        if self.lease != NULL:
            leave(self.lease)
            self.lease = NULL
