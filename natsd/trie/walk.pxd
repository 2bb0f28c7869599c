"""The walk over the cells of a trie, without the GIL and without objects.

A step of three integers is enough to return to a node with children left. A Chain, a leaf or a
Prefix needs no step, since the walk never returns to it.

    step        node or cell    depth           left
    Sparse      the node        of the node     its children's indexes + 1 in order, 3 bits each
    Split head  the node        of the node     0bHH000000, the next transition to look at
    Split mid   the mid cell    of the node     0bHHMMM000
    Split end   the end cell    of the node     0bHHMMMTTT

    path:   o r d e r s . e u . 0 0 0 4 2
    steps:                │     │ Split: head, mid and end cell
                          │ Sparse

- For a Sparse node, `left` is its order word as it was when the walk came by. For a Split cell, the
  walk reads the cell's present content when it returns.
- A reverse walk is the same walk over transitions with all bits inverted (`flip`), which are called
  places: places always ascend. A Sparse node's indexes are in reverse order.
- A step is removed with the last child that it can lead to. So there are at most three steps for
  each byte of the path, and a walk's memory is bounded by the longest key.
- The caller must hold a pinned lease during each of these calls. Two calls for one walk must not
  overlap.

Moves return the new depth; WALK_END past the end; or WALK_NO_MEMORY, with the walk where it was or
past the end.

Source: Cassandra's InMemoryTrie design ("Cursors over InMemoryTrie"). It tells the cells of a Split
apart by the lowest non-zero bits of `left`. With indexes in 3 bits instead of base 6, and walks
that begin at any place (`walk_skip_to`), that is not enough, so here the step contains its kind.
"""

from libc.stdint cimport int32_t, uint32_t


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
    uint32_t left               # highest byte: StepKind; a Split's transitions as places

cdef struct Walk:
    const TrieMemory* memory
    Step* steps
    unsigned char* path         # the key of this node, `depth` bytes
    uint32_t step_count
    uint32_t step_capacity
    uint32_t path_capacity
    int32_t depth
    Pointer linked              # this node as its parent links to it
    Pointer node                # the same without content: it has the children
    int32_t content             # index of its content, or NO_CONTENT
    uint32_t flip               # 0, or 0xff in a reverse walk


cdef int walk_open(Walk* walk, const TrieMemory* memory, bint reverse) noexcept nogil
cdef int walk_restart(Walk* walk) noexcept nogil        # goes to the present root
cdef void walk_close(Walk* walk) noexcept nogil

cdef int walk_advance(Walk* walk) noexcept nogil
cdef int walk_advance_multiple(Walk* walk) noexcept nogil
cdef int walk_skip_children(Walk* walk) noexcept nogil
cdef int walk_skip_to(Walk* walk, int32_t depth, int32_t transition) noexcept nogil

# Go to the child of that transition, without a step back to its siblings. Returns WALK_END if there
# is no such child; the walk then stays.
cdef int walk_follow(Walk* walk, unsigned char transition) noexcept nogil
