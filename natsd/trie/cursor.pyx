"""The walk over a trie: the interface of every trie, on which every view is built.

A cursor stands on a node. It begins at the root and visits every node before that node's children,
and children in order of their transition: ascending, or descending in a reverse cursor. (A reverse
walk still visits a key before the keys of which it is a prefix; `natsd.trie.views.entries` corrects
that.)

       •                 advance     advance_multiple, and what its receiver got
     c╱ ╲o               0           0
     •   •               1 c         1 c
    a│   │x              2 a         3 r     car     "a"
     •   ○ ox            3 r         1 o
    r│   │e              1 o         2 x     ox
 car ○   •               2 x         4 n     oxen    "e"
         │n              3 e         -1
         ○ oxen          4 n
                         -1

- Each move returns the new depth, -1 past the end; there the cursor stays.
- `advance` goes to the first child, or else to the next sibling of the nearest ancestor that has
  one: the new depth is at most one more than the old.
- `advance_multiple` may go down several levels where there are no branches and no contents between;
  the transitions of the nodes that it passes are appended to the receiver, except that of the node
  where it stops.
- `skip_children` leaves out all nodes below.
- `skip_to(depth, transition)` goes to that position or the first one behind it. The position must
  lie ahead: at most one level down, and behind the walk's position at that depth. A transition past
  the last one (256; -1 in a reverse cursor) leaves out the remaining siblings.
- The content of a node is an object, never None; None means that the node has none.

Source: Cassandra's InMemoryTrie design ("Cursors over InMemoryTrie") and the cursor interface it
builds on. Here all moves but `advance` have a default implementation made from `advance`.
"""


cdef class Cursor:
    """A position in a trie; subclasses implement `advance`, `content` and `key`."""

    cpdef object content(self):
        """Return the content of this node, or None."""
        raise NotImplementedError

    cpdef bytes key(self):
        """Return the transitions from the root to this node."""
        raise NotImplementedError

    cpdef int advance(self) except -2:
        """Go to the next node of the walk; return its depth, -1 past the end."""
        raise NotImplementedError

    cpdef int advance_multiple(self, bytearray receiver) except -2:
        """Advance, over several nodes at once where that costs nothing; return the new depth."""
        return self.advance()

    cpdef int advance_to_content(self) except -2:
        """Go to the next node with content; return its depth, -1 past the end."""
        cdef bytearray passed = bytearray()
        while self.advance_multiple(passed) >= 0 and self.content() is None:
            passed.clear()
        return self.depth

    cpdef int skip_children(self) except -2:
        """Go to the next node that is not below this one; return its depth, -1 past the end."""
        cdef int above = self.depth
        while self.advance() > above:
            pass
        return self.depth

    cpdef int skip_to(self, int depth, int transition) except -2:
        """Go to (depth, transition), or the first position behind it; return the new depth."""
        cdef int now
        assert 0 < depth <= self.depth + 1 and -1 <= transition <= 256
        now = self.advance() if depth > self.depth else self.skip_children()
        while now > depth or (now == depth and self._is_before(transition)):
            now = self.skip_children()
        return now

    cdef bint _is_before(self, int transition) noexcept:
        if self.reverse:
            return self.incoming_transition > transition
        return self.incoming_transition < transition

    cpdef object close(self):
        """Release all that the walk holds; the cursor is past the end then."""
        self.depth = -1
        self.incoming_transition = -1

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
