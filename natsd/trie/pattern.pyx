"""The keys of a trie that a NATS pattern matches, in byte order.

    orders.*.7    o r d e r s .     followed byte by byte; no other child is looked at
                  *                 all children, and their children, up to a `.`
                  . 7               followed below each of them; a node without such a child is left

The pattern's state after each byte of the walk's path is kept by depth, so that the walk can return
to any of them. The cost grows with the keys that `*` and `>` must look at, not with the trie.

- Between two calls of `next` the trie's writer may write. The cursor continues in the cells that it
  has reached, or, if these were recycled meanwhile, returns PATTERN_STALE (StaleCursor in Python)
  on each call. `resume` then continues behind the last match, in the trie as it is by then. It may
  be called at any time: with `close` between two slices nothing is held back meanwhile.
- One thread at a time. `count` releases the GIL; calls from other threads meanwhile are refused.
- A key is found at most once, keys come in ascending order, and a key that exists all the time is
  found. A key that was added or removed meanwhile may be found or not.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


from natsd.trie.errors import StaleCursor


# The lease points into the trie, so the cycle collector must not clear the trie first.
@cython.no_gc_clear
cdef class PatternCursor:
    """The matches of `pattern`, a NATS subject with or without wildcards.

    Raises InvalidSubject.

    The pattern None matches every key, also keys that are no valid subjects, unlike `>`. As an
    iterator, the cursor yields (key, content); contents of a RecordTrie are copies of the records.
    """

    def __cinit__(self, CellTrie trie not None, pattern):
        self.trie = trie
        self.pattern = Pattern(pattern)
        self.key_len = -1
        self.lease = enter(&trie.memory.epochs)
        if self.lease == NULL or walk_open(&self.walk, &trie.memory, False) < 0:
            raise MemoryError()
        if self._grow() < 0:
            raise MemoryError()
        self.states[0] = 0
        self.unread = True
        rest(self.lease)

    def __dealloc__(self):
        self._leave()
        walk_close(&self.walk)
        free(self.states)
        free(self.key)

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t slot
        if self.lease == NULL:
            raise StopIteration
        self._pin_or_raise()
        try:
            slot = self.next()
            if slot == PATTERN_NO_MEMORY:
                raise MemoryError()
            if slot < 0:
                raise StopIteration
            return self.key[:self.key_len], self.trie.content_at(<int> slot)
        finally:
            self.unpin()

    def count(self, int64_t limit=-1) -> int:
        """Skip the remaining matches, or `limit` of them; return how many were skipped."""
        cdef int64_t found = 0
        cdef int64_t slot = 0
        if self.lease == NULL:
            return 0
        self._pin_or_raise()
        with nogil:
            while found != limit:
                slot = self.next()
                if slot < 0:
                    break
                found += 1
        self.unpin()  # with the GIL: another thread sees a cursor either in use or at rest
        if slot == PATTERN_NO_MEMORY:
            raise MemoryError()
        return found

    def resume(self) -> None:
        """Continue behind the last match, at the present root. Raises MemoryError."""
        self._refuse_if_in_use()
        if self.restart() < 0:
            raise MemoryError()

    def close(self) -> None:
        """Release the lease; the cursor is past the end then, unless it resumes."""
        self._refuse_if_in_use()
        self._leave()

    @property
    def last_key(self):
        """The last match, or None."""
        return None if self.key_len < 0 else self.key[:self.key_len]

    cdef int64_t next(self) noexcept nogil:
        cdef int64_t slot
        if self.lease == NULL:
            return PATTERN_END
        if self.pinned:
            return self._find()
        if not wake(self.lease):
            return PATTERN_STALE
        slot = self._find()
        if self.lease != NULL:
            rest(self.lease)
        return slot

    cdef bint pin(self) noexcept nogil:
        if self.lease != NULL and not wake(self.lease):
            return False
        self.pinned = True
        return True

    cdef void unpin(self) noexcept nogil:
        self.pinned = False
        if self.lease != NULL:
            rest(self.lease)

    cdef int restart(self) noexcept nogil:
        cdef int result
        self._leave()
        self.lease = enter(&self.trie.memory.epochs)
        if self.lease == NULL:
            return PATTERN_NO_MEMORY
        walk_restart(&self.walk)
        self.known = 0
        self.unread = self.key_len < 0
        result = self._return_to_key()
        if result < 0:
            self._leave()
        elif not self.pinned:
            rest(self.lease)
        return result

    cdef int64_t _find(self) noexcept nogil:
        cdef int depth
        if self.unread:
            self.unread = False
            depth = self.walk.depth
        else:
            depth = self._move()
        while depth >= 0:
            if not self._reads_path():
                depth = self._moved(walk_skip_children(&self.walk))
                continue
            if self.walk.content >= 0 and automaton_accepts(
                &self.pattern.automaton, self.states[depth]
            ):
                memcpy(self.key, self.walk.path, depth)
                self.key_len = depth
                return self.walk.content
            depth = self._move()
        self._leave()
        return PATTERN_END if depth == WALK_END else PATTERN_NO_MEMORY

    cdef int _move(self) noexcept nogil:
        """Go on from a node whose path the pattern has read; return the new depth."""
        cdef uint32_t state = self.states[self.walk.depth]
        if automaton_is_literal(&self.pattern.automaton, state):
            return self._follow_literals()
        if self.pattern.automaton.kinds[state >> 1] == BYTE_END:
            return self._moved(walk_skip_children(&self.walk))
        return self._moved(walk_advance_multiple(&self.walk))

    cdef int _follow_literals(self) noexcept nogil:
        """Go down along the pattern's literal bytes, or back if one of them leads nowhere."""
        cdef uint32_t state = self.states[self.walk.depth]
        cdef int depth = self.walk.depth
        while automaton_is_literal(&self.pattern.automaton, state):
            depth = walk_follow(&self.walk, self.pattern.automaton.text[state >> 1])
            if depth == WALK_END:
                return self._moved(walk_skip_children(&self.walk))
            if self._moved(depth) < 0:
                return WALK_NO_MEMORY
            state += 2
            self.states[depth] = state
            self.known = depth
        return depth

    cdef bint _reads_path(self) noexcept nogil:
        """Let the pattern read the new part of the path; return whether it accepts that."""
        cdef uint32_t depth = <uint32_t> self.walk.depth
        cdef uint32_t at = self.known
        cdef int64_t state = self.states[at]
        while at < depth:
            state = automaton_step(&self.pattern.automaton, <uint32_t> state, self.walk.path[at])
            if state < 0:
                break
            at += 1
            self.states[at] = <uint32_t> state
        self.known = at
        return at == depth

    cdef int _return_to_key(self) noexcept nogil:
        """Go down the path of the last match as far as it still exists.

        All matches behind that key then lie ahead of the walk.
        """
        cdef int at
        cdef int depth
        for at in range(<int> self.key_len):
            if automaton_is_literal(&self.pattern.automaton, self.states[at]):
                depth = walk_follow(&self.walk, self.key[at])
                if depth == WALK_END:
                    depth = walk_skip_children(&self.walk)
            else:
                depth = walk_skip_to(&self.walk, at + 1, self.key[at])
            depth = self._moved(depth)
            self.unread = depth != at + 1 or self.walk.path[at] != self.key[at]
            if self.unread:
                return PATTERN_NO_MEMORY if depth == WALK_NO_MEMORY else 0
            self._reads_path()
        return 0

    cdef int _moved(self, int depth) noexcept nogil:
        """Adjust `known` and the capacity to the walk's new depth; return the depth."""
        if depth > 0:
            self.known = min(self.known, <uint32_t> depth - 1)
        if depth > <int> self.capacity and self._grow() < 0:
            return WALK_NO_MEMORY
        return depth

    cdef int _grow(self) noexcept nogil:
        """Make room for the longest path of the walk: in the last match, and one state more."""
        cdef uint32_t capacity = self.walk.path_capacity
        cdef uint32_t* states = <uint32_t*> realloc(self.states, (capacity + 1) * sizeof(uint32_t))
        cdef unsigned char* key
        if states == NULL:
            return -1
        self.states = states
        key = <unsigned char*> realloc(self.key, capacity)
        if key == NULL:
            return -1
        self.key = key
        self.capacity = capacity
        return 0

    cdef void _leave(self) noexcept nogil:
        if self.lease != NULL:
            leave(self.lease)
            self.lease = NULL

    cdef int _refuse_if_in_use(self) except -1:
        if self.pinned:
            raise RuntimeError("another thread is using this cursor")
        return 0

    cdef int _pin_or_raise(self) except -1:
        self._refuse_if_in_use()
        if not self.pin():
            raise StaleCursor("the trie has recycled what this cursor stood on")
        return 0
