"""The walk that every trie offers and every view is made of.

A cursor stands on a node. It begins on the root and visits every node before that node's children,
children in order of their transition: ascending, or descending in a reverse cursor. (A reverse walk
still meets a key before the keys it is a prefix of; `natsd.trie.views.entries` turns that round.)

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

- Each move returns the new depth, -1 past the end; there it stays.
- `advance` goes to the first child, or else to the next sibling of the nearest ancestor that has
  one: the new depth is at most one more than the old.
- `advance_multiple` may go down several levels where nothing lies between; the transitions of the
  nodes it passes are appended to the receiver, all but that of the node it stops on.
- `skip_children` leaves out what is below.
- `skip_to(depth, transition)` goes to that position or the first one behind it. The position lies
  ahead: at most one level down, and behind where the walk was at that depth. A transition past the
  last one (256; -1 in a reverse cursor) leaves out the siblings that remain.
- The content of a node is an object, never None; None says that the node has none.

Source: Cassandra's InMemoryTrie design ("Cursors over InMemoryTrie") and the cursor interface it
builds on. Here, everything but `advance`, `content` and `key` has a plain form made from `advance`.
"""


cdef class Cursor:
    """A position in a trie; subclasses say how to advance."""

    cpdef object content(self):
        """What stands on this node, or None."""
        raise NotImplementedError

    cpdef bytes key(self):
        """The transitions from the root to this node."""
        raise NotImplementedError

    cpdef int advance(self) except -2:
        """To the next node of the walk; returns its depth."""
        raise NotImplementedError

    cpdef int advance_multiple(self, bytearray receiver) except -2:
        """As `advance`, but over several nodes at once where that costs nothing."""
        return self.advance()

    cpdef int advance_to_content(self) except -2:
        """To the next node that has content; returns its depth."""
        cdef bytearray passed = bytearray()
        while self.advance_multiple(passed) >= 0 and self.content() is None:
            passed.clear()
        return self.depth

    cpdef int skip_children(self) except -2:
        """To the next node that is not below this one; returns its depth."""
        cdef int above = self.depth
        while self.advance() > above:
            pass
        return self.depth

    cpdef int skip_to(self, int depth, int transition) except -2:
        """To the position (depth, transition) or the first one behind it; returns its depth."""
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
        """Let go of what the walk holds; it is past the end then."""
        self.depth = -1
        self.incoming_transition = -1

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
