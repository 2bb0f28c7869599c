"""The walk over the cells of a trie, without the GIL and without objects.

What it takes to come back to a node with children left is a step: three integers. A Chain, a leaf
or a Prefix needs none, for there is nothing to come back to.

    step        node or cell    depth           what is left
    Sparse      the node        of the node     its children's indexes + 1 in order, 3 bits each
    Split head  the node        of the node     0bHH000000, the next transition to look at
    Split mid   the mid cell    of the node     0bHHMMM000
    Split end   the end cell    of the node     0bHHMMMTTT

    path:   o r d e r s . e u . 0 0 0 4 2
    steps:                │     │ Split: head, mid and end cell
                          │ Sparse

- What is left of a Sparse node is its order word as it was when the walk came by; of a Split cell,
  whatever stands there when the walk comes back.
- A reverse walk is the same walk over transitions with all bits turned over (`flip`), which makes
  places of them: places always ascend. A Sparse node's indexes stand the other way round.
- A step is removed with the last child it can lead to. So there are at most three for each byte of
  the path, and what a walk holds is bounded by the longest key.
- The caller holds a pinned lease while it calls any of these. Any two calls of one walk must not
  overlap.

Moves return the new depth, WALK_END past the end, WALK_NO_MEMORY with the walk where it was or past
the end.

Source: Cassandra's InMemoryTrie design ("Cursors over InMemoryTrie"). It tells the cells of a Split
apart by the lowest non-zero bits of what is left; with indexes in 3 bits instead of base 6, and
walks from any place (`walk_skip_to`), that is not enough, so here the step says what it is.
"""

from libc.stdint cimport int32_t, uint32_t

from natsd.trie.memory cimport TrieMemory
from natsd.trie.nodes cimport Pointer


cdef enum:
    WALK_END = -1
    WALK_NO_MEMORY = -3
    TRANSITION_END = 256        # behind all transitions, in the order of the walk

cdef enum StepKind:
    STEP_SPARSE
    STEP_HEAD
    STEP_MID
    STEP_END

cdef struct Step:
    Pointer cell
    uint32_t depth
    uint32_t left               # StepKind in the highest byte; a Split's transitions as places

cdef struct Walk:
    const TrieMemory* memory
    Step* steps
    unsigned char* path         # the key of this node, `depth` bytes
    uint32_t step_count
    uint32_t step_capacity
    uint32_t path_capacity
    int32_t depth
    Pointer linked              # this node as its parent points to it
    Pointer node                # the same behind its content: what has the children
    int32_t content             # its content's index, or NO_CONTENT
    uint32_t flip               # 0, or 0xff in a reverse walk


cdef int walk_open(Walk* walk, const TrieMemory* memory, bint reverse) noexcept nogil
cdef int walk_restart(Walk* walk) noexcept nogil        # on the root, as it is now
cdef void walk_close(Walk* walk) noexcept nogil

cdef int walk_advance(Walk* walk) noexcept nogil
cdef int walk_advance_multiple(Walk* walk) noexcept nogil
cdef int walk_skip_children(Walk* walk) noexcept nogil
cdef int walk_skip_to(Walk* walk, int32_t depth, int32_t transition) noexcept nogil

# To that child and no other: nothing to come back to. WALK_END where there is none; the walk stays.
cdef int walk_follow(Walk* walk, unsigned char transition) noexcept nogil
