"""The walk over the cells of a trie: steps to return to, and the search for the next child."""

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset


cdef enum:
    STEPS_MIN = 24
    WALK_PATH_MIN = 128
    LEFT_MASK = 0xffffff
    KIND_SHIFT = 24
    SPLIT_CELL_CHILDREN = 8


cdef int walk_open(Walk* walk, const TrieMemory* memory, bint reverse) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.memory = memory
    walk.flip = 0xff if reverse else 0
    if grow_path(walk, 0) < 0 or grow_steps(walk) < 0:
        walk_close(walk)
        return WALK_NO_MEMORY
    return walk_restart(walk)


cdef int walk_restart(Walk* walk) noexcept nogil:
    walk.step_count = 0
    walk.depth = 0
    stand_on(walk, root_of(walk.memory))
    return 0


cdef void walk_close(Walk* walk) noexcept nogil:
    free(walk.steps)
    free(walk.path)
    walk.steps = NULL
    walk.path = NULL
    walk.step_capacity = walk.path_capacity = 0
    end(walk)


cdef inline int end(Walk* walk) noexcept nogil:
    walk.step_count = 0
    walk.depth = -1
    walk.linked = walk.node = NONE
    walk.content = NO_CONTENT
    return WALK_END


cdef int grow_path(Walk* walk, uint32_t wanted) noexcept nogil:
    cdef uint32_t capacity = max(walk.path_capacity * 2, <uint32_t> WALK_PATH_MIN)
    cdef unsigned char* path
    while capacity < wanted:
        capacity *= 2
    path = <unsigned char*> realloc(walk.path, capacity)
    if path == NULL:
        return -1
    walk.path = path
    walk.path_capacity = capacity
    return 0


cdef int grow_steps(Walk* walk) noexcept nogil:
    cdef uint32_t capacity = max(walk.step_capacity * 2, <uint32_t> STEPS_MIN)
    cdef Step* steps = <Step*> realloc(walk.steps, capacity * sizeof(Step))
    if steps == NULL:
        return -1
    walk.steps = steps
    walk.step_capacity = capacity
    return 0


# Standing on a node

cdef inline void stand_on(Walk* walk, Pointer linked) noexcept nogil:
    cdef const Cells* cells = &walk.memory.cells
    walk.linked = linked
    if linked < 0:
        walk.content = ~linked
        walk.node = NONE
    elif kind_of(linked) == PREFIX:
        walk.content = content_of(cells, linked)
        walk.node = prefix_link(cells, linked)
    else:
        walk.content = NO_CONTENT
        walk.node = linked


cdef inline int descend(
    Walk* walk, uint32_t depth, unsigned char transition, Pointer child
) noexcept nogil:
    """Go to a child of a node at that depth; return the new depth."""
    if depth == walk.path_capacity and grow_path(walk, depth + 1) < 0:
        return WALK_NO_MEMORY
    walk.path[depth] = transition
    walk.depth = depth + 1
    stand_on(walk, child)
    return walk.depth


# Steps

cdef inline int push_step(Walk* walk, StepKind kind, Pointer cell, uint32_t left) noexcept nogil:
    """Add a step that returns to this node; return 0, or WALK_NO_MEMORY."""
    return push_step_at(walk, kind, cell, <uint32_t> walk.depth, left)


cdef inline int push_step_at(
    Walk* walk, StepKind kind, Pointer cell, uint32_t depth, uint32_t left
) noexcept nogil:
    cdef Step* step
    if walk.step_count == walk.step_capacity and grow_steps(walk) < 0:
        return WALK_NO_MEMORY
    step = &walk.steps[walk.step_count]
    step.cell = cell
    step.depth = depth
    step.left = <uint32_t> kind << KIND_SHIFT | left
    walk.step_count += 1
    return 0


cdef inline uint32_t step_kind(const Step* step) noexcept nogil:
    return step.left >> KIND_SHIFT


cdef inline uint32_t step_left(const Step* step) noexcept nogil:
    return step.left & LEFT_MASK


cdef inline void keep_left(Step* step, uint32_t left) noexcept nogil:
    step.left = step.left & ~(<uint32_t> LEFT_MASK) | left


cdef inline uint32_t step_shift(uint32_t kind) noexcept nogil:
    """Return how many bits of a transition lie below those that select in this Split cell."""
    return 6 if kind == STEP_HEAD else 3 if kind == STEP_MID else 0


cdef inline uint32_t step_span(uint32_t kind) noexcept nogil:
    """Return how many transitions a Split cell covers."""
    return 256 if kind == STEP_HEAD else 64 if kind == STEP_MID else 8


cdef inline uint32_t indexes_in_order(uint32_t order, bint reverse) noexcept nogil:
    """Return a Sparse order word's indexes in the order of the walk.

    Each is increased by 1 and takes 3 bits; the first is in the lowest bits.
    """
    cdef uint32_t indexes = 0
    cdef uint32_t shift = 0
    while order:
        if reverse:
            indexes = indexes << 3 | (order % 6 + 1)
        else:
            indexes |= (order % 6 + 1) << shift
        shift += 3
        order //= 6
    return indexes


cdef inline void expect(Walk* walk, Pointer cell, uint32_t count) noexcept nogil:
    """Prefetch the children in a cell, or their contents: the walk will visit most of them."""
    cdef unsigned char* pointers = in_cell(&walk.memory.cells, cell, 0)
    cdef uint32_t index
    cdef Pointer child
    for index in range(count):
        child = acquire_i32(pointers + 4 * index)
        if child > NONE:
            prefetch_cell(at(&walk.memory.cells, child))
        elif child < NONE:
            prefetch_cell(slot_address(&walk.memory.contents, <uint32_t> ~child))


cdef inline int enter_children(Walk* walk) noexcept nogil:
    """Add a step for the children of this Sparse or Split; return 0, or WALK_NO_MEMORY."""
    if kind_of(walk.node) == SPLIT:
        return push_step(walk, STEP_HEAD, walk.node, 0)
    expect(walk, walk.node, SPARSE_CHILDREN_MAX)
    return push_step(
        walk, STEP_SPARSE, walk.node,
        indexes_in_order(sparse_order(&walk.memory.cells, walk.node), walk.flip != 0),
    )


cdef inline int take_sparse(Walk* walk, Step* step) noexcept nogil:
    """Go to the next child of a Sparse node; return the new depth."""
    cdef const Cells* cells = &walk.memory.cells
    cdef Pointer node = step.cell
    cdef uint32_t left = step_left(step)
    cdef uint32_t index = (left & 7) - 1
    if left >> 3:
        keep_left(step, left >> 3)
    else:
        walk.step_count -= 1
    return descend(
        walk, step.depth, sparse_char(cells, node, index), sparse_pointer(cells, node, index)
    )


cdef inline Pointer split_slot(
    const Cells* cells, uint32_t kind, Pointer cell, unsigned char transition
) noexcept nogil:
    """Return the pointer for that transition in one of the three cells of a Split."""
    if kind == STEP_END:
        return acquire_i32(split_end_slot(cells, cell, transition))
    if kind == STEP_MID:
        return acquire_i32(split_mid_slot(cells, cell, transition))
    return acquire_i32(split_head_slot(cells, cell, transition))


cdef inline int take_split(Walk* walk, Step* step) noexcept nogil:
    """Go to the next child in an end cell; return its depth.

    Returns 0 if the walk went one cell further in or one step back instead.
    """
    cdef uint32_t kind = step_kind(step)
    cdef uint32_t place = step_left(step)
    cdef uint32_t width = (<uint32_t> 1) << step_shift(kind)
    cdef uint32_t behind = (place | (step_span(kind) - 1)) + 1
    cdef uint32_t depth = step.depth
    cdef uint32_t next
    cdef Pointer found = NONE
    while True:
        found = split_slot(&walk.memory.cells, kind, step.cell, <unsigned char> (place ^ walk.flip))
        next = (place | (width - 1)) + 1
        if found != NONE or next == behind:
            break
        place = next
    if next < behind:
        keep_left(step, next)
    else:
        walk.step_count -= 1
    if found == NONE:
        return 0
    if kind == STEP_END:
        return descend(walk, depth, <unsigned char> (place ^ walk.flip), found)
    if kind == STEP_MID:
        expect(walk, found, SPLIT_CELL_CHILDREN)
    return push_step_at(walk, <StepKind> (kind + 1), found, depth, place)


cdef int go_on(Walk* walk) noexcept nogil:
    """Go to the next child to which the last step leads, or the steps before it.

    Returns its depth, or WALK_END if no step is left.
    """
    cdef Step* step
    cdef int depth
    while walk.step_count:
        step = &walk.steps[walk.step_count - 1]
        if step_kind(step) == STEP_SPARSE:
            return take_sparse(walk, step)
        depth = take_split(walk, step)
        if depth != 0:
            return depth
    return end(walk)


# Moves

cdef int walk_advance(Walk* walk) noexcept nogil:
    cdef Pointer node = walk.node
    cdef const Cells* cells = &walk.memory.cells
    if node == NONE:
        return go_on(walk)
    if kind_of(node) < SPLIT:
        return descend(
            walk, <uint32_t> walk.depth, at(cells, node)[0], chain_child(cells, node)
        )
    if enter_children(walk) < 0:
        return WALK_NO_MEMORY
    return go_on(walk)


cdef int walk_advance_multiple(Walk* walk) noexcept nogil:
    """Advance over all transitions of a chain's cell at once.

    Only the last one can have content or siblings.
    """
    cdef Pointer node = walk.node
    cdef const Cells* cells = &walk.memory.cells
    cdef uint32_t length
    if node == NONE or kind_of(node) >= SPLIT:
        return walk_advance(walk)
    length = chain_length(node)
    if walk.depth + length > walk.path_capacity and grow_path(walk, walk.depth + length) < 0:
        return WALK_NO_MEMORY
    memcpy(walk.path + walk.depth, at(cells, node), length)
    walk.depth += length
    stand_on(walk, chain_target(cells, node))
    return walk.depth


cdef int walk_skip_children(Walk* walk) noexcept nogil:
    return go_on(walk)


cdef int walk_follow(Walk* walk, unsigned char transition) noexcept nogil:
    cdef Pointer child = node_child(&walk.memory.cells, walk.node, transition)
    if child == NONE:
        return WALK_END
    return descend(walk, <uint32_t> walk.depth, transition, child)


cdef int walk_skip_to(Walk* walk, int32_t depth, int32_t transition) noexcept nogil:
    """Go to the first node from (depth, transition) on; return its depth.

    `depth` must be <= the walk's depth + 1; `transition` may be past the last one.
    """
    cdef uint32_t place = <uint32_t> TRANSITION_END
    cdef Pointer node = walk.node
    if 0 <= transition <= 255:
        place = <uint32_t> transition ^ walk.flip
    if depth <= walk.depth or node == NONE:
        pass
    elif kind_of(node) >= SPLIT:
        if enter_children(walk) < 0:
            return WALK_NO_MEMORY
    elif (at(&walk.memory.cells, node)[0] ^ walk.flip) >= place:
        return walk_advance(walk)
    leave_out(walk, depth, place)
    return go_on(walk)


cdef void leave_out(Walk* walk, int32_t depth, uint32_t place) noexcept nogil:
    """Drop the steps below that depth, and at that depth all that comes before the place."""
    cdef Step* step
    while walk.step_count:
        step = &walk.steps[walk.step_count - 1]
        if <int32_t> step.depth < depth - 1:
            return
        if <int32_t> step.depth == depth - 1 and step_from(walk, step, place):
            return
        walk.step_count -= 1


cdef bint step_from(Walk* walk, Step* step, uint32_t place) noexcept nogil:
    """Make a step begin at that place at the earliest; return whether any of it is left."""
    cdef uint32_t kind = step_kind(step)
    cdef uint32_t left = step_left(step)
    cdef uint32_t span
    if kind == STEP_SPARSE:
        while left and place_of(walk, step.cell, (left & 7) - 1) < place:
            left >>= 3
        keep_left(step, left)
        return left != 0
    span = step_span(kind)
    if place >= (left | (span - 1)) + 1:
        return False
    keep_left(step, max(left, place))
    return True


cdef inline uint32_t place_of(Walk* walk, Pointer sparse, uint32_t index) noexcept nogil:
    return sparse_char(&walk.memory.cells, sparse, index) ^ walk.flip
