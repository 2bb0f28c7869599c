"""The cursor over a trie's own cells: a walk, and the lease under which it reads them.

- The lease is taken when the cursor is made and given back at the end of the walk, by `close`, or
  with the cursor. Between two moves it rests: the cursor sees what was obsolete when it came to it,
  unless it rested for so long that the trie had to recycle that. Then every move and `content`
  raise StaleCursor, and only `key` still says where it stood.
- No move lets go of the GIL: two threads that use one cursor take turns.
- What it may and may not see of writes meanwhile: `natsd/trie/trie.md`.
"""

cimport cython

from natsd.trie.cell_trie cimport CellTrie
from natsd.trie.cursor cimport Cursor
from natsd.trie.epochs cimport enter, leave, rest, wake
from natsd.trie.nodes cimport NONE, PREFIX, SPARSE, SPLIT, kind_of
from natsd.trie.walk cimport (
    WALK_NO_MEMORY, walk_advance, walk_advance_multiple, walk_close, walk_open,
    walk_skip_children, walk_skip_to,
)

from natsd.trie.errors import StaleCursor


# The lease points into the trie: a collector that clears cycles must not take the trie away first.
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
        """The object, or a copy of the record, that stands on this node; or None."""
        if self.walk.content < 0:
            return None
        self._wake()
        try:
            return self.trie.content_at(self.walk.content)
        finally:
            rest(self.lease)

    cpdef bytes key(self):
        """The transitions from the root to this node."""
        return self.walk.path[:max(self.walk.depth, 0)]

    cpdef int advance(self) except -2:
        """To the next node of the walk; returns its depth."""
        if self.lease == NULL:
            return -1
        self._wake()
        return self._landed(walk_advance(&self.walk))

    cpdef int advance_multiple(self, bytearray receiver) except -2:
        """As `advance`, but to the end of a chain's cell at once."""
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
        """To the next node that has content; returns its depth."""
        cdef int depth
        if self.lease == NULL:
            return -1
        self._wake()
        depth = walk_advance_multiple(&self.walk)
        while depth >= 0 and self.walk.content < 0:
            depth = walk_advance_multiple(&self.walk)
        return self._landed(depth)

    cpdef int skip_children(self) except -2:
        """To the next node that is not below this one; returns its depth."""
        if self.lease == NULL:
            return -1
        self._wake()
        return self._landed(walk_skip_children(&self.walk))

    cpdef int skip_to(self, int depth, int transition) except -2:
        """To the position (depth, transition) or the first one behind it; returns its depth."""
        if self.lease == NULL:
            return -1
        assert 0 < depth <= self.depth + 1 and -1 <= transition <= 256
        self._wake()
        return self._landed(walk_skip_to(&self.walk, depth, transition))

    cpdef object close(self):
        """Give back the lease; the cursor is past the end then."""
        self._leave()
        walk_close(&self.walk)
        Cursor.close(self)

    @property
    def pointer(self):
        """This node as its parent points to it: NONE is 0, a leaf negative."""
        return self.walk.linked

    @property
    def kind(self):
        """What the children stand in: "Chain", "Sparse", "Split"; "Leaf" where there are none."""
        cdef int kind = kind_of(self.walk.node)
        if self.walk.node == NONE:
            return "Leaf"
        return "Split" if kind == SPLIT else "Sparse" if kind == SPARSE else "Chain"

    @property
    def has_prefix(self):
        """Does the content stand in a Prefix before the node?"""
        return self.walk.linked > 0 and kind_of(self.walk.linked) == PREFIX

    @property
    def content_index(self):
        """Where the content stands; negative if there is none."""
        return self.walk.content

    cdef int _wake(self) except -1:
        if self.lease == NULL or not wake(self.lease):
            raise StaleCursor("the trie has recycled what this cursor stood on")
        return 0

    cdef int _landed(self, int depth) except -2:
        """The walk has moved there."""
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
